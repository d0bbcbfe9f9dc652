"""How the eigenvalues λ_j = μ_j + i ω_j of the Koopman operator are parameterised, initialised and discretised.

A spectrum owns unconstrained real parameters and maps them onto rates with μ_j ≤ 0, whatever value they take: the
maps are smooth and bounded, so no gradient dies at a boundary and no parameter value overflows. By theorem 3.1 the
gradient of a loss k steps ahead is scaled by exp(k Δt μ_j) in mode j; the spectrum therefore decides what a model
can remember and what it can learn from.

An unstable plant, such as a pendulum about its upright point, has modes that grow. `multiscale` takes `growth` for a
bound μ_max > 0 on μ: then a gradient is scaled by at most exp(k μ_max), and training holds k μ_max within bounds (see
`koopax.training.growth`).

| name                      | μ                                   | ω                                 | Δt        |
|---------------------------|-------------------------------------|-----------------------------------|-----------|
| `paper`                   | −0.2, fixed                         | jπ, learnable                     | learnable |
| `paper-random`            | −0.2, fixed                         | uniform in [0, 1), learnable      | learnable |
| `paper-learnable`         | learnable in (−0.3, −0.1)           | jπ, learnable                     | learnable |
| `paper-learnable-random`  | learnable in (−0.3, −0.1)           | uniform in [0, 1), learnable      | learnable |
| `unitary`                 | 0, fixed: blocks of rotations       | learnable in (0, π), evenly spread| 1         |
| `multiscale`              | learnable, half-lives on every scale| learnable in (0, π), evenly spread| 1         |
| `multiscale` with `growth`| the same, in (−2, growth)           | the same                          | 1         |

The paper's spectra take `decay` for another fixed μ = −decay, and `frequency_scale` for α in ω_j = αjπ.
"""

import abc
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError, unknown_name
from koopax._types import Array, Float, PRNGKeyArray
from koopax.models.bounded import (
    inverse_log_bounded,
    inverse_sigmoid,
    inverse_signed_log_bounded,
    log_bounded,
    signed_log_bounded,
)
from koopax.models.recurrence import Pair, multiply

# Bounds of smooth maps, wide enough that training does not feel them.
TIME_STEP_RANGE = (1e-4, 1.0)
PAPER_DECAY_RANGE = (0.1, 0.3)
MULTISCALE_DECAY_RANGE = (1e-5, 2.0)
# Where `multiscale` starts: half-lives between 1.4 and 693 steps.
MULTISCALE_DECAY_START = (1e-3, 0.5)
# The share of π by which a phase keeps away from 0 and π, where its gradient would vanish.
NEAREST_TO_REAL = 1e-6
# A rotation never forgets, so the inputs of `unitary` are scaled to add up to unit variance over this many steps.
UNITARY_MEMORY = 100
# A mode that grows faster than this, e-fold in two steps, is no model of anything that is sampled fast enough.
MOST_GROWTH = 0.5


class Spectrum(eqx.Module):
    """Eigenvalues with Re λ ≤ `growth` and the scale at which inputs enter each mode."""

    @property
    def growth(self) -> float:
        """μ_max: the bound on μ, per step; 0 for a spectrum that is stable by construction."""
        return 0.0

    @abc.abstractmethod
    def rates(self) -> tuple[Float[Array, " modes"], Float[Array, " modes"]]:
        """μ ≤ μ_max and ω, per unit of continuous time."""

    @abc.abstractmethod
    def time_step(self) -> Float[Array, ""]:
        """Δt: the continuous time that one step of nominal duration takes."""

    @abc.abstractmethod
    def input_scale(self) -> Float[Array, " modes"]:
        """A positive factor on the inputs of each mode."""


class Discrete(NamedTuple):
    """x_{t+1} = transition · x_t + gain · (L u_t), complex pairs of shape `[modes]` or `[time, modes]`."""

    transition: Pair
    gain: Pair


class Modulation(NamedTuple):
    """How far eigenvalues are from those of the spectrum at each step, `[time, modes]`: K(u), or λ(x) of a start."""

    decay: Float[Array, "time modes"]
    """A positive factor on μ, so that it stays ≤ 0."""
    phase: Float[Array, "time modes"]
    """Added to the angle that a mode turns by in a step of nominal duration."""


def discretise(
    spectrum: Spectrum, durations: Float[Array, " time"] | None = None, modulation: Modulation | None = None
) -> Discrete:
    """Zero-order hold:  λ̄ = exp(λ Δt d),  gain = scale · (λ̄ − 1) / λ,  with d = 1 where no durations are given."""
    decay, frequency = spectrum.rates()
    step = spectrum.time_step()
    elapsed = step if durations is None else step * durations[:, None]
    if modulation is not None:
        decay, frequency = decay * modulation.decay, frequency + modulation.phase / step
    real, imag = decay * elapsed, frequency * elapsed
    magnitude = jnp.exp(real)
    transition = magnitude * jnp.cos(imag), magnitude * jnp.sin(imag)
    mean = held_exponential_mean((real, imag))
    scale = spectrum.input_scale() * elapsed
    return Discrete(transition, (scale * mean[0], scale * mean[1]))


def held_exponential_mean(z: Pair) -> Pair:
    """(eᶻ − 1) / z, exact in value and gradient everywhere, including z = 0 where it is 1 with slope 1/2.

    Close to zero the quotient's gradient would lose half its digits to cancellation, so a Taylor polynomial takes over
    there; each branch sees a harmless argument where the other one is used, so that no NaN leaks through `where`.
    """
    real, imag = z
    near = real**2 + imag**2 < 0.1
    small = jnp.where(near, real, 0.0), jnp.where(near, imag, 0.0)
    large = jnp.where(near, 1.0, real), jnp.where(near, 0.0, imag)

    series = jnp.ones_like(real), jnp.zeros_like(imag)
    for order in range(14, 1, -1):
        term = multiply(small, series)
        series = 1.0 + term[0] / order, term[1] / order

    magnitude = jnp.exp(large[0])
    above = magnitude * jnp.cos(large[1]) - 1.0, magnitude * jnp.sin(large[1])
    # Divide by |z|² one factor at a time: its square overflows for rates that are themselves representable.
    size = jnp.hypot(*large)
    quotient = multiply((above[0] / size, above[1] / size), (large[0] / size, -large[1] / size))
    return jnp.where(near, series[0], quotient[0]), jnp.where(near, series[1], quotient[1])


class PaperSpectrum(Spectrum):
    """The paper's spectrum: a common decay, one learnable frequency per mode and one learnable time step."""

    raw_decay: Float[Array, " free"] | None
    frequency: Float[Array, " free"]
    raw_time_step: Float[Array, ""]
    decay: float = eqx.field(static=True)
    mirrored: bool = eqx.field(static=True)

    def __init__(
        self,
        modes: int,
        *,
        learn_decay: bool = False,
        random_frequencies: bool = False,
        decay: float = 0.2,
        frequency_scale: float = 1.0,
        mirrored: bool = False,
        key: PRNGKeyArray,
    ):
        """Begin at μ_j = −`decay` and ω_j = αjπ with α = `frequency_scale`, or, where random, uniform in [0, α).

        `mirrored` ties the second half of the modes to the conjugates of the first, as in the paper's listing.
        """
        if mirrored and modes % 2:
            raise KoopaxError(
                f"a mirrored spectrum pairs its modes, but there are {modes}: use a latent_size that 4 divides."
            )
        if decay < 0:
            raise KoopaxError(f"decay {decay} would let latents grow: use a value of 0 or more.")
        if not frequency_scale > 0:
            raise KoopaxError(f"frequency_scale is {frequency_scale}: use a positive α of ω = αjπ.")
        free = modes // 2 if mirrored else modes
        step_key, frequency_key = jax.random.split(key)
        low, high = math.log(1e-3), math.log(1e-1)
        self.raw_time_step = inverse_log_bounded(
            jnp.exp(jax.random.uniform(step_key, (), minval=low, maxval=high)), *TIME_STEP_RANGE
        )
        increasing = jnp.pi * jnp.arange(free, dtype=float)
        start = jax.random.uniform(frequency_key, (free,)) if random_frequencies else increasing
        self.frequency = frequency_scale * start
        self.raw_decay = jnp.zeros(free) if learn_decay else None
        self.decay = decay
        self.mirrored = mirrored

    def rates(self) -> tuple[Float[Array, " modes"], Float[Array, " modes"]]:
        """μ = −decay, or −(0.1 … 0.3) where it is learned; ω as it stands."""
        if self.raw_decay is None:
            decay = jnp.full_like(self.frequency, self.decay)
        else:
            low, high = PAPER_DECAY_RANGE
            decay = low + (high - low) * jax.nn.sigmoid(self.raw_decay)
        frequency = self.frequency
        if self.mirrored:
            decay, frequency = jnp.concatenate([decay, decay]), jnp.concatenate([frequency, -frequency])
        return -decay, frequency

    def time_step(self) -> Float[Array, ""]:
        """The learnable Δt, initialised log-uniformly in [1e-3, 1e-1]."""
        return log_bounded(self.raw_time_step, *TIME_STEP_RANGE)

    def input_scale(self) -> Float[Array, " modes"]:
        """One: the zero-order hold alone scales the inputs."""
        return jnp.ones_like(self.rates()[0])


class UnitarySpectrum(Spectrum):
    """μ = 0: every mode is a rotation, gradients neither vanish nor explode, and nothing is ever forgotten."""

    raw_phase: Float[Array, " modes"]

    def __init__(self, modes: int, *, key: PRNGKeyArray):
        del key  # the phases are spread evenly
        self.raw_phase = _spread_phases(modes)

    def rates(self) -> tuple[Float[Array, " modes"], Float[Array, " modes"]]:
        """μ = 0 and a phase per step in (0, π)."""
        return jnp.zeros_like(self.raw_phase), jnp.pi * jax.nn.sigmoid(self.raw_phase)

    def time_step(self) -> Float[Array, ""]:
        """One: rates are per step."""
        return jnp.ones((), self.raw_phase.dtype)

    def input_scale(self) -> Float[Array, " modes"]:
        """Unit variance after `UNITARY_MEMORY` independent inputs of unit variance."""
        return _inverse_gain(self) / math.sqrt(UNITARY_MEMORY)


class MultiscaleSpectrum(Spectrum):
    """Decays spread over every time scale, phases over every frequency that one step can show.

    Inputs are scaled by sqrt(1 − |λ̄|²), so that each mode has unit stationary variance under inputs of unit variance:
    slow modes are not drowned and fast ones not silent, whatever their decay becomes. Where modes may grow, it is unit
    variance after `UNITARY_MEMORY` steps, and a growing mode has the scale of a rotation.
    """

    raw_decay: Float[Array, " modes"]
    raw_phase: Float[Array, " modes"]
    bound: float = eqx.field(static=True)

    def __init__(self, modes: int, *, highest_phase: float = math.pi, growth: float = 0.0, key: PRNGKeyArray):
        """At the start all modes decay, and phases are spread over (0, `highest_phase`), which is at most π.

        With `growth` above 0 a mode may grow in training, by at most that rate per step: |λ̄| < exp(growth).
        """
        if not 0 < highest_phase <= math.pi:
            raise KoopaxError(f"highest_phase is {highest_phase}: use a phase per step above 0 and up to π.")
        if not 0 <= growth <= MOST_GROWTH:
            raise KoopaxError(
                f"growth is {growth}: use 0 for a stable model, or a rate per step up to {MOST_GROWTH}, such as 0.1."
            )
        low, high = (math.log(bound) for bound in MULTISCALE_DECAY_START)
        # Stratified, then shuffled: evenly covered scales that are not tied to the phases.
        strata = (jnp.arange(modes) + 0.5) / modes
        decay = jnp.exp(low + (high - low) * jax.random.permutation(key, strata))
        self.bound = float(growth)
        self.raw_decay = self._raw_decay(decay)
        self.raw_phase = _spread_phases(modes, highest_phase)

    @property
    def growth(self) -> float:
        """As it was given."""
        return self.bound

    def rates(self) -> tuple[Float[Array, " modes"], Float[Array, " modes"]]:
        """−μ in (1e-5, 2), or μ in (−2, growth) where that is positive, and a phase in (0, π), all per step."""
        low, high = MULTISCALE_DECAY_RANGE
        growing = self.bound > 0
        rate = (
            signed_log_bounded(self.raw_decay, -high, self.bound)
            if growing
            else -log_bounded(self.raw_decay, low, high)
        )
        return rate, jnp.pi * jax.nn.sigmoid(self.raw_phase)

    def with_growth(self, growth: float) -> "MultiscaleSpectrum":
        """The spectrum with the same modes, which may grow by up to that rate."""
        modes = self.raw_decay.shape[0]
        bounded = MultiscaleSpectrum(modes, growth=growth, key=jax.random.key(0))
        raw = (bounded._raw_decay(-self.rates()[0]), self.raw_phase)
        return eqx.tree_at(lambda own: (own.raw_decay, own.raw_phase), bounded, raw)

    def with_eigenvalues(self, discrete: np.ndarray) -> "MultiscaleSpectrum":
        """The spectrum with its first modes at these λ̄ (complex, Im ≥ 0), or at the nearest that it can express."""
        low, high = MULTISCALE_DECAY_RANGE
        slowest = -self.bound * (1 - 1e-3) if self.bound > 0 else low * (1 + 1e-3)
        decay = np.clip(-np.log(np.maximum(np.abs(discrete), 1e-30)), slowest, high * (1 - 1e-3))
        fraction = np.clip(np.angle(discrete) / np.pi, NEAREST_TO_REAL, 1 - NEAREST_TO_REAL)
        return eqx.tree_at(
            lambda own: (own.raw_decay, own.raw_phase),
            self,
            (
                self.raw_decay.at[: len(discrete)].set(self._raw_decay(jnp.asarray(decay))),
                self.raw_phase.at[: len(discrete)].set(np.log(fraction) - np.log1p(-fraction)),
            ),
        )

    def _raw_decay(self, decay: Float[Array, " modes"]) -> Float[Array, " modes"]:
        """The parameters of −μ."""
        low, high = MULTISCALE_DECAY_RANGE
        if self.bound > 0:
            return inverse_signed_log_bounded(-decay, -high, self.bound)
        return inverse_log_bounded(decay, low, high)

    def time_step(self) -> Float[Array, ""]:
        """One: rates are per step."""
        return jnp.ones((), self.raw_phase.dtype)

    def input_scale(self) -> Float[Array, " modes"]:
        """sqrt(1 − |λ̄|²) over the gain of the zero-order hold; of a memory of some steps where modes may grow."""
        rate, _ = self.rates()
        if self.bound == 0:
            return jnp.sqrt(-jnp.expm1(2 * rate)) * _inverse_gain(self)
        # Σ_{k<T} |λ̄|²ᵏ = T m(2μT) / m(2μ), where m(z) = (eᶻ − 1) / z is the mean of an exponential.
        fading = jnp.minimum(2 * rate, 0.0)
        once = held_exponential_mean((fading, jnp.zeros_like(rate)))[0]
        many = held_exponential_mean((UNITARY_MEMORY * fading, jnp.zeros_like(rate)))[0]
        return jnp.sqrt(once / (UNITARY_MEMORY * many)) * _inverse_gain(self)


def _inverse_gain(spectrum: Spectrum) -> Float[Array, " modes"]:
    decay, frequency = spectrum.rates()
    return 1.0 / jnp.hypot(*held_exponential_mean((decay, frequency)))


def _spread_phases(modes: int, highest: float = math.pi) -> Array:
    """Raw phases whose sigmoids are the midpoints of `modes` equal parts of (0, highest / π)."""
    fraction = (np.arange(modes) + 0.5) / modes * (highest / math.pi)
    return inverse_sigmoid(jnp.asarray(fraction, dtype=float))


SPECTRA: dict[str, Callable[..., Spectrum]] = {
    "paper": PaperSpectrum,
    "paper-random": partial(PaperSpectrum, random_frequencies=True),
    "paper-learnable": partial(PaperSpectrum, learn_decay=True),
    "paper-learnable-random": partial(PaperSpectrum, learn_decay=True, random_frequencies=True),
    "unitary": UnitarySpectrum,
    "multiscale": MultiscaleSpectrum,
}


def make_spectrum(name: str, modes: int, *, key: PRNGKeyArray, **options) -> Spectrum:
    """The spectrum of that name, initialised from `key`."""
    if name not in SPECTRA:
        raise unknown_name("spectrum", name, list(SPECTRA))
    try:
        return SPECTRA[name](modes, key=key, **options)
    except TypeError as error:
        raise KoopaxError(f"spectrum {name!r} does not take these options: {sorted(options)} ({error}).") from error
