"""What a Koopman model has learned about time: eigenvalues, half-lives, periods, stability, aliasing."""

import warnings
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError, KoopaxWarning
from koopax.data.episodes import Episodes
from koopax.data.windows import fixed_windows
from koopax.models.dynamics import DynamicsModel
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import LatentDynamics
from koopax.models.spectrum import discretise


@dataclass(frozen=True)
class SpectrumAnalysis:
    """One entry per mode, as float64 or complex128 NumPy arrays. A step is one step of nominal duration."""

    continuous: np.ndarray
    """λ = μ + i ω, per unit of the model's own time."""
    discrete: np.ndarray
    """λ̄ = exp(λ Δt), per step."""
    time_step: float
    """Δt."""
    half_life: np.ndarray
    """Steps until a mode has lost half its amplitude, ln 2 / (−μ Δt); infinite for μ = 0."""
    period: np.ndarray
    """Steps for one turn of the discrete mode, 2π / |arg λ̄|; infinite for a mode that does not turn."""
    aliased: np.ndarray
    """Modes with |ω| Δt > π: they turn by more than half a circle per step, so ω is not what can be observed."""

    importance: np.ndarray | None = None
    """Share of each mode in the predicted motion, summing to 1, where the analysis was given episodes."""

    @property
    def stability_margin(self) -> float:
        """1 − max |λ̄|: positive for a strictly stable model, 0 for one with a rotation."""
        return float(1.0 - np.abs(self.discrete).max())

    def table(self) -> dict[str, np.ndarray]:
        """Columns by name; the most important modes first where importance is known, else the slowest."""
        order = np.argsort(-(self.half_life if self.importance is None else self.importance), kind="stable")
        columns = {
            "decay_per_step": -np.real(self.continuous) * self.time_step,
            "phase_per_step": np.angle(self.discrete),
            "half_life": self.half_life,
            "period": self.period,
            "magnitude": np.abs(self.discrete),
            "aliased": self.aliased,
        }
        if self.importance is not None:
            columns = {"importance": self.importance, **columns}
        return {name: column[order] for name, column in columns.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, modes in the order of `table`; infinite ones become None."""
        columns = {name: _plain(column) for name, column in self.table().items()}
        return {"time_step": self.time_step, "stability_margin": self.stability_margin, "modes": columns}


def _plain(column: np.ndarray) -> list[Any]:
    if column.dtype == bool:
        return column.tolist()
    return [float(value) if np.isfinite(value) else None for value in column]


def analyse_spectrum(model: DynamicsModel | LatentDynamics, episodes: Episodes | None = None) -> SpectrumAnalysis:
    """The spectrum of a model with a Koopman core. Warns where modes are aliased.

    With `episodes`, also how much each mode matters in them, see `mode_importance`.
    """
    core = model.core if isinstance(model, DynamicsModel) else model
    if not isinstance(core, KoopmanCore):
        raise KoopaxError(
            f"a {type(core).__name__} has no eigenvalues: the spectrum is defined for models with a 'koopman' core."
        )
    decay, frequency = (np.asarray(part, np.float64) for part in core.spectrum.rates())
    step = float(core.spectrum.time_step())
    real, imag = (np.asarray(part, np.float64) for part in discretise(core.spectrum).transition)
    discrete = real + 1j * imag
    turn = np.abs(np.angle(discrete))
    with np.errstate(divide="ignore"):
        half_life = np.log(2.0) / np.abs(decay * step)
        period = 2 * np.pi / turn
    aliased = np.abs(frequency) * step > np.pi
    if aliased.any():
        warnings.warn(
            f"{int(aliased.sum())} of {aliased.size} modes turn by more than half a circle per step and are aliased: "
            "their ω is not observable; the 'multiscale' spectrum never aliases.",
            KoopaxWarning,
            stacklevel=2,
        )
    importance = None
    if episodes is not None:
        if not isinstance(model, DynamicsModel):
            raise KoopaxError("the importance of modes is that in decoded states: pass a DynamicsModel, not its core.")
        importance = mode_importance(model, episodes)
    return SpectrumAnalysis(decay + 1j * frequency, discrete, step, half_life, period, aliased, importance)


def mode_importance(model: DynamicsModel, episodes: Episodes, *, horizon: int = 100, windows: int = 64) -> np.ndarray:
    """Each mode's share in the motion that the model predicts, of shape [modes], summing to 1.

    For mode j it is the mean of |J_j (x_j − x̄_j)|² over windows, halfway and at the end, where J_j are the two columns
    of the decoder's Jacobian (in normalised units) that belong to the mode and x̄_j is its mean.
    """
    horizon = min(horizon, int(episodes.lengths.max()))
    batches = fixed_windows(episodes, horizon, windows, seed=0, batch_size=windows)
    batch = next(iter(batches))

    assert isinstance(model.core, KoopmanCore)  # the caller has checked
    width = model.core.modes_size

    @eqx.filter_jit
    def contributions(model: DynamicsModel, states, actions, durations):
        def latents_of(state, actions, durations):
            prediction = model.rollout(state, actions, durations=durations, return_latents=True)
            assert prediction.latents is not None
            return prediction.latents

        latents = jax.vmap(latents_of, in_axes=(0, 1, None if durations is None else 1))(states, actions, durations)
        moving = (latents - jnp.mean(latents, axis=(0, 1)))[..., :width]

        def of_last(latent, moved):  # [state, 2, modes] · [2, modes]
            # A decoder that also reads the reward has it as its last output, which is no motion.
            jacobian = jax.jacrev(model.decoder)(latent)[: model.config.state_size, :width].reshape(-1, 2, width // 2)
            return jnp.sum(jnp.einsum("srm,rm->sm", jacobian, moved.reshape(2, -1)) ** 2, axis=0)

        middle = horizon // 2
        return jnp.mean(
            jax.vmap(of_last)(latents[:, middle], moving[:, middle]) + jax.vmap(of_last)(latents[:, -1], moving[:, -1]),
            axis=0,
        )

    durations = None if batch.durations is None else jnp.asarray(batch.durations)
    energy = np.asarray(
        contributions(model, jnp.asarray(batch.states[0]), jnp.asarray(batch.actions), durations), np.float64
    )
    return energy / energy.sum()
