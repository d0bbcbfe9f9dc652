"""The improved cross-entropy method (Pinneri et al., 2020): CEM for few samples.

What it adds to CEM: noise that is correlated in time (power ∝ f^−β), so that candidates go somewhere instead of
trembling; fewer candidates in each iteration, N_i = max(N γ⁻ⁱ, 2 K); a share of the elites competes again in the next
iteration and, shifted by one step, at the next decision; the mean competes in the last iteration; and the best
candidate's first action is taken, not the mean's.
"""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._types import Array, Float, PRNGKeyArray
from koopax.planning.cem import refitted
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
from koopax.planning.searching import SearchingPlanner


@dataclass(frozen=True)
class ICEMConfig:
    """Settings of iCEM. Standard deviations are in units of the cube [−1, 1]."""

    horizon: int = 20
    """H: steps of a plan."""
    samples: int = 128
    """N: candidates drawn in the first iteration."""
    iterations: int = 4
    """Rounds of drawing and refitting."""
    elites: int = 10
    """K: candidates that the Gaussian is refitted to."""
    decay: float = 1.25
    """γ: factor by which the number of candidates falls from one iteration to the next."""
    kept: float = 0.3
    """Share of the elites that competes again."""
    noise_exponent: float = 2.0
    """β: 0 is white noise, 2 a random walk; higher is smoother."""
    momentum: float = 0.1
    """Share of the old mean and standard deviation that stays."""
    initial_std: float = 0.5
    """σ at the start of every decision."""
    exploration_std: float = 0.1
    """Standard deviation of the noise on the action, when exploring."""
    discount: float = 1.0
    """Discount of rewards."""

    def __post_init__(self) -> None:
        check_positive(self, "horizon", "samples", "iterations", "elites", "decay", elites=self.samples)

    def population(self, iteration: int) -> int:
        """N_i: candidates that are drawn in an iteration."""
        return max(int(self.samples * self.decay**-iteration), min(2 * self.elites, self.samples))

    @property
    def survivors(self) -> int:
        """How many elites compete again."""
        return round(self.kept * self.elites)


class ICEMState(NamedTuple):
    """The last plan and the elites that compete again, in units of the cube."""

    mean: Float[Array, "time action"]
    elites: Float[Array, "time survivor action"]


class ICEM(SearchingPlanner):
    """CEM with coloured noise, kept elites and a decaying population."""

    config: ICEMConfig = eqx.field(static=True)

    def __init__(self, config: ICEMConfig = ICEMConfig(), box: Box | None = None):
        """`box` bounds the actions; ±1 by default."""
        super().__init__(config, box)

    def init(self, action_size: int) -> ICEMState:
        """Plans of zeros: the middle of the bounds."""
        steps = self.config.horizon
        return ICEMState(jnp.zeros((steps, action_size)), jnp.zeros((steps, self.config.survivors, action_size)))

    def search(
        self,
        model: PlanningModel,
        start: PlanStart,
        state: ICEMState,
        *,
        key: PRNGKeyArray,
        explore: bool | Array = False,
        horizon: int | Array | None = None,
    ) -> Decision:
        """As `Planner.search`."""
        config = self.config
        draw_key, noise_key = jax.random.split(key)
        populations = [config.population(iteration) for iteration in range(config.iterations)]
        # Drawn for all iterations at once: drawing is a large part of what there is to compile.
        drawn = coloured_noise(
            (config.horizon, sum(populations), state.mean.shape[-1]), config.noise_exponent, key=draw_key
        )
        mean, std = shifted(state.mean), jnp.full_like(state.mean, config.initial_std)
        survivors = shifted(state.elites)
        best, best_value, nonfinite = mean, jnp.asarray(-jnp.inf), jnp.zeros(())
        # Unrolled, because every iteration has its own number of candidates.
        for iteration, noise in enumerate(jnp.split(drawn, np.cumsum(populations)[:-1], axis=1)):
            candidates = [jnp.clip(mean[:, None] + std[:, None] * noise, -1.0, 1.0), survivors]
            if iteration == config.iterations - 1:
                candidates.append(mean[:, None])
            units = jnp.concatenate(candidates, axis=1)
            actions = self.box.from_unit(units)
            found = ranked(discounted_return(model, start, actions, discount=config.discount, horizon=horizon))
            values, chosen = jax.lax.top_k(found, config.elites)
            elites = units[:, chosen]
            mean, std = refitted(mean, std, elites, values, config.momentum)
            survivors = elites[:, : config.survivors]
            better = values[0] > best_value
            best, best_value = jnp.where(better, elites[:, 0], best), jnp.where(better, values[0], best_value)
            nonfinite = jnp.mean(~jnp.isfinite(found))
        unit = explored(best[0], config.exploration_std, explore, key=noise_key)
        diagnostics = Diagnostics(best_value, jnp.mean(std[0]), nonfinite)
        kept = ICEMState(within(mean, horizon), within(survivors, horizon))
        return Decision(self.box.from_unit(unit), kept, diagnostics)


def coloured_noise(
    shape: tuple[int, int, int], exponent: float, *, key: PRNGKeyArray
) -> Float[Array, "time candidate action"]:
    """Gaussian noise of unit variance whose power falls as f^−β along time; β = 0 is white.

    Each frequency's amplitude is drawn on its own and transformed back; the mean gets the power of one period.
    """
    steps = shape[0]
    frequency = np.fft.rfftfreq(steps)
    frequency[0] = 1 / steps
    amplitude = frequency ** (-exponent / 2)
    # What has no phase, the mean and the highest of an even number, carries its power in one number instead of two.
    single = np.zeros(len(amplitude), bool)
    single[-1], single[0] = steps % 2 == 0, True
    amplitude = np.where(single, np.sqrt(2.0), 1.0) * amplitude
    variance = np.sum(np.where(single, 1.0, 4.0) * amplitude**2) / steps**2
    drawn = jax.random.normal(key, (2 * len(amplitude), *shape[1:]))
    # Few steps are transformed back sooner by a product with all waves, cosines and sines, than by a fast transform.
    scale = np.diag(amplitude / np.sqrt(variance))
    waves = np.concatenate([np.fft.irfft(part * scale, n=steps, axis=0) for part in (1, 1j)], axis=1)
    return jnp.tensordot(jnp.asarray(waves, drawn.dtype), drawn, axes=1)
