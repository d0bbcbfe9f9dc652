"""The modes of a Koopman core in words of time: eigenvalues, half-lives, periods, stability, aliasing."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from koopax._errors import KoopaxError, KoopaxWarning
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import LatentDynamics
from koopax.models.spectrum import discretise


@dataclass(frozen=True, repr=False)
class SpectrumAnalysis:
    """One entry per mode, as float64 or complex128 NumPy arrays. A step is one step of nominal duration."""

    continuous: np.ndarray
    """λ = μ + i ω, per unit of the model's own time."""
    discrete: np.ndarray
    """λ̄ = exp(λ Δt), per step."""
    time_step: float
    """Δt."""
    half_life: np.ndarray
    """Steps until a mode has lost half its amplitude, ln 2 / (−μ Δt); infinite for μ ≥ 0."""
    period: np.ndarray
    """Steps for one turn of the discrete mode, 2π / |arg λ̄|; infinite for a mode that does not turn."""
    aliased: np.ndarray
    """Modes with |ω| Δt > π: they turn by more than half a circle per step, so ω is not what can be observed."""

    importance: np.ndarray | None = None
    """Share of each mode in the predicted motion, summing to 1, where the analysis was given episodes."""

    def __repr__(self) -> str:
        slowest = f"the slowest with a half-life of {self.half_life.max():.3g} steps"
        return f"SpectrumAnalysis({self.discrete.size} modes, {slowest}, {int(self.aliased.sum())} aliased)"

    @property
    def stability_margin(self) -> float:
        """1 − max |λ̄|: positive for a stable model, 0 for one with a rotation, negative for an unstable one."""
        return float(1.0 - np.abs(self.discrete).max())

    @property
    def unstable(self) -> np.ndarray:
        """Modes with μ > 0: they grow."""
        return np.real(self.continuous) > 0

    @property
    def doubling_time(self) -> np.ndarray:
        """Steps until a mode that grows has doubled, ln 2 / (μ Δt); infinite for others."""
        rate = np.real(self.continuous) * self.time_step
        return np.where(rate > 0, np.log(2.0) / np.where(rate > 0, rate, 1.0), np.inf)

    def table(self) -> dict[str, np.ndarray]:
        """Columns by name; the most important modes first where importance is known, else the slowest.

        Modes that grow come before all others.
        """
        order = np.argsort(-(self.half_life if self.importance is None else self.importance), kind="stable")
        order = np.concatenate([order[self.unstable[order]], order[~self.unstable[order]]])
        columns = {
            "decay_per_step": -np.real(self.continuous) * self.time_step,
            "phase_per_step": np.angle(self.discrete),
            "half_life": self.half_life,
            "period": self.period,
            "magnitude": np.abs(self.discrete),
            "aliased": self.aliased,
            "unstable": self.unstable,
            "doubling_time": self.doubling_time,
        }
        if self.importance is not None:
            columns = {"importance": self.importance, **columns}
        return {name: column[order] for name, column in columns.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, modes in the order of `table`; infinite ones become None."""
        columns = {name: _plain(column) for name, column in self.table().items()}
        known = {"time_step": self.time_step, "stability_margin": self.stability_margin}
        return {**known, "unstable": int(self.unstable.sum()), "modes": columns}


def _plain(column: np.ndarray) -> list[Any]:
    if column.dtype == bool:
        return column.tolist()
    return [float(value) if np.isfinite(value) else None for value in column]


def core_spectrum(core: LatentDynamics) -> SpectrumAnalysis:
    """The eigenvalues of a Koopman core and what they mean. Warns where modes are aliased."""
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
        half_life = np.where(decay > 0, np.inf, np.log(2.0) / np.abs(decay * step))
        period = 2 * np.pi / turn
    aliased = np.abs(frequency) * step > np.pi
    if aliased.any():
        warnings.warn(
            f"{int(aliased.sum())} of {aliased.size} modes turn by more than half a circle per step and are aliased: "
            "their ω is not observable; the 'multiscale' spectrum never aliases.",
            KoopaxWarning,
            stacklevel=3,
        )
    return SpectrumAnalysis(decay + 1j * frequency, discrete, step, half_life, period, aliased)
