"""Gradient-based planning: several plans climb G by Adam through the differentiable rollout, and the best is taken.

Plans stay in the cube by projection after every step. (A smooth map such as tanh would never reach the bounds, where
the gradient then vanishes; many optimal controls lie on them.) With a linear core the gradient over any horizon costs
one pass back and neither vanishes nor explodes in the dynamics.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from koopax._types import Array, PRNGKeyArray
from koopax.planning.planner import Decision, Diagnostics
from koopax.planning.protocol import (
    Box,
    PlanningModel,
    PlanStart,
    check_positive,
    discounted_return,
    explored,
    ranked,
    shifted,
    within,
)
from koopax.planning.searching import Plan, SearchingPlanner


@dataclass(frozen=True)
class GradientConfig:
    """Settings of gradient-based planning. Steps and standard deviations are in units of the cube [−1, 1]."""

    horizon: int = 20
    """H: steps of a plan."""
    restarts: int = 16
    """Plans that climb side by side; the first starts at the last decision's, the others around it."""
    iterations: int = 40
    """Steps of Adam."""
    learning_rate: float = 0.1
    """Step size at the start; it falls to a tenth over the iterations."""
    initial_std: float = 0.7
    """Standard deviation of the starts around the last plan."""
    exploration_std: float = 0.1
    """Standard deviation of the noise on the action, when exploring."""
    discount: float = 1.0
    """γ."""

    def __post_init__(self) -> None:
        check_positive(self, "horizon", "restarts", "iterations", "learning_rate")


class GradientPlanner(SearchingPlanner):
    """Projected Adam from several starts."""

    config: GradientConfig = eqx.field(static=True)

    def __init__(self, config: GradientConfig = GradientConfig(), box: Box | None = None):
        """`box` bounds the actions; ±1 by default."""
        super().__init__(config, box)

    def search(
        self,
        model: PlanningModel,
        start: PlanStart,
        state: Plan,
        *,
        key: PRNGKeyArray,
        explore: bool | Array = False,
        horizon: int | Array | None = None,
    ) -> Decision:
        """As `Planner.search`."""
        config = self.config
        start_key, noise_key = jax.random.split(key)
        optimiser = optax.adam(
            optax.linear_schedule(config.learning_rate, 0.1 * config.learning_rate, config.iterations)
        )

        def climb(units: Array) -> tuple[Array, Array]:
            actions = self.box.from_unit(units)
            found = discounted_return(model, start, actions, discount=config.discount, horizon=horizon)
            return jnp.sum(found), found  # candidates don't touch each other, so the sum's gradient is each one's own

        def iterate(carry: Any, _: None) -> tuple[Any, None]:
            units, moments, best, best_value = carry
            gradient, found = jax.grad(climb, has_aux=True)(units)
            better = ranked(found) > best_value
            best, best_value = jnp.where(better[:, None], units, best), jnp.where(better, found, best_value)
            usable = jnp.where(jnp.isfinite(gradient), -gradient, 0.0)
            updates, moments = optimiser.update(usable, moments)
            return (jnp.clip(units + updates, -1.0, 1.0), moments, best, best_value), None

        mean = shifted(state.mean)
        noise = jax.random.normal(start_key, (config.horizon, config.restarts, mean.shape[-1])).at[:, 0].set(0.0)
        units = jnp.clip(mean[:, None] + config.initial_std * noise, -1.0, 1.0)
        carry = units, optimiser.init(units), units, jnp.full(config.restarts, -jnp.inf)
        (_, _, best, values), _ = jax.lax.scan(iterate, carry, length=config.iterations)
        chosen = best[:, jnp.argmax(values)]
        unit = explored(chosen[0], config.exploration_std, explore, key=noise_key)
        diagnostics = Diagnostics(jnp.max(values), jnp.zeros(()), jnp.mean(~jnp.isfinite(values)))
        return Decision(self.box.from_unit(unit), Plan(within(chosen, horizon)), diagnostics)
