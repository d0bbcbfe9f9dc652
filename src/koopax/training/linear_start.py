"""Where a Koopman model begins: at DMDc, whose modes stand in its spectrum and whose matrices in its linear paths.

DMDc finds s_{t+1} = A s_t + B a_t + c in normalised units. With A = V Λ V⁻¹, the modes z = V⁻¹ s follow

    z_{t+1} = Λ z_t + V⁻¹ (B a_t + c),     s_t = Re V z_t,

which is a diagonal Koopman model with a linear encoder V⁻¹, a linear decoder V and a linear input. Of two conjugate
modes one is kept, with twice its real part in the decoder. They take the place of the model's first modes; its
networks begin at zero where they would add to them, so that training begins where the regression ends, and all other
modes are free for what is not linear.

Eigenvalues outside of what the spectrum can express begin at the nearest that it can; unstable ones can be expressed
where the data asks for it, see `koopax.training.growth`.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from koopax._types import Array, Float
from koopax.data.episodes import Episodes
from koopax.models.dynamics import DynamicsModel
from koopax.models.koopman import KoopmanCore
from koopax.models.linear import LinearCore
from koopax.models.networks import LinearPath
from koopax.models.spectrum import MultiscaleSpectrum, discretise
from koopax.training.regression import dmdc_reference

# Eigenvectors that are nearly parallel cancel each other: float32 has no digits left for what remains.
WORST_CONDITION = 1e4


class LinearModes(NamedTuple):
    """A diagonal form of s_{t+1} = A s_t + B a_t + c, one mode of each conjugate pair."""

    eigenvalues: np.ndarray
    """λ̄, complex, [modes]."""
    encode: np.ndarray
    """z = encode s, complex, [modes, state]."""
    decode: np.ndarray
    """s = Re(decode z), complex, [state, modes]."""
    inputs: np.ndarray
    """What actions and the constant 1 add to z, complex, [modes, action + 1]."""


def diagonal_form(matrix: np.ndarray, inputs: np.ndarray) -> LinearModes | None:
    """The modes of A, scaled so that a state of unit variance gives modes of order one; None where A has no such form.

    Args:
        matrix: A, [state, state].
        inputs: [B c], [state, action + 1].
    """
    values, vectors = np.linalg.eig(matrix)
    if np.linalg.cond(vectors) > WORST_CONDITION:
        return None
    inverse = np.linalg.inv(vectors)
    size = np.linalg.norm(inverse, axis=1)
    inverse, vectors = inverse / size[:, None], vectors * size
    kept = np.imag(values) >= 0
    twice = np.where(np.imag(values[kept]) > 0, 2.0, 1.0)
    return LinearModes(values[kept], inverse[kept], vectors[:, kept] * twice, (inverse @ inputs)[kept])


def can_start_linear(model: DynamicsModel) -> bool:
    """Whether a model has the linear paths and a spectrum for it, and modes enough."""
    core = model.core
    return (
        model.config.history == 1
        and isinstance(core, KoopmanCore)
        and isinstance(core.spectrum, MultiscaleSpectrum)
        and all(isinstance(part, LinearPath) for part in (model.encoder, model.decoder, core.action_encoder))
        and core.modes_size // 2 >= model.config.state_size
        and core.input_real.shape[1] > core.action_size
    )


def linear_start(model: DynamicsModel, train: Episodes) -> DynamicsModel:
    """The model as a linear regression on the training episodes; as it was where the regression has no diagonal form.

    Args:
        model: with linear paths, see `can_start_linear`.
        train: the training episodes.
    """
    fitted = dmdc_reference(train)
    assert isinstance(fitted.core, LinearCore)
    matrix, inputs = np.asarray(fitted.core.matrix, np.float64), np.asarray(fitted.core.inputs, np.float64)
    # The dictionary is (1, s): its first row keeps the constant, its first column adds it.
    modes = diagonal_form(matrix[1:, 1:], np.concatenate([inputs[:, 1:, 0].T, matrix[1:, :1]], axis=1))
    return model if modes is None else with_modes(model, modes)


def with_modes(model: DynamicsModel, modes: LinearModes) -> DynamicsModel:
    """The model with these modes in the place of its first ones."""
    core, encoder, decoder = model.core, model.encoder, model.decoder
    assert isinstance(core, KoopmanCore)
    assert isinstance(encoder, LinearPath)
    assert isinstance(decoder, LinearPath)
    count, state = len(modes.eigenvalues), model.config.state_size
    first = np.concatenate([np.arange(count), core.modes_size // 2 + np.arange(count)])  # real and imaginary parts
    encode = np.concatenate([np.real(modes.encode), np.imag(modes.encode)])
    decode = np.concatenate([np.real(modes.decode), -np.imag(modes.decode)], axis=1)
    outputs = np.arange(decoder.linear.weight.shape[0])
    return eqx.tree_at(
        lambda own: (own.encoder, own.core, own.decoder),
        model,
        (
            _with_path(encoder, encoder.linear.weight.at[first].set(encode), silent=first),
            _core_with_modes(core, modes),
            _with_path(decoder, decoder.linear.weight.at[:state, first].set(decode), silent=outputs),
        ),
    )


def _core_with_modes(core: KoopmanCore, modes: LinearModes) -> KoopmanCore:
    """The embedding's first numbers become the action itself and a one, of which L̄ makes what the regression found."""
    assert isinstance(core.spectrum, MultiscaleSpectrum)
    assert isinstance(core.action_encoder, LinearPath)
    count, action, embedding = len(modes.eigenvalues), core.action_size, core.input_real.shape[1]
    spectrum = core.spectrum.with_eigenvalues(modes.eigenvalues)
    gain = discretise(spectrum).gain
    columns = modes.inputs / (np.asarray(gain[0]) + 1j * np.asarray(gain[1]))[:count, None]
    real, imag = (np.pad(part, ((0, 0), (0, embedding - action - 1))) for part in (np.real(columns), np.imag(columns)))

    path, known = core.action_encoder.linear, np.arange(action + 1)
    assert path.bias is not None
    now = core.remembered_actions * action + np.arange(action)
    actions = path.weight.at[np.arange(action), now].set(1.0)
    ones = jnp.zeros_like(path.bias).at[action].set(1.0)
    # Their imaginary parts are silent as well.
    encoder = _with_path(core.action_encoder, actions, silent=np.concatenate([known, embedding + known]), bias=ones)
    return eqx.tree_at(
        lambda own: (own.spectrum, own.action_encoder, own.input_real, own.input_imag),
        core,
        (spectrum, encoder, core.input_real.at[:count].set(real), core.input_imag.at[:count].set(imag)),
    )


def _with_path(
    part: LinearPath, weight: Array, *, silent: np.ndarray, bias: Float[Array, " output"] | None = None
) -> LinearPath:
    """The part with a linear path, beside which its network begins by adding nothing to the silent outputs."""
    last = part.network.layers[-1]
    assert last.bias is not None
    return eqx.tree_at(
        lambda own: (own.linear.weight, own.linear.bias, own.network.layers[-1].weight, own.network.layers[-1].bias),
        part,
        (
            weight,
            part.linear.bias if bias is None else bias,
            last.weight.at[silent].set(0.0),
            last.bias.at[silent].set(0.0),
        ),
    )
