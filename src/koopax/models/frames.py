"""Models of frames: a state is the pixels of a frame side by side, and the networks around the core see pictures.

Everything between encoder and decoder, and everything around the model (losses, errors, returns to the encoder, files),
is that of models of vectors. In normalised units a pixel is its distance from its mean frame, so still pixels are zero.
Several frames seen together are stacked along their channels.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import KoopaxError
from koopax._types import Array, Float, PRNGKeyArray
from koopax.models.config import ModelConfig
from koopax.models.history import HistoryEncoder
from koopax.models.images import ImageDecoder, ImageEncoder, make_image_decoder, make_image_encoder
from koopax.models.networks import MLP


class FrameEncoder(eqx.Module):
    """The latent of one frame."""

    network: ImageEncoder
    shape: tuple[int, int, int] = eqx.field(static=True)

    def __call__(self, state: Float[Array, " state"]) -> Float[Array, " latent"]:
        """x_t of normalised pixels."""
        return self.network(state.reshape(self.shape))


class FrameHistory(HistoryEncoder):
    """The latent of several frames, stacked; one that is unknown is taken to be the oldest known one.

    What the actions between the frames did is seen in the frames.
    """

    network: ImageEncoder
    shape: tuple[int, int, int] = eqx.field(static=True)

    def __call__(
        self, states: Float[Array, "observed state"], actions: Float[Array, "observed-1 action"]
    ) -> Float[Array, " latent"]:
        """x_t of normalised pixels."""
        frames = [states[-1]]
        for state in states[-2::-1]:
            frames.append(jnp.where(jnp.isnan(state), frames[-1], state))
        return self.network(jnp.concatenate([frame.reshape(self.shape) for frame in reversed(frames)], axis=-1))


class FrameDecoder(eqx.Module):
    """The pixels of a latent and, where no reward head reads latents, the reward as one more number."""

    network: ImageDecoder
    reward: MLP | None

    def __call__(self, latent: Float[Array, " latent"]) -> Float[Array, " state"]:
        """Normalised pixels side by side, and the normalised reward behind them."""
        pixels = self.network(latent).reshape(-1)
        return pixels if self.reward is None else jnp.concatenate([pixels, self.reward(latent)])


REWARD_WIDTH = 64


def make_frame_encoder(config: ModelConfig, latent_size: int, *, key: PRNGKeyArray) -> FrameEncoder | FrameHistory:
    """The encoder of a model of frames."""
    shape = frame_shape(config)
    stacked = (*shape[:2], shape[2] * config.history)
    network = make_image_encoder(config.image_encoder, stacked, latent_size, key=key)
    return FrameEncoder(network, shape) if config.history == 1 else FrameHistory(network, shape)


def make_frame_decoder(config: ModelConfig, latent_size: int, *, reward: bool, key: PRNGKeyArray) -> FrameDecoder:
    """The decoder of a model of frames, which tells the reward as well where it is asked to."""
    pixel_key, reward_key = jax.random.split(key)
    network = make_image_decoder(config.image_encoder, latent_size, frame_shape(config), key=pixel_key)
    return FrameDecoder(network, MLP((latent_size, REWARD_WIDTH, 1), key=reward_key) if reward else None)


def frame_shape(config: ModelConfig) -> tuple[int, int, int]:
    """Height, width and channels of a frame."""
    if config.image_shape is None:
        raise KoopaxError("this model is of vectors, not of frames: train one on frames.")
    return config.image_shape
