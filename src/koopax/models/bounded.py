"""Smooth maps of the whole real line onto an interval: a parameter that is held within bounds without ever clipping."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from koopax._types import Array

# Rates closer to zero than this, per step, are told apart on an even scale, and others on a log scale.
NEAR_ZERO = 1e-3


def log_bounded(raw: Array, low: float, high: float) -> Array:
    """Onto (low, high), both positive, even on a log scale."""
    return jnp.exp(math.log(low) + math.log(high / low) * jax.nn.sigmoid(raw))


def inverse_log_bounded(value: Array, low: float, high: float) -> Array:
    """The raw value of a number in (low, high)."""
    return inverse_sigmoid(jnp.log(value / low) / math.log(high / low))


def signed_log_bounded(raw: Array, low: float, high: float) -> Array:
    """Onto (low, high) with low < 0 < high: even on a log scale away from zero, and smooth across it.

    s sinh(y), where y is even between the ends, with s = `NEAR_ZERO`.
    """
    ends = math.asinh(low / NEAR_ZERO), math.asinh(high / NEAR_ZERO)
    return NEAR_ZERO * jnp.sinh(ends[0] + (ends[1] - ends[0]) * jax.nn.sigmoid(raw))


def inverse_signed_log_bounded(value: Array, low: float, high: float) -> Array:
    """The raw value of a number in (low, high)."""
    ends = math.asinh(low / NEAR_ZERO), math.asinh(high / NEAR_ZERO)
    return inverse_sigmoid((jnp.arcsinh(value / NEAR_ZERO) - ends[0]) / (ends[1] - ends[0]))


def inverse_sigmoid(fraction: Array | np.ndarray) -> Array:
    """log p − log(1 − p)."""
    return jnp.log(fraction) - jnp.log1p(-fraction)
