"""What the networks of all agents are made of; every layer takes any number of batch axes.

An initialiser gives the weight and the bias of a layer: `uniform` for SAC, `orthogonal` and `zero` for TD-MPC.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from koopax._types import Array, Float, PRNGKeyArray

NORM_EPSILON = 1e-5
BATCH_STATISTICS_DECAY = 0.99

Initialiser = Callable[[int, int, PRNGKeyArray], tuple[Array, Array]]


def uniform(inputs: int, outputs: int, key: PRNGKeyArray) -> tuple[Array, Array]:
    """Weight and bias uniform in ±1/√inputs."""
    weight_key, bias_key = jax.random.split(key)
    bound = 1 / math.sqrt(inputs)
    weight = jax.random.uniform(weight_key, (inputs, outputs), minval=-bound, maxval=bound)
    return weight, jax.random.uniform(bias_key, (outputs,), minval=-bound, maxval=bound)


def orthogonal(inputs: int, outputs: int, key: PRNGKeyArray) -> tuple[Array, Array]:
    """An orthogonal weight and no bias."""
    return jax.nn.initializers.orthogonal()(key, (inputs, outputs)), jnp.zeros(outputs)


def zero(inputs: int, outputs: int, key: PRNGKeyArray) -> tuple[Array, Array]:
    """Nothing: the layer begins as the zero function."""
    del key
    return jnp.zeros((inputs, outputs)), jnp.zeros(outputs)


def elu(x: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """x above 0 and eˣ − 1 below. `jax.nn.elu` has the digits of `expm1` near 0, at twice the time on a CPU."""
    return jnp.maximum(x, 0.0) + (jnp.exp(jnp.minimum(x, 0.0)) - 1.0)


class Dense(eqx.Module):
    """x W + b."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, initialiser: Initialiser, *, key: PRNGKeyArray):
        self.weight, self.bias = initialiser(inputs, outputs, key)

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        """The affine map."""
        return x @ self.weight + self.bias


def dense_layers(sizes: Sequence[int], initialisers: Sequence[Initialiser], *, key: PRNGKeyArray) -> tuple[Dense, ...]:
    """Layers of these widths from input to output, each with its initialiser and a key of its own."""
    keys = jax.random.split(key, len(sizes) - 1)
    return tuple(
        Dense(inputs, outputs, initialiser, key=layer_key)
        for inputs, outputs, initialiser, layer_key in zip(sizes[:-1], sizes[1:], initialisers, keys, strict=True)
    )


class LayerNorm(eqx.Module):
    """Every example by its own mean and variance, then a learned scale and offset.

    Equinox has one for a single example; this one takes batches of any shape, as the agents' networks do.
    """

    scale: Float[Array, " width"]
    offset: Float[Array, " width"]

    def __init__(self, width: int):
        self.scale, self.offset = jnp.ones(width), jnp.zeros(width)

    def __call__(self, x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
        """(x − mean) / √(variance + ε) · scale + offset."""
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(centred**2, axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + NORM_EPSILON) * self.scale + self.offset


class NormStatistics(eqx.Module):
    """Running mean and variance of one batch-normalised layer."""

    mean: Float[Array, " width"]
    variance: Float[Array, " width"]


class BatchNorm(eqx.Module):
    """Every unit by its mean and variance over the batch, then a learned scale and offset."""

    scale: Float[Array, " width"]
    offset: Float[Array, " width"]

    def __init__(self, width: int):
        self.scale, self.offset = jnp.ones(width), jnp.zeros(width)

    def initial_statistics(self) -> NormStatistics:
        """Zero mean and unit variance."""
        return NormStatistics(jnp.zeros_like(self.offset), jnp.ones_like(self.scale))

    def __call__(
        self, x: Float[Array, "batch width"], statistics: NormStatistics, training: bool
    ) -> tuple[Float[Array, "batch width"], NormStatistics]:
        """With the batch's own statistics in training, with the running ones otherwise; and those after it."""
        if not training:
            inverse = jax.lax.rsqrt(statistics.variance + NORM_EPSILON) * self.scale
            return (x - statistics.mean) * inverse + self.offset, statistics
        mean = jnp.mean(x, axis=0)
        centred = x - mean
        variance = jnp.mean(centred**2, axis=0)
        now = jax.lax.stop_gradient(NormStatistics(mean, variance))
        moved = moving_average(statistics, now, 1 - BATCH_STATISTICS_DECAY)
        return centred * (jax.lax.rsqrt(variance + NORM_EPSILON) * self.scale) + self.offset, moved


T = TypeVar("T")


def moving_average(old: T, new: T, rate: float | Float[Array, ""]) -> T:
    """(1 − τ) old + τ new, leaf by leaf."""
    return optax.incremental_update(new, old, rate)  # type: ignore  (its types know no modules)


C = TypeVar("C", bound=Callable)


class Ensemble(eqx.Module, Generic[C]):
    """Independent critics Q₁ … Qₙ of the same build, of which the lowest value counts."""

    members: tuple[C, ...]

    def __iter__(self) -> Iterator[C]:
        return iter(self.members)

    def __getitem__(self, index: int) -> C:
        return self.members[index]

    def __call__(
        self,
        observed: Float[Array, "*batch observed"],
        actions: Float[Array, "*batch action"],
        *own: Sequence[Any],
        **options: Any,
    ) -> list[Any]:
        """What every member says of [observed, action]; `own` has further arguments, one for each member."""
        joined = jnp.concatenate([observed, actions], axis=-1)
        return [member(joined, *given, **options) for member, *given in zip(self.members, *own, strict=True)]


def make_ensemble(build: Callable[[PRNGKeyArray], C], keys: Iterable[PRNGKeyArray]) -> Ensemble[C]:
    """One member per key."""
    return Ensemble(tuple(build(key) for key in keys))
