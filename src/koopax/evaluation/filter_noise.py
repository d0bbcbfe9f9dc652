"""How noisy a filter takes steps and observations to be, and how that is found in data.

With y_t = g_θ(s_t) the encoder's latents of an episode and e_t = y_{t+1} − (Λ̄ y_t + L̄ u_t), noise of variance q in the
steps and r in the observations of a mode gives

    E |e_t|² = q + (1 + |λ̄|²) r,      E e_{t+1} e_t* = −λ̄ r,

since an observation's noise enters two errors in a row, with opposite signs. The two moments of the training data give
q and r of every mode; neither is ever negative.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError
from koopax._types import Array, Float
from koopax.data.episodes import Episodes
from koopax.data.windows import Windows, fixed_windows
from koopax.models.dynamics import DynamicsModel
from koopax.models.encoding import past_of_windows
from koopax.models.history import seen_later
from koopax.models.koopman import KoopmanCore
from koopax.models.recurrence import multiply
from koopax.models.spectrum import discretise

WINDOWS = 4_000
BATCH = 500
# Below this share of a mode's errors a variance is rounding; a step is never taken to be exact.
SMALLEST = 1e-9


class FilterNoise(eqx.Module):
    """Covariances of a filter: a variance for each mode, `[modes]`, or matrices over their real parts and then their
    imaginary ones, `[2 modes, 2 modes]`.

    A variance is that of a mode's real part and as well of its imaginary part.
    """

    process: Float[Array, "..."]
    """Q, of what a step adds to a latent that the core does not know of."""
    observation: Float[Array, "..."]
    """R, of what the encoder says of an observation."""


def trusting(model: DynamicsModel) -> FilterNoise:
    """The noise of sensors that have none: every whole observation replaces what was predicted."""
    modes = mode_width(model) // 2
    return FilterNoise(jnp.ones(modes), jnp.zeros(modes))


def fit_noise(model: DynamicsModel, train: Episodes) -> FilterNoise:
    """The variances of every mode in the episodes that a model with a Koopman core was trained on."""
    if not isinstance(model.core, KoopmanCore):
        raise KoopaxError(f"a filter with noise needs a Koopman core, not {model.config.core!r}: use Estimator(model).")
    check_noise(model, trusting(model))
    if int(train.lengths.max()) < 2:
        raise KoopaxError("noise shows in two steps in a row, and no episode has two: give longer episodes.")
    found, count = np.zeros((2, mode_width(model) // 2)), 0
    for batch in fixed_windows(train, 2, WINDOWS, seed=0, batch_size=BATCH, past=model.past_steps):
        windows = jax.tree.map(jnp.asarray, batch._replace(durations=None))
        found = found + np.stack([np.asarray(each, np.float64) for each in _moments(model, windows)])
        count += batch.rewards.shape[1]
    variance, lagged = found / count
    real, imag = (np.asarray(part, np.float64) for part in discretise(model.core.spectrum).transition)
    size = np.maximum(real**2 + imag**2, 1e-12)
    # A mode that forgets at once tells nothing of where its errors come from: they count as the step's.
    observation = np.clip(-lagged / size, 0.0, variance / (1 + size))
    process = np.maximum(variance - (1 + size) * observation, SMALLEST * variance + 1e-30)
    return FilterNoise(jnp.asarray(process, jnp.float32), jnp.asarray(observation, jnp.float32))


@eqx.filter_jit
def _moments(model: DynamicsModel, windows: Windows) -> tuple[Float[Array, " modes"], Float[Array, " modes"]]:
    """Sums over windows of |e_1|² and of Re(λ̄* e_2 e_1*), halved: per real and imaginary part."""
    assert isinstance(model.core, KoopmanCore)
    core = model.core
    states = model.normaliser.normalise_state(windows.states)
    actions = model.normaliser.normalise_action(windows.actions)
    past = past_of_windows(model, windows)
    seen = jax.vmap(jax.vmap(model.encode_past))(seen_later(past, states, actions, jnp.asarray([-1, 0, 1])))

    def error(now: Array, action: Array, later: Array) -> Array:
        return (later - core.step(now, action))[: core.modes_size]

    first, second = (core.halves(each) for each in jax.vmap(jax.vmap(error))(seen[:2], actions, seen[1:]))
    transition = discretise(core.spectrum).transition
    product = multiply(second, (first[0], -first[1]))
    lagged = multiply((transition[0], -transition[1]), product)[0]
    return jnp.sum(first[0] ** 2 + first[1] ** 2, axis=0) / 2, jnp.sum(lagged, axis=0) / 2


def check_noise(model: DynamicsModel, noise: FilterNoise) -> None:
    """Raise unless a model can be filtered with that noise."""
    if not isinstance(model.core, KoopmanCore):
        raise KoopaxError(f"a filter with noise needs a Koopman core, not {model.config.core!r}: leave the noise out.")
    if model.core.modulator is not None:
        raise KoopaxError("eigenvalues that depend on actions or context have no constant Λ̄: leave the noise out.")
    width = model.core.modes_size
    for name, values in (("process", noise.process), ("observation", noise.observation)):
        if values.shape not in ((width // 2,), (width, width)) or values.ndim != noise.process.ndim:
            raise KoopaxError(
                f"the {name} noise has shape {values.shape}: give both as {width // 2} variances or both as matrices "
                f"({width}, {width})."
            )


def mode_width(model: DynamicsModel) -> int:
    """Real numbers that the modes of a latent are."""
    assert isinstance(model.core, KoopmanCore)
    return model.core.modes_size
