"""Which models are linear in their actions, and which know all there is to know from a state."""

from typing import Any

from koopax.models.dictionaries import Polynomials
from koopax.models.dynamics import DynamicsModel, Reencoding
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import SequenceDynamics
from koopax.models.linear import LinearCore
from koopax.models.networks import MLP, LinearPath


def is_linear(model: DynamicsModel, reencode_every: Reencoding = None) -> bool:
    """Whether predicted states are o(s_0) + J (a_0, …, a_{H−1}) with the same J everywhere.

    So it is for DMDc, and for a Koopman model with a linear action encoder (`action_hidden=()`), a linear decoder
    (`decoder_hidden=()`), eigenvalues that don't depend on the action, and no returns to the encoder.
    """
    core = model.core
    affine_encoder = isinstance(model.encoder, Polynomials) and model.encoder.degree == 1
    if model.steps_between_returns(reencode_every) is not None and not affine_encoder:
        return False
    if not _one_layer(model.decoder):
        return False
    if isinstance(core, KoopmanCore):
        return core.modulator is None and _one_layer(core.action_encoder)
    return isinstance(core, LinearCore) and core.coupled == 1


def sees_all(model: DynamicsModel) -> bool:
    """Whether a latent is a function of the newest state alone: nothing before it is remembered."""
    remembers = isinstance(model.core, SequenceDynamics) or model.core.remembered_actions > 0
    return not remembers and model.config.history == 1


def _one_layer(part: Any) -> bool:
    network = part.network if isinstance(part, LinearPath) else part
    return isinstance(network, MLP) and len(network.layers) == 1
