"""The networks of TD-MPC; they take any number of batch axes, so that all steps of all windows are one product.

x_t = h(o_t)          encoder            r̂_t = R(x_t, a_t)       reward
x_{t+1} = d(x_t, a_t) dynamics core      Q₁, Q₂(x_t, a_t)        values,    π(x_t)  policy
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray
from koopax.agents.networks import Dense, Ensemble, LayerNorm, dense_layers, make_ensemble, orthogonal, zero
from koopax.agents.tdmpc.config import TDMPCConfig
from koopax.models.latent import LatentDynamics, make_core

NOISE_LIMIT = 0.3


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
            x = jnp.tanh(self.norm(x)) if i == 0 and self.norm is not None else jax.nn.elu(x)
        return self.layers[-1](x)


Critics = Ensemble[Network]


class WorldModel(eqx.Module):
    """What the model's optimiser changes: encoder, dynamics, reward and both Qs."""

    encoder: Network
    core: LatentDynamics
    reward: Network
    critics: Critics

    def __init__(self, config: TDMPCConfig, state_size: int, action_size: int, *, key: PRNGKeyArray):
        encoder_key, core_key, reward_key, *critic_keys = jax.random.split(key, 5)
        options = config.all_core_options
        self.core = make_core(config.dynamics, config.latent_size, action_size, key=core_key, **options)
        self.encoder = Network((state_size, *config.encoder_hidden, self.core.latent_size), key=encoder_key)
        read = self.core.predicted_size + action_size
        self.reward = Network((read, *config.reward_hidden, 1), zero_output=True, key=reward_key)
        sizes = (read, *config.hidden, 1)
        self.critics = make_ensemble(
            lambda key: Network(sizes, normalised=True, zero_output=True, key=key), critic_keys
        )

    def unroll(
        self, start: Float[Array, "batch latent"], actions: Float[Array, "time batch action"]
    ) -> Float[Array, "time+1 batch latent"]:
        """x_0 … x_T of every window; a linear core computes all of them at once."""
        moved = jax.vmap(self.core.rollout, in_axes=(0, 1), out_axes=1)(start, actions)
        return jnp.concatenate([start[None], moved])

    def features(self, latents: Float[Array, "*batch latent"]) -> Float[Array, "*batch feature"]:
        """What reward, values and policy read of latents: what the core predicts."""
        return latents[..., : self.core.predicted_size]


class Targets(NamedTuple):
    """Moving averages of what the targets of the losses come from."""

    encoder: Network
    critics: Critics


def make_policy(config: TDMPCConfig, core: LatentDynamics, *, key: PRNGKeyArray) -> Network:
    """π before its tanh, for a model with this core."""
    return Network((core.predicted_size, *config.hidden, core.action_size), key=key)


def act(
    policy: Network, features: Float[Array, "*batch feature"], std: float, *, key: PRNGKeyArray
) -> Float[Array, "*batch action"]:
    """tanh π(x) + ε within ±1, where ε ~ N(0, std²) is clipped at ±0.3."""
    mean = jnp.tanh(policy(features))
    noise = jnp.clip(std * jax.random.normal(key, mean.shape), -NOISE_LIMIT, NOISE_LIMIT)
    return jnp.clip(mean + noise, -1, 1)


def predict_reward(
    model: WorldModel, features: Float[Array, "*batch feature"], actions: Float[Array, "*batch action"]
) -> Float[Array, "*batch"]:
    """R(x, a)."""
    return model.reward(jnp.concatenate([features, actions], axis=-1))[..., 0]


def evaluate_critics(
    critics: Critics, features: Float[Array, "*batch feature"], actions: Float[Array, "*batch action"]
) -> Float[Array, "2 *batch"]:
    """Both values."""
    return jnp.stack([value[..., 0] for value in critics(features, actions)])
