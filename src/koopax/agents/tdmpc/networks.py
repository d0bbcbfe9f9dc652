"""The networks of TD-MPC; they take any number of batch axes, so that all steps of all windows are one product.

x_t = h(o_t)          encoder            r̂_t = R(x_t, a_t)       reward
x_{t+1} = d(x_t, a_t) dynamics core      Q₁, Q₂(x_t, a_t)        values,    π(x_t)  policy

Four options go beyond TD-MPC. A network may read off a latent what values, policy and the consistency loss see of it,
z_t = D(x_t): then only x has to be linear, and z may be what values need. The reward reads x itself, so that a plan
needs z where it is valued and nowhere else. What is read may be normalised; the core moves latents as they are, so that
a linear one stays linear. And a rollout may be refreshed after every k steps: from what the core predicts there, a
network makes a new context, or all of the latent anew, and the core goes on from that. A head V(x) may learn what both
Qs say of the policy's action: one small network in place of three values the ends of plans.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import KoopaxError
from koopax._types import Array, Float, PRNGKeyArray
from koopax.agents.networks import (
    NORM_EPSILON,
    Dense,
    Ensemble,
    LayerNorm,
    dense_layers,
    elu,
    make_ensemble,
    orthogonal,
    zero,
)
from koopax.agents.tdmpc.config import TDMPCConfig
from koopax.models.latent import LatentDynamics, make_core

NOISE_LIMIT = 0.3
SIMPLEX = 8
"""Components of each simplex of a latent, as in TD-MPC2."""


class Network(eqx.Module):
    """Linear layers with ELU between them; with `normalised`, LayerNorm and tanh follow the first one instead."""

    layers: tuple[Dense, ...]
    norm: LayerNorm | None

    def __init__(
        self, sizes: tuple[int, ...], *, normalised: bool = False, zero_output: bool = False, key: PRNGKeyArray
    ):
        """`sizes` are the widths from input to output; with `zero_output` the network starts as the zero function."""
        initialisers = [orthogonal] * (len(sizes) - 2) + [zero if zero_output else orthogonal]
        self.layers = dense_layers(sizes, initialisers, key=key)
        self.norm = LayerNorm(sizes[1]) if normalised else None

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        """The network's output."""
        for i, layer in enumerate(self.layers[:-1]):
            x = layer(x)
            x = jnp.tanh(self.norm(x)) if i == 0 and self.norm is not None else elu(x)
        return self.layers[-1](x)


Critics = Ensemble[Network]


class WorldModel(eqx.Module):
    """What the model's optimiser changes: encoder, dynamics, reward and all Qs."""

    encoder: Network
    core: LatentDynamics
    reader: Network | None
    reward: Network
    critics: Critics
    value: Network | None
    refresher: Network | None
    latent_norm: str = eqx.field(static=True)
    latent_bound: float | None = eqx.field(static=True)
    refresh_every: int | None = eqx.field(static=True)
    refresh: str = eqx.field(static=True)

    def __init__(self, config: TDMPCConfig, state_size: int, action_size: int, *, key: PRNGKeyArray):
        encoder_key, core_key, reward_key, *critic_keys = jax.random.split(key, 3 + config.critics)
        options = config.all_core_options
        self.core = make_core(config.dynamics, config.latent_size, action_size, key=core_key, **options)
        self.encoder = Network((state_size, *config.encoder_hidden, self.core.latent_size), key=encoder_key)
        predicted = self.core.predicted_size
        self.reader = None
        if config.reader is not None:
            self.reader = Network((predicted, *config.reader), key=jax.random.fold_in(key, 2))
        self.reward = Network((predicted + action_size, *config.reward_hidden, 1), zero_output=True, key=reward_key)
        sizes = (read_size(config, self.core) + action_size, *config.hidden, 1)
        self.critics = make_ensemble(
            lambda key: Network(sizes, normalised=True, zero_output=True, key=key), critic_keys
        )
        self.value = None
        if config.value_head is not None:
            sizes = (read_size(config, self.core), *config.value_head, 1)
            self.value = Network(sizes, normalised=True, zero_output=True, key=jax.random.fold_in(key, 3))
        self.latent_norm = checked_norm(config.latent_norm, read_size(config, self.core))
        self.latent_bound = config.latent_bound
        self.refresh_every, self.refresh = config.refresh_every, config.refresh
        self.refresher = None
        if config.refresh_every is not None:
            made = self.core.latent_size - (self.core.predicted_size if config.refresh == "context" else 0)
            if made == 0:
                raise KoopaxError("the core has no context to refresh: give it a context_size, or refresh the latent.")
            sizes = (self.core.predicted_size, *config.encoder_hidden, made)
            self.refresher = Network(sizes, zero_output=config.refresh == "latent", key=jax.random.fold_in(key, 1))

    def unroll(
        self, start: Float[Array, "batch latent"], actions: Float[Array, "time batch action"]
    ) -> Float[Array, "time+1 batch latent"]:
        """x_0 … x_T of every window; a linear core computes all of them at once, or all between two refreshments."""
        every = self.refresh_every or actions.shape[0]
        parts = [start[None]]
        for first in range(0, actions.shape[0], every):
            segment = actions[first : first + every]
            moved = jax.vmap(self.core.rollout, in_axes=(0, 1), out_axes=1)(parts[-1][-1], segment)
            parts.append(self.refreshed_end(moved))
        return jnp.concatenate(parts)

    def refreshed_end(self, moved: Float[Array, "time *batch latent"]) -> Float[Array, "time *batch latent"]:
        """A segment of a rollout, of which the last latent is refreshed if it has as many steps as go without that."""
        if self.refresher is None or len(moved) != self.refresh_every:
            return moved
        return jnp.concatenate([moved[:-1], self.refreshed(moved[-1:])])

    def refreshed(self, latents: Float[Array, "*batch latent"]) -> Float[Array, "*batch latent"]:
        """Latents with a new context, or x + F(x) as a whole."""
        if self.refresher is None:
            return latents
        made = self.refresher(self.predicted(latents))
        if self.refresh == "latent":
            return latents + made
        return jnp.concatenate([latents[..., : self.core.predicted_size], made], axis=-1)

    def features(self, latents: Float[Array, "*batch latent"]) -> Float[Array, "*batch feature"]:
        """What values, policy and the consistency loss see of latents, normalised if it is to be."""
        if self.reader is None:
            return self.predicted(latents)
        return self._normalised(self.reader(self.predicted(latents)))

    def predicted(self, latents: Float[Array, "*batch latent"]) -> Float[Array, "*batch predicted"]:
        """What the reward and a refreshment see of latents: what the core predicts, normalised if nothing else is."""
        seen = latents[..., : self.core.predicted_size]
        return self._normalised(seen) if self.reader is None else seen

    def _normalised(self, latents: Float[Array, "*batch feature"]) -> Float[Array, "*batch feature"]:
        seen = normalise(latents, self.latent_norm)
        return seen if self.latent_bound is None else bounded(seen, self.latent_bound)


def normalise(latents: Float[Array, "*batch feature"], kind: str) -> Float[Array, "*batch feature"]:
    """Latents as they are ("none"), by their own mean and variance ("layer"), or as points of simplices ("simplex").

    The last is SimNorm of TD-MPC2: a softmax over each group of 8 components.
    """
    if kind == "layer":
        return jax.nn.standardize(latents, epsilon=NORM_EPSILON)
    if kind == "simplex":
        groups = latents.reshape(*latents.shape[:-1], -1, SIMPLEX)
        return jax.nn.softmax(groups, axis=-1).reshape(latents.shape)
    return latents


def bounded(latents: Float[Array, "*batch feature"], bound: float) -> Float[Array, "*batch feature"]:
    """z / √(1 + |z|²/b²), where |z|² is the mean square: small latents stay what they are, none is larger than b."""
    return latents / jnp.sqrt(1 + jnp.mean(latents**2, axis=-1, keepdims=True) / bound**2)


def checked_norm(kind: str, width: int) -> str:
    """The kind of normalisation; raises if latents of this width can't have it."""
    if kind == "simplex" and width % SIMPLEX:
        raise KoopaxError(f"a latent of {width} is no number of simplices of {SIMPLEX}: use a multiple of {SIMPLEX}.")
    return kind


class Targets(NamedTuple):
    """Moving averages of what the targets of the losses come from."""

    encoder: Network
    reader: Network | None
    critics: Critics

    @classmethod
    def of(cls, model: WorldModel) -> "Targets":
        """The present ones."""
        return cls(model.encoder, model.reader, model.critics)

    def features(self, model: WorldModel, observations: Float[Array, "*batch state"]) -> Float[Array, "*batch feature"]:
        """What is to be seen of the latents of observations: h⁻(o), or D⁻(h⁻(o))."""
        averaged = eqx.tree_at(lambda own: own.reader, model, self.reader, is_leaf=lambda leaf: leaf is None)
        return averaged.features(self.encoder(observations))


def read_size(config: TDMPCConfig, core: LatentDynamics) -> int:
    """Width of what values, policy and the consistency loss see of a latent."""
    return core.predicted_size if config.reader is None else config.reader[-1]


def make_policy(config: TDMPCConfig, core: LatentDynamics, *, key: PRNGKeyArray) -> Network:
    """π before its tanh, for a model with this core."""
    return Network((read_size(config, core), *config.hidden, core.action_size), key=key)


def act(
    policy: Network, features: Float[Array, "*batch feature"], std: float, *, key: PRNGKeyArray
) -> Float[Array, "*batch action"]:
    """tanh π(x) + ε within ±1, where ε ~ N(0, std²) is clipped at ±0.3."""
    mean = jnp.tanh(policy(features))
    noise = jnp.clip(std * jax.random.normal(key, mean.shape), -NOISE_LIMIT, NOISE_LIMIT)
    return jnp.clip(mean + noise, -1, 1)


def predict_reward(
    model: WorldModel, latents: Float[Array, "*batch latent"], actions: Float[Array, "*batch action"]
) -> Float[Array, "*batch"]:
    """R(x, a)."""
    return model.reward(jnp.concatenate([model.predicted(latents), actions], axis=-1))[..., 0]


def evaluate_critics(
    critics: Critics, features: Float[Array, "*batch feature"], actions: Float[Array, "*batch action"]
) -> Float[Array, "critic *batch"]:
    """The values of all members."""
    return jnp.stack([value[..., 0] for value in critics(features, actions)])
