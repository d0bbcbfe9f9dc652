"""Model-predictive path integral control, as in TD-MPC (Hansen et al., 2022).

In each iteration candidates are drawn around a mean plan, the best K are kept, and

    w_i ∝ exp(τ (G_i − max G)),   μ ← m μ + (1 − m) Σ w_i a_i,   σ² ← Σ w_i (a_i − Σ w_j a_j)²,  σ in [σ_min, σ_max].

In long plans the noise of many later actions hides what the first one is worth. With φ = `std_decay` < 1 it fades: both
bounds of σ at step t of a plan are scaled by φᵗ, so that later actions stay close to the last plan.

One elite of the last iteration is drawn by its weight, and its first action is taken. A model that proposes candidates
(its policy's) has them compete in every iteration.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray
from koopax.planning.icem import coloured_noise
from koopax.planning.planner import Decision, Diagnostics
from koopax.planning.protocol import (
    Box,
    PlanningModel,
    PlanStart,
    ProposingModel,
    check_positive,
    discounted_return,
    explored,
    ranked,
    shifted,
    within,
)
from koopax.planning.searching import Plan, SearchingPlanner


@dataclass(frozen=True)
class MPPIConfig:
    """Settings of MPPI; the defaults are TD-MPC's. Standard deviations are in units of the cube [−1, 1]."""

    horizon: int = 5
    """H: steps of a plan."""
    samples: int = 512
    """Candidates drawn in each iteration."""
    iterations: int = 6
    """Rounds of drawing and refitting."""
    elites: int = 64
    """K: candidates that the mean is refitted to."""
    proposals: int = 25
    """Candidates that the model proposes, if it does so at all; they come on top of the samples."""
    temperature: float = 0.5
    """τ: how much better candidates count more."""
    momentum: float = 0.1
    """m: share of the old mean that stays."""
    min_std: float = 0.05
    """σ_min, unless a decision brings its own."""
    max_std: float = 2.0
    """σ_max, and σ at the start of every decision."""
    std_decay: float = 1.0
    """φ: what the bounds of σ are multiplied by from one step of a plan to the next."""
    noise_exponent: float = 0.0
    """β of the candidates' noise along time, as in iCEM: 0 is white, 2 a random walk."""
    discount: float = 0.99
    """γ."""
    mixing: float = 1.0
    """λ of the mean of h-step returns; 1: the return of the whole plan."""
    value_points: int = 1
    """Steps at which that mean has values, evenly spaced, the last one among them."""
    value_at: tuple[int, ...] | None = None
    """These steps instead."""

    def __post_init__(self) -> None:
        check_positive(
            self, "horizon", "samples", "iterations", "elites", "value_points", "std_decay", elites=self.samples
        )


class MPPI(SearchingPlanner):
    """Importance-weighted sampling around a mean plan."""

    config: MPPIConfig = eqx.field(static=True)

    def __init__(self, config: MPPIConfig = MPPIConfig(), box: Box | None = None):
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
        min_std: float | Array | None = None,
    ) -> Decision:
        """As `Planner.search`; `min_std` is the lower bound of σ for this decision and may be traced."""
        config = self.config
        fade = (config.std_decay ** jnp.arange(config.horizon, dtype=float))[:, None]
        least = fade * (config.min_std if min_std is None else min_std)
        most = jnp.broadcast_to(fade * config.max_std, state.mean.shape)
        propose_key, search_key, draw_key, noise_key = jax.random.split(key, 4)
        proposals = self._proposals(model, start, state.mean.shape[-1], key=propose_key)

        def worth(units: Array) -> Array:
            return ranked(
                discounted_return(
                    model,
                    start,
                    self.box.from_unit(units),
                    discount=config.discount,
                    horizon=horizon,
                    mixing=config.mixing,
                    value_points=config.value_points if config.value_at is None else config.value_at,
                )
            )

        # The same in every iteration, so they are rolled out once.
        proposed = worth(proposals) if proposals.shape[1] else jnp.zeros(0)

        def iterate(carry: tuple[Array, Array], iteration_key: PRNGKeyArray) -> tuple[tuple[Array, Array], Any]:
            mean, std = carry
            noise = self._noise((config.horizon, config.samples, mean.shape[-1]), key=iteration_key)
            drawn = jnp.clip(mean[:, None] + std[:, None] * noise, -1.0, 1.0)
            units = jnp.concatenate([drawn, proposals], axis=1)
            found = jnp.concatenate([worth(drawn), proposed])
            values, chosen = jax.lax.top_k(found, config.elites)
            weights = elite_weights(values, config.temperature)
            elites = units[:, chosen]
            centre = jnp.einsum("k,hka->ha", weights, elites)
            spread = jnp.sqrt(jnp.einsum("k,hka->ha", weights, (elites - centre[:, None]) ** 2))
            mean = config.momentum * mean + (1 - config.momentum) * centre
            std = jnp.clip(spread, least, most)
            return (mean, std), (elites[0], weights, values[0], jnp.mean(~jnp.isfinite(found)))

        first = shifted(state.mean), most
        keys = jax.random.split(search_key, config.iterations)
        (mean, std), history = jax.lax.scan(iterate, first, keys)
        firsts, weights, value, nonfinite = jax.tree.map(lambda leaf: leaf[-1], history)

        unit = firsts[jax.random.choice(draw_key, config.elites, p=weights)]
        unit = explored(unit, std[0], explore, key=noise_key)
        return Decision(
            self.box.from_unit(unit), Plan(within(mean, horizon)), Diagnostics(value, jnp.mean(std[0]), nonfinite)
        )

    def _noise(self, shape: tuple[int, int, int], *, key: PRNGKeyArray) -> Array:
        if self.config.noise_exponent == 0:
            return jax.random.normal(key, shape)
        return coloured_noise(shape, self.config.noise_exponent, key=key)

    def _proposals(self, model: PlanningModel, start: Any, action_size: int, *, key: PRNGKeyArray) -> Array:
        """The model's own candidates, in units of the cube; none if it has none."""
        if not isinstance(model, ProposingModel) or self.config.proposals == 0:
            return jnp.zeros((self.config.horizon, 0, action_size))
        actions = model.propose(start, horizon=self.config.horizon, count=self.config.proposals, key=key)
        return self.box.to_unit(actions)


def elite_weights(values: Float[Array, " elite"], temperature: float) -> Float[Array, " elite"]:
    """w_i ∝ exp(τ (G_i − max G)), summing to one; −inf weighs nothing, unless all elites are −inf."""
    best = jnp.max(values)
    scores = jnp.where(jnp.isfinite(best), jnp.exp(temperature * (values - best)), 1.0)
    return scores / jnp.sum(scores)
