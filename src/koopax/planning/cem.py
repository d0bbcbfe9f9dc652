"""The cross-entropy method: draw candidates from a Gaussian, refit it to the best K, repeat, take the mean.

    μ ← m μ + (1 − m) mean of the elites,   σ ← m σ + (1 − m) std of the elites,

after which the first action of μ is taken. All elites count the same, which is the difference from MPPI.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray
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
class CEMConfig:
    """Settings of the cross-entropy method. Standard deviations are in units of the cube [−1, 1]."""

    horizon: int = 20
    """H: steps of a plan."""
    samples: int = 512
    """Candidates drawn in each iteration."""
    iterations: int = 6
    """Rounds of drawing and refitting."""
    elites: int = 32
    """K: candidates that the Gaussian is refitted to."""
    momentum: float = 0.1
    """m: share of the old mean and standard deviation that stays."""
    initial_std: float = 1.0
    """σ at the start of every decision."""
    exploration_std: float = 0.1
    """Standard deviation of the noise on the action, when exploring."""
    discount: float = 1.0
    """γ."""

    def __post_init__(self) -> None:
        check_positive(self, "horizon", "samples", "iterations", "elites", elites=self.samples)


class CEM(SearchingPlanner):
    """Refits a Gaussian over plans to its best samples."""

    config: CEMConfig = eqx.field(static=True)

    def __init__(self, config: CEMConfig = CEMConfig(), box: Box | None = None):
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
        search_key, noise_key = jax.random.split(key)

        def iterate(carry: tuple[Array, Array], iteration_key: PRNGKeyArray) -> tuple[tuple[Array, Array], Any]:
            mean, std = carry
            noise = jax.random.normal(iteration_key, (config.horizon, config.samples, mean.shape[-1]))
            units = jnp.clip(mean[:, None] + std[:, None] * noise, -1.0, 1.0)
            actions = self.box.from_unit(units)
            found = ranked(discounted_return(model, start, actions, discount=config.discount, horizon=horizon))
            values, chosen = jax.lax.top_k(found, config.elites)
            mean, std = refitted(mean, std, units[:, chosen], values, config.momentum)
            return (mean, std), (values[0], jnp.mean(~jnp.isfinite(found)))

        first = shifted(state.mean), jnp.full_like(state.mean, config.initial_std)
        (mean, std), history = jax.lax.scan(iterate, first, jax.random.split(search_key, config.iterations))
        unit = explored(mean[0], config.exploration_std, explore, key=noise_key)
        value, nonfinite = jax.tree.map(lambda leaf: leaf[-1], history)
        diagnostics = Diagnostics(value, jnp.mean(std[0]), nonfinite)
        return Decision(self.box.from_unit(unit), Plan(within(mean, horizon)), diagnostics)


def refitted(
    mean: Float[Array, "time action"],
    std: Float[Array, "time action"],
    elites: Float[Array, "time elite action"],
    values: Float[Array, " elite"],
    momentum: float,
) -> tuple[Float[Array, "time action"], Float[Array, "time action"]]:
    """The Gaussian after an iteration; elites that are not finite count nothing, and without any other it stays."""
    finite = jnp.isfinite(values)
    weights = finite / jnp.maximum(jnp.sum(finite), 1)
    centre = jnp.einsum("k,hka->ha", weights, elites)
    spread = jnp.sqrt(jnp.einsum("k,hka->ha", weights, (elites - centre[:, None]) ** 2))
    kept = jnp.where(jnp.any(finite), momentum, 1.0)
    return kept * mean + (1 - kept) * centre, kept * std + (1 - kept) * spread
