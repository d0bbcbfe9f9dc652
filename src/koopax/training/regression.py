"""Least squares for models whose latents are fixed functions of the state: DMDc and EDMD.

With φ the dictionary and ψ(s, a) = (φ(s), a_1 φ_c(s), …, a_A φ_c(s)) the functions that the core is linear in,

    W = argmin Σ_t |φ(s_{t+1}) − W ψ(s_t, a_t)|² + N ρ |W|²

over the N steps of the training episodes, and likewise for the reward, which sees a_i a_j besides. Gram matrices are
summed in float64, some thousand steps at a time; their eigenvectors give W for every ridge ρ. Of the ridges, and of
returning to the dictionary at every step or never, what has the lowest error in free runs of validation windows is
kept.

Of a history only the whole is fitted; what is to be expected of the steps before those that are known is as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax.data.episodes import Episodes
from koopax.data.windows import Windows, fixed_windows
from koopax.models.dictionaries import Dictionary
from koopax.models.dynamics import DynamicsModel
from koopax.models.encoding import past_of_windows
from koopax.models.history import DelayedDictionary
from koopax.models.linear import BilinearReward, LinearCore, action_products
from koopax.training.choice import HORIZON, ReturnTrials

Numbers: TypeAlias = np.ndarray | jax.Array
RIDGES = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)
RETURNS = (1, None)
# The ridge of what is expected before a history begins.
EXPECTED = 1e-10
# Steps in a batch of the sums, and in all of them: more do not change some thousand coefficients.
BATCH = 10_000
MOST_STEPS = 400_000


class Sums(NamedTuple):
    """ΨᵀΨ and ΨᵀY over N steps, of the core and of the reward, in float64."""

    count: int | Numbers
    gram: Numbers
    latents: Numbers
    """ΨᵀY with Y = φ(s_{t+1}), [functions, latent]."""
    reward_gram: Numbers
    rewards: Numbers
    """As `latents`, [functions, 1]."""


@dataclass(frozen=True)
class Trial:
    """One choice of ridge and of when to return to the dictionary, and how good its free runs are."""

    ridge: float
    reencode_every: int | None
    error: float
    """See `koopax.training.choice.free_run_error`."""


def is_regression(model: DynamicsModel) -> bool:
    """Whether a model's matrices are found by least squares."""
    return isinstance(model.encoder, Dictionary | DelayedDictionary) and isinstance(model.core, LinearCore)


def regress(
    model: DynamicsModel,
    train: Episodes,
    validation: Episodes | None,
    *,
    horizon: int,
    returns: Sequence[int | None] = RETURNS,
) -> tuple[DynamicsModel, list[Trial]]:
    """The model with its matrices fitted, and what was tried; without validation a small ridge, and always returning.

    Args:
        model: with a dictionary for an encoder and a `LinearCore`; its matrices are replaced.
        train: episodes to fit.
        validation: episodes to choose the ridge on.
        horizon: steps of the free runs that are compared.
        returns: steps between two returns to the dictionary to choose from; None for never.
    """
    low, high = _range(model, train)
    if isinstance(model.encoder, DelayedDictionary):
        dictionary = model.encoder.dictionary.within(low, high)
        model = eqx.tree_at(lambda own: own.encoder.dictionary, model, dictionary)
    else:
        assert isinstance(model.encoder, Dictionary)
        model = eqx.tree_at(lambda own: own.encoder, model, model.encoder.within(low, high))
    sums = _add_up(model, train)
    if isinstance(model.encoder, DelayedDictionary):
        model = eqx.tree_at(lambda own: own.encoder.before, model, before_what_is_known(model.encoder, sums))
    if validation is None:
        return _fitted(model, sums, RIDGES[1]).with_reencoding(returns[0]), []
    trials, best = [], None
    # What is unknown at an episode's start is filled in by a guess, which must not decide the ridge.
    free_runs = ReturnTrials(validation, horizon, past=model.past_steps, whole=True)
    for every in returns:
        for ridge in RIDGES:
            candidate = _fitted(model, sums, ridge)
            trials.append(Trial(ridge, every, free_runs.error(candidate, every)))
            if best is None or trials[-1].error < best[0]:
                best = trials[-1].error, candidate.with_reencoding(every)
    assert best is not None
    return best[1], trials


def before_what_is_known(encoder: DelayedDictionary, sums: Sums) -> jax.Array:
    """W_j of delay coordinates, by least squares: what is to be expected of a step before those that are known."""
    size = encoder.before.shape[2] - 1
    gram = np.asarray(sums.gram)[: size + 1, : size + 1]  # of the constant and of z, which stand first
    found = np.zeros(encoder.before.shape)
    known = [0, *range(1, 1 + encoder.state_size)]
    for step, weights in enumerate(found, 1):
        own = [1 + place for places in encoder.places(step) for place in range(size)[places]]
        weights[:, known] = solve(gram[np.ix_(known, known)], gram[np.ix_(known, own)], int(sums.count), EXPECTED).T
        known += own
    return jnp.asarray(found, jnp.float32)


def dmdc_reference(train: Episodes, validation: Episodes | None = None, *, history: int = 1) -> DynamicsModel:
    """DMDc of the training episodes, without returns: what there is to know of them by a linear regression."""
    model = DynamicsModel.create("dmdc", train, history=history, key=jax.random.key(0))
    return regress(model, train, validation, horizon=HORIZON, returns=(None,))[0]


def solve(gram: Numbers, cross: Numbers, count: int, ridge: float) -> np.ndarray:
    """(ΨᵀΨ + N ρ)⁻¹ ΨᵀY, by the eigenvectors of ΨᵀΨ."""
    values, vectors = np.linalg.eigh(np.asarray(gram) / count)
    return (vectors / (np.maximum(values, 0) + ridge)) @ (vectors.T @ (np.asarray(cross) / count))


def _range(model: DynamicsModel, train: Episodes) -> tuple[jax.Array, jax.Array]:
    """Lowest and highest normalised states, or whole histories."""
    found, scale, history = train.statistics(), model.normaliser, model.config.history

    def joined(states: np.ndarray, actions: np.ndarray) -> jax.Array:
        state = scale.normalise_state(jnp.asarray(states, jnp.float32))
        action = scale.normalise_action(jnp.asarray(actions, jnp.float32))
        return jnp.concatenate([jnp.tile(state, history), jnp.tile(action, history - 1)])

    return joined(found.state.minimum, found.action.minimum), joined(found.state.maximum, found.action.maximum)


def _add_up(model: DynamicsModel, train: Episodes) -> Sums:
    """The sums over the training steps, or over as many of them as are enough, drawn at random."""
    total: Sums | None = None
    # In float64: the gram of high powers is nearly singular.
    with jax.enable_x64(True):
        for windows in fixed_windows(train, 1, MOST_STEPS, seed=0, batch_size=BATCH, past=model.past_steps):
            precise = jax.tree.map(lambda array: jnp.asarray(array, jnp.float64), windows)
            found = jax.device_get(_sums(model, precise))
            total = found if total is None else Sums(*(mine + new for mine, new in zip(total, found, strict=True)))
    assert total is not None  # fixed_windows refuses a set without steps
    return total


@eqx.filter_jit
def _sums(model: DynamicsModel, windows: Windows) -> Sums:
    scale = model.normaliser
    states, actions = scale.normalise_state(windows.states), scale.normalise_action(windows.actions[0])
    past = past_of_windows(model, windows)
    later = jax.vmap(lambda own, state, action: own.then(state[None], action[None]))(past, states[1], actions)
    # Only whole histories count; without one, all do.
    whole = ~(jnp.isnan(past.states).any((1, 2)) | jnp.isnan(past.actions).any((1, 2)))
    now, after = (whole[:, None] * jax.vmap(model.encode_past)(seen) for seen in (past, later))
    assert isinstance(model.core, LinearCore)
    if windows.durations is not None:
        after = now + (after - now) / windows.durations[0][:, None]  # as far as a step of nominal duration would go
    products = actions[:, :, None] * now[:, None, : model.core.coupled]
    functions = jnp.concatenate([now, products.reshape(len(now), -1)], axis=1)
    of_reward = jnp.concatenate([functions, whole[:, None] * jax.vmap(action_products)(actions)], axis=1)
    reward = scale.normalise_reward(windows.rewards[0])[:, None]
    count = jnp.sum(whole)
    return Sums(count, functions.T @ functions, functions.T @ after, of_reward.T @ of_reward, of_reward.T @ reward)


def _fitted(model: DynamicsModel, sums: Sums, ridge: float) -> DynamicsModel:
    """The model with the matrices of a ridge."""
    core, head = model.core, model.reward_head
    assert isinstance(core, LinearCore)
    assert isinstance(head, BilinearReward)
    latent, shape = core.latent_size, core.inputs.shape
    weights = solve(sums.gram, sums.latents, int(sums.count), ridge).T
    reward = solve(sums.reward_gram, sums.rewards, int(sums.count), ridge)[:, 0]
    coupled = latent + shape[0] * shape[2]
    arrays = (
        weights[:, :latent],
        weights[:, latent:].reshape(latent, shape[0], shape[2]).transpose(1, 0, 2),
        reward[:latent],
        reward[latent:coupled].reshape(shape[0], shape[2]),
        reward[coupled:],
    )
    return eqx.tree_at(
        lambda own: (
            own.core.matrix,
            own.core.inputs,
            own.reward_head.state_weights,
            own.reward_head.coupled_weights,
            own.reward_head.action_weights,
        ),
        model,
        tuple(jnp.asarray(array, jnp.float32) for array in arrays),
    )
