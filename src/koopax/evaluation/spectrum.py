"""What a Koopman model has learned about time: eigenvalues, half-lives, periods, stability, aliasing."""

import warnings
from dataclasses import dataclass

import numpy as np

from koopax._errors import KoopaxError, KoopaxWarning
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

    @property
    def stability_margin(self) -> float:
        """1 − max |λ̄|: positive for a strictly stable model, 0 for one with a rotation."""
        return float(1.0 - np.abs(self.discrete).max())

    def table(self) -> dict[str, np.ndarray]:
        """Columns by name, slowest modes first."""
        order = np.argsort(-self.half_life, kind="stable")
        columns = {
            "decay_per_step": -self.continuous.real * self.time_step,
            "phase_per_step": np.angle(self.discrete),
            "half_life": self.half_life,
            "period": self.period,
            "magnitude": np.abs(self.discrete),
            "aliased": self.aliased,
        }
        return {name: column[order] for name, column in columns.items()}


def analyse_spectrum(model: DynamicsModel | LatentDynamics) -> SpectrumAnalysis:
    """The spectrum of a model with a Koopman core. Warns where modes are aliased."""
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
        half_life = np.log(2.0) / (-decay * step)
        period = 2 * np.pi / turn
    aliased = np.abs(frequency) * step > np.pi
    if aliased.any():
        warnings.warn(
            f"{int(aliased.sum())} of {aliased.size} modes turn by more than half a circle per step and are aliased: "
            "their ω is not observable; the 'multiscale' spectrum never aliases.",
            KoopaxWarning,
            stacklevel=2,
        )
    return SpectrumAnalysis(decay + 1j * frequency, discrete, step, half_life, period, aliased)
