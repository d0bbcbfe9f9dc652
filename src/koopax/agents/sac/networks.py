"""The actor and the critics; all functions take batches, because batch normalisation couples them.

The actor is a tanh-squashed Gaussian: u ~ N(m(s), σ(s)²), a = tanh(u) ∈ (−1, 1)ᴬ.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray
from koopax.collection.policies import LOG_STD_RANGE

BATCH_STATISTICS_DECAY = 0.99
NORM_EPSILON = 1e-5


class Dense(eqx.Module):
    """x W + b, with weights and bias uniform in ±1/√inputs."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray):
        weight_key, bias_key = jax.random.split(key)
        bound = 1 / math.sqrt(inputs)
        self.weight = jax.random.uniform(weight_key, (inputs, outputs), minval=-bound, maxval=bound)
        self.bias = jax.random.uniform(bias_key, (outputs,), minval=-bound, maxval=bound)

    def __call__(self, x: Float[Array, "batch inputs"]) -> Float[Array, "batch outputs"]:
        """The affine map."""
        return x @ self.weight + self.bias


class Actor(eqx.Module):
    """The policy network: normalised observations to the mean and log-deviation of u."""

    layers: tuple[Dense, ...]
    head: Dense

    def __init__(self, state_size: int, action_size: int, hidden_sizes: tuple[int, ...], *, key: PRNGKeyArray):
        *keys, head_key = jax.random.split(key, len(hidden_sizes) + 1)
        widths = (state_size, *hidden_sizes)
        self.layers = tuple(Dense(i, o, key=k) for i, o, k in zip(widths, widths[1:], keys, strict=False))
        self.head = Dense(widths[-1], 2 * action_size, key=head_key)

    def __call__(
        self, x: Float[Array, "batch state"]
    ) -> tuple[Float[Array, "batch action"], Float[Array, "batch action"]]:
        """Mean and log-deviation."""
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        mean, raw = jnp.split(self.head(x), 2, axis=-1)
        low, high = LOG_STD_RANGE
        return mean, low + 0.5 * (high - low) * (jnp.tanh(raw) + 1)


def sample_action(
    actor: Actor, x: Float[Array, "batch state"], *, key: PRNGKeyArray
) -> tuple[Float[Array, "batch action"], Float[Array, " batch"]]:
    """A reparameterised action and its log-density.

    log π(a|s) = log N(u; m, σ²) − Σ log(1 − tanh²u), with log(1 − tanh²u) = 2 (log 2 − u − softplus(−2u)).
    """
    mean, log_std = actor(x)
    noise = jax.random.normal(key, mean.shape)
    u = mean + jnp.exp(log_std) * noise
    log_density = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    log_jacobian = 2 * (math.log(2) - u - jax.nn.softplus(-2 * u))
    return jnp.tanh(u), jnp.sum(log_density - log_jacobian, axis=-1)


class NormStatistics(eqx.Module):
    """Running mean and variance of one batch-normalised layer."""

    mean: Float[Array, " width"]
    variance: Float[Array, " width"]


class Norm(eqx.Module):
    """Scale and offset of a normalised layer; what they are applied to depends on the kind."""

    scale: Float[Array, " width"]
    offset: Float[Array, " width"]

    def __init__(self, width: int):
        self.scale = jnp.ones(width)
        self.offset = jnp.zeros(width)

    def layer(self, x: Float[Array, "batch width"]) -> Float[Array, "batch width"]:
        """Every example by its own mean and variance."""
        mean = jnp.mean(x, axis=-1, keepdims=True)
        centred = x - mean
        variance = jnp.mean(centred**2, axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + NORM_EPSILON) * self.scale + self.offset

    def batch(
        self, x: Float[Array, "batch width"], statistics: NormStatistics, training: bool
    ) -> tuple[Float[Array, "batch width"], NormStatistics]:
        """Every unit by its mean and variance in the batch (training) or by the running ones."""
        if not training:
            inverse = jax.lax.rsqrt(statistics.variance + NORM_EPSILON) * self.scale
            return (x - statistics.mean) * inverse + self.offset, statistics
        mean = jnp.mean(x, axis=0)
        centred = x - mean
        variance = jnp.mean(centred**2, axis=0)
        new = jax.tree.map(
            lambda old, now: BATCH_STATISTICS_DECAY * old + (1 - BATCH_STATISTICS_DECAY) * jax.lax.stop_gradient(now),
            statistics,
            NormStatistics(mean, variance),
        )
        return centred * (jax.lax.rsqrt(variance + NORM_EPSILON) * self.scale) + self.offset, new


class Critic(eqx.Module):
    """One Q(s, a); two of them make a critic pair.

    With `norm="layer"`, every hidden layer is Dense → LayerNorm → ReLU; with `norm="batch"`, the input and
    every activation are batch-normalised; with `norm="none"`, neither.
    """

    layers: tuple[Dense, ...]
    head: Dense
    norms: tuple[Norm, ...]
    norm: str = eqx.field(static=True)

    def __init__(self, inputs: int, hidden_sizes: tuple[int, ...], *, norm: str, key: PRNGKeyArray):
        *keys, head_key = jax.random.split(key, len(hidden_sizes) + 1)
        widths = (inputs, *hidden_sizes)
        self.layers = tuple(Dense(i, o, key=k) for i, o, k in zip(widths, widths[1:], keys, strict=False))
        self.head = Dense(widths[-1], 1, key=head_key)
        normed = {"none": (), "layer": widths[1:], "batch": widths}[norm]
        self.norms = tuple(Norm(width) for width in normed)
        self.norm = norm

    def initial_statistics(self) -> tuple[NormStatistics, ...]:
        """Zero mean and unit variance for every batch-normalised layer; empty for the other kinds."""
        if self.norm != "batch":
            return ()
        return tuple(NormStatistics(jnp.zeros_like(n.offset), jnp.ones_like(n.scale)) for n in self.norms)

    def __call__(
        self, x: Float[Array, "batch inputs"], statistics: tuple[NormStatistics, ...], training: bool
    ) -> tuple[Float[Array, " batch"], tuple[NormStatistics, ...]]:
        """Values of a batch and the statistics after it; they only change when training with `norm="batch"`."""
        if self.norm == "batch":
            return self._batch_normalised(x, statistics, training)
        for i, layer in enumerate(self.layers):
            x = layer(x)
            x = jax.nn.relu(self.norms[i].layer(x) if self.norms else x)
        return self.head(x)[:, 0], statistics

    def _batch_normalised(self, x, statistics, training):
        x, first = self.norms[0].batch(x, statistics[0], training)
        new = [first]
        for layer, norm, old in zip(self.layers, self.norms[1:], statistics[1:], strict=True):
            x, updated = norm.batch(jax.nn.relu(layer(x)), old, training)
            new.append(updated)
        return self.head(x)[:, 0], tuple(new)


Critics = tuple[Critic, Critic]
Statistics = tuple[tuple[NormStatistics, ...], tuple[NormStatistics, ...]]


def make_critics(state_size: int, action_size: int, hidden_sizes: tuple[int, ...], *, norm: str, key) -> Critics:
    """Two independent critics."""
    first, second = jax.random.split(key)
    inputs = state_size + action_size
    return (
        Critic(inputs, hidden_sizes, norm=norm, key=first),
        Critic(inputs, hidden_sizes, norm=norm, key=second),
    )


def evaluate_critics(
    critics: Critics,
    statistics: Statistics,
    observations: Float[Array, "batch state"],
    actions: Float[Array, "batch action"],
    training: bool,
) -> tuple[Float[Array, "2 batch"], Statistics]:
    """Both critics' values, and the batch statistics after the pass."""
    x = jnp.concatenate([observations, actions], axis=-1)
    (q1, s1), (q2, s2) = (c(x, s, training) for c, s in zip(critics, statistics, strict=True))
    return jnp.stack([q1, q2]), (s1, s2)
