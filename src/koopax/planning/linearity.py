"""Which models are linear in their actions, and which know all there is to know from a state."""

from koopax.models.dictionaries import Polynomials
from koopax.models.dynamics import DynamicsModel, Reencoding
from koopax.models.latent import SequenceDynamics
from koopax.models.members import is_affine


def is_linear(model: DynamicsModel, reencode_every: Reencoding = None) -> bool:
    """Whether predicted states are o(s_0) + J (a_0, …, a_{H−1}) with the same J everywhere.

    So it is for DMDc, and for a Koopman model with a linear action encoder (`action_hidden=()`), a linear decoder
    (`decoder_hidden=()`), eigenvalues that don't depend on the action, and no returns to the encoder.
    """
    affine_encoder = isinstance(model.encoder, Polynomials) and model.encoder.degree == 1
    if model.steps_between_returns(reencode_every) is not None and not affine_encoder:
        return False
    return is_affine(model.decoder) and model.core.linear_in_actions


def sees_all(model: DynamicsModel) -> bool:
    """Whether a latent that a rollout starts at is all there is, and a function of the newest state alone."""
    return not isinstance(model.core, SequenceDynamics) and model.config.history == 1
