"""The parts of a model around its core: encoder, decoder and reward head, as networks or as those of a regression."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import PRNGKeyArray
from koopax.models.config import ModelConfig
from koopax.models.dictionaries import Dictionary, make_dictionary
from koopax.models.frames import FrameDecoder, FrameEncoder, make_frame_decoder, make_frame_encoder
from koopax.models.history import DelayedDictionary, HistoryEncoder, delay_size, make_history_encoder
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import LatentDynamics, make_core
from koopax.models.linear import BilinearReward, LinearCore
from koopax.models.members import MemberDecoders
from koopax.models.networks import ACTIVATIONS, MLP, LinearPath


class Parts(NamedTuple):
    """All of a model but its normaliser."""

    encoder: MLP | LinearPath | Dictionary | HistoryEncoder | FrameEncoder
    core: LatentDynamics
    decoder: MLP | LinearPath | MemberDecoders | FrameDecoder
    reward_head: MLP | BilinearReward | None


def make_parts(config: ModelConfig, *, key: PRNGKeyArray) -> Parts:
    """Fresh parts of a model."""
    return _networks(config, key) if config.encoder == "network" else _regression(config, key)


def _networks(config: ModelConfig, key: PRNGKeyArray) -> Parts:
    encoder_key, core_key, decoder_key, reward_key = jax.random.split(key, 4)
    state, action = config.state_size, config.action_size
    network = partial(MLP, activation=ACTIVATIONS[config.activation])
    coder = partial(LinearPath, activation=ACTIVATIONS[config.activation]) if config.linear_paths else network
    core = make_core(config.core, config.latent_size, action, key=core_key, **config.core_options)
    latent = core.latent_size
    if config.image_shape is not None:
        encoder = make_frame_encoder(config, latent, key=encoder_key)
    elif config.history == 1:
        encoder = coder((state, *config.encoder_hidden, latent), key=encoder_key)
    else:
        encoder = make_history_encoder(config, latent, key=encoder_key)
    read = config.reward_hidden is None
    sizes = (latent, *config.decoder_hidden, state + read)
    if config.image_shape is not None:
        decoder = make_frame_decoder(config, latent, reward=read, key=decoder_key)
    elif isinstance(core, KoopmanCore) and core.members > 1:
        pilot = core.pilot_place
        widths = {"modes_size": core.modes_size, "pilot": (pilot.start, pilot.stop)}
        decoder = MemberDecoders(coder, core.members, sizes, **widths, key=decoder_key)
    else:
        decoder = coder(sizes, key=decoder_key)
    if config.reward_hidden is None:
        return Parts(encoder, core, decoder, None)
    return Parts(encoder, core, decoder, network((latent + action, *config.reward_hidden, 1), key=reward_key))


def _regression(config: ModelConfig, key: PRNGKeyArray) -> Parts:
    """A dictionary, and a decoder that reads off it the newest state, which stands behind the constant."""
    encoder_key, core_key = jax.random.split(key)
    encoder = make_dictionary(config.encoder, delay_size(config), key=encoder_key, **config.encoder_options)
    if config.history > 1:
        encoder = DelayedDictionary(encoder, config.state_size, config.history)
    core = make_core(config.core, encoder.size, config.action_size, key=core_key, **config.core_options)
    decoder = MLP((encoder.size, config.state_size), key=core_key)
    read = jnp.eye(config.state_size, encoder.size, k=1)
    decoder = eqx.tree_at(
        lambda own: (own.layers[0].weight, own.layers[0].bias), decoder, (read, jnp.zeros(config.state_size))
    )
    coupled = core.coupled if isinstance(core, LinearCore) else 1
    return Parts(encoder, core, decoder, BilinearReward(encoder.size, config.action_size, coupled))
