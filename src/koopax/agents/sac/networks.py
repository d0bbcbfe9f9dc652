"""The actor and the critics; all functions take batches, because batch normalisation couples them.

The actor is a tanh-squashed Gaussian: u ~ N(m(s), σ(s)²), a = tanh(u) ∈ (−1, 1)ᴬ.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray
from koopax.agents.networks import (
    BatchNorm,
    Dense,
    Ensemble,
    LayerNorm,
    NormStatistics,
    dense_layers,
    make_ensemble,
    uniform,
)
from koopax.collection.policies import LOG_STD_RANGE


class Actor(eqx.Module):
    """The policy network: normalised observations to the mean and log-deviation of u."""

    layers: tuple[Dense, ...]
    head: Dense

    def __init__(self, state_size: int, action_size: int, hidden_sizes: tuple[int, ...], *, key: PRNGKeyArray):
        sizes = (state_size, *hidden_sizes, 2 * action_size)
        *layers, self.head = dense_layers(sizes, [uniform] * (len(sizes) - 1), key=key)
        self.layers = tuple(layers)

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


class Critic(eqx.Module):
    """One Q(s, a); two of them make a critic pair.

    With `norm="layer"`, every hidden layer is Dense → LayerNorm → ReLU; with `norm="batch"`, the input and
    every activation are batch-normalised; with `norm="none"`, neither.
    """

    layers: tuple[Dense, ...]
    head: Dense
    norms: tuple[LayerNorm | BatchNorm, ...]
    norm: str = eqx.field(static=True)

    def __init__(self, inputs: int, hidden_sizes: tuple[int, ...], *, norm: str, key: PRNGKeyArray):
        sizes = (inputs, *hidden_sizes, 1)
        *layers, self.head = dense_layers(sizes, [uniform] * (len(sizes) - 1), key=key)
        self.layers = tuple(layers)
        self.norms = {
            "none": (),
            "layer": tuple(LayerNorm(width) for width in hidden_sizes),
            "batch": tuple(BatchNorm(width) for width in (inputs, *hidden_sizes)),
        }[norm]
        self.norm = norm

    def initial_statistics(self) -> tuple[NormStatistics, ...]:
        """Zero mean and unit variance for every batch-normalised layer; empty for the other kinds."""
        return tuple(norm.initial_statistics() for norm in self.norms if isinstance(norm, BatchNorm))

    def __call__(
        self, x: Float[Array, "batch inputs"], statistics: tuple[NormStatistics, ...], training: bool
    ) -> tuple[Float[Array, " batch"], tuple[NormStatistics, ...]]:
        """Values of a batch and the statistics after it; they only change when training with `norm="batch"`."""
        if self.norm == "batch":
            return self._batch_normalised(x, statistics, training)
        for i, layer in enumerate(self.layers):
            x = layer(x)
            x = jax.nn.relu(self.norms[i](x) if self.norms else x)  # type: ignore[call-arg]  (layer norms)
        return self.head(x)[:, 0], statistics

    def _batch_normalised(self, x, statistics, training):
        x, first = self.norms[0](x, statistics[0], training)  # type: ignore[call-arg]  (batch norms)
        new = [first]
        for layer, norm, old in zip(self.layers, self.norms[1:], statistics[1:], strict=True):
            x, updated = norm(jax.nn.relu(layer(x)), old, training)  # type: ignore[call-arg]
            new.append(updated)
        return self.head(x)[:, 0], tuple(new)


Critics = Ensemble[Critic]
Statistics = tuple[tuple[NormStatistics, ...], ...]


def make_critics(state_size: int, action_size: int, hidden_sizes: tuple[int, ...], *, norm: str, key) -> Critics:
    """Two independent critics."""
    return make_ensemble(
        lambda key: Critic(state_size + action_size, hidden_sizes, norm=norm, key=key), list(jax.random.split(key))
    )


def evaluate_critics(
    critics: Critics,
    statistics: Statistics,
    observations: Float[Array, "batch state"],
    actions: Float[Array, "batch action"],
    training: bool,
) -> tuple[Float[Array, "2 batch"], Statistics]:
    """Both critics' values, and the batch statistics after the pass."""
    values, after = zip(*critics(observations, actions, statistics, training=training), strict=True)
    return jnp.stack(values), after
