"""How noisy steps and observations are, found in data.

With y_t = g_θ(s_t) the encoder's latents of an episode and e_t = y_{t+1} − (Λ̄ y_t + L̄ u_t), noise of variance q in the
steps and r in the observations of a mode gives

    E |e_t|² = q + (1 + |λ̄|²) r,      E e_{t+1} e_t* = −λ̄ r,

since an observation's noise enters two errors in a row, with opposite signs. The two moments of the training data give
q and r of every mode; neither is ever negative.

That holds for white noise. A learned model's own errors are not white, and look like noise of sensors that have none.
So one number is added, by which all r are multiplied: that with which the filter tells best of observations that it is
not shown. It is 0, and every observation is believed, unless doubting them is well worth it: what looks like noise may
be the model's, and then the filtered state would be worse than the observation is.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError
from koopax._types import Array, Bool, Float
from koopax.data.episodes import Episodes
from koopax.data.windows import Windows, fixed_windows
from koopax.evaluation.estimator import filter_episode
from koopax.evaluation.filter_noise import FilterNoise, check_noise, mode_width, trusting
from koopax.models.dynamics import DynamicsModel
from koopax.models.encoding import past_of_windows
from koopax.models.history import seen_later
from koopax.models.koopman import KoopmanCore
from koopax.models.recurrence import multiply
from koopax.models.spectrum import discretise

WINDOWS = 4_000
BATCH = 500
# A step is never taken to be exact: less than this share of a mode's errors would keep observations from ever
# correcting it, whatever r is multiplied by.
SMALLEST = 1e-2
# What r is multiplied by is one of these, found at the beginning of so many episodes, with a share of states not shown.
SCALES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
TRIED_EPISODES, TRIED_STEPS, HIDDEN = 20, 200, 0.3
# As data leaves it open within a few percent, r as it was found is taken where it is as good as that.
AS_GOOD = 1.05
# Observations are doubted where that leaves less than this share of the error. If their noise is all there is, it
# leaves little more than half: the noise of an observation that is believed comes back in the prediction of the next.
WORTH = 0.75


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
    white = FilterNoise(jnp.asarray(process, jnp.float32), jnp.asarray(observation, jnp.float32))
    return white if train.image_shape is not None else _scaled(model, white, train)


def _scaled(model: DynamicsModel, noise: FilterNoise, train: Episodes) -> FilterNoise:
    """The noise with R multiplied by one of `SCALES`."""
    steps = min(TRIED_STEPS, int(np.median(train.lengths)))
    long_enough = np.flatnonzero(train.lengths >= steps)
    some = np.unique(np.linspace(0, len(long_enough) - 1, TRIED_EPISODES).astype(int))
    tried = [train.episode(int(number)) for number in long_enough[some]]
    states = np.stack([episode.observations[: steps + 1] for episode in tried], axis=1)
    actions = np.stack([episode.actions[:steps] for episode in tried], axis=1)
    hidden = np.random.default_rng(0).random(states.shape[:2]) < HIDDEN
    hidden[0] = False
    given = jnp.asarray(states, jnp.float32), jnp.asarray(actions, jnp.float32), jnp.asarray(hidden)
    scaled = [eqx.tree_at(lambda own: own.observation, noise, scale * noise.observation) for scale in SCALES]
    errors = np.array([_error_of_hidden(model, each, *given) for each in scaled])
    errors[np.isnan(errors)] = np.inf
    found = SCALES.index(1.0)
    best = found if errors[found] < AS_GOOD * errors.min() else int(np.argmin(errors))
    return scaled[best if errors[best] < WORTH * errors[0] else 0]


@eqx.filter_jit
def _error_of_hidden(
    model: DynamicsModel,
    noise: FilterNoise,
    states: Float[Array, "points batch state"],
    actions: Float[Array, "time batch action"],
    hidden: Bool[Array, "points batch"],
) -> Float[Array, ""]:
    """Mean square of what the filter misses of hidden states, normalised."""

    def filtered(own: Array, taken: Array) -> Array:
        return filter_episode(model, noise, own, taken)[0]

    seen = jnp.where(hidden[..., None], jnp.nan, states)
    found = jax.vmap(filtered, in_axes=1, out_axes=1)(seen, actions)
    missed = jnp.mean(((found - states) / model.normaliser.state_std) ** 2, axis=-1)
    return jnp.mean(missed, where=hidden)


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
