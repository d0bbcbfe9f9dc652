"""What SAC from pixels is made of, besides SAC's own actor and critics.

z = e(s)                     representation: a CNN, LayerNorm and tanh; values and policy are learned from it
x = p(z), x̂ₖ = core(x, a)   projection, and the latent dynamics that is all that differs between the arms
ẑₖ = d(x̂ₖ)                  back to representations, which is where predictions are compared
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, Int, PRNGKeyArray, UInt8
from koopax.agents.networks import LayerNorm
from koopax.agents.pixels.config import PixelSACConfig
from koopax.agents.sac.networks import Actor, Critics, make_critics
from koopax.models.images import ImageEncoder, make_image_encoder
from koopax.models.latent import LatentDynamics, make_core
from koopax.models.networks import MLP, over_rows


class Representation(eqx.Module):
    """z = tanh(LayerNorm(CNN(s)))."""

    encoder: ImageEncoder
    norm: LayerNorm

    def __init__(self, config: PixelSACConfig, *, key: PRNGKeyArray):
        shape = (config.image_size, config.image_size, 3 * config.frame_stack)
        self.encoder = make_image_encoder(config.encoder, shape, config.representation_size, key=key)
        self.norm = LayerNorm(config.representation_size)

    def __call__(self, images: UInt8[Array, "batch height width channel"]) -> Float[Array, "batch representation"]:
        """The representations of a batch."""
        return jnp.tanh(self.norm(jax.vmap(self.encoder)(images)))


class SelfPrediction(eqx.Module):
    """p, the core and d."""

    projector: MLP
    core: LatentDynamics
    decoder: MLP

    def __init__(self, config: PixelSACConfig, action_size: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 3)
        self.core = make_core(config.dynamics, config.latent_size, action_size, key=keys[0], **config.all_core_options)
        self.projector = MLP((config.representation_size, self.core.latent_size), key=keys[1])
        sizes = (self.core.predicted_size, *config.decoder_hidden, config.representation_size)
        self.decoder = MLP(sizes, key=keys[2])

    def __call__(
        self,
        start: Float[Array, "batch representation"],
        actions: Float[Array, "time batch action"],
        *,
        stride: int,
        first: Int[Array, ""],
    ) -> Float[Array, "steps batch representation"]:
        """ẑ after the actions number first, first + stride, …, counted from 0."""
        latents = self.core.rollout_every(over_rows(self.projector, start), actions, stride=stride, first=first)
        return over_rows(self.decoder, latents[..., : self.core.predicted_size])


class Model(NamedTuple):
    """What one optimiser changes: the representation, the critics and the self-prediction, if there is one."""

    representation: Representation
    critics: Critics
    prediction: SelfPrediction | None


def make_model(config: PixelSACConfig, action_size: int, *, key: PRNGKeyArray) -> Model:
    """Fresh networks; those that all arms have begin alike for the same key."""
    keys = jax.random.split(key, 3)
    critics = make_critics(config.representation_size, action_size, config.hidden, norm="none", key=keys[1])
    prediction = SelfPrediction(config, action_size, key=keys[2]) if config.predicts else None
    return Model(Representation(config, key=keys[0]), critics, prediction)


def make_actor(config: PixelSACConfig, action_size: int, *, key: PRNGKeyArray) -> Actor:
    """The policy, which reads representations."""
    return Actor(config.representation_size, action_size, config.hidden, key=key)
