"""Models that see several observations: what they see, and what they make of unknown steps; one is as before."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koopax import DynamicsModel, Episodes, KoopaxError, fit, load_model, prediction_error
from koopax.data import WindowSampler, fixed_windows
from koopax.evaluation.errors import predict_windows
from koopax.models.encoding import past_of_windows
from koopax.models.history import Past, RecurrentHistory, seen_later
from koopax.models.recurrence import multiply
from koopax.models.spectrum import discretise
from koopax.models.stepping import Stepper
from koopax.planning.learned import LearnedModel, RewardedModel
from koopax.training.choice import ReturnTrials, free_run_error
from koopax.training.config import TrainConfig
from koopax.training.losses import loss_terms
from koopax.training.pasts import forgetting

STATE, ACTION, HISTORY = 2, 1, 4
SMALL = {"latent_size": 8, "encoder_hidden": (6,), "decoder_hidden": (6,), "action_embedding": 3, "action_hidden": (4,)}


@cache
def data(seed=0, count=4, length=20):
    rng = np.random.default_rng(seed)
    return Episodes.from_arrays(
        [3.0 + 2.0 * rng.normal(size=(length + 1, STATE)) for _ in range(count)],
        [1.0 + 0.5 * rng.normal(size=(length, ACTION)) for _ in range(count)],
        [rng.normal(size=length) for _ in range(count)],
    )


@cache
def model(encoder="stacked", head=False, history=HISTORY):
    options = SMALL | {"history": history, "history_encoder": encoder, "action_history": 3}
    return DynamicsModel.create(
        "koopman", data(), **options, reward_hidden=(5,) if head else None, key=jax.random.key(1)
    )


def past(rows=HISTORY, seed=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, STATE)), rng.normal(size=(rows - 1, ACTION)), rng.normal(size=(6, ACTION))


def same(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_a_history_of_one_is_the_model_without_any_bit_for_bit():
    plain, one = (
        DynamicsModel.create("koopman", data(), **SMALL, **more, key=jax.random.key(0)) for more in ({}, {"history": 1})
    )
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(one), strict=True):
        np.testing.assert_array_equal(a, b)
    assert jax.tree.structure(plain) == jax.tree.structure(one)
    # What the model without a history was: the encoder of the normalised state, and nothing before it.
    _, _, actions = past()
    state = jnp.asarray([0.3, 4.0])
    before = plain.encoder(plain.normaliser.normalise_state(state))
    np.testing.assert_array_equal(one.encode(state), before)
    np.testing.assert_array_equal(one.encode(state, actions[:2]), before)
    windows = jax.tree.map(jnp.asarray, fixed_windows(data(), 5, 8, 0).take(slice(None)))
    assert windows.past_states is None
    started = jax.vmap(one.encode_past)(past_of_windows(one, windows))
    np.testing.assert_array_equal(started, jax.vmap(plain.encoder)(plain.normaliser.normalise_state(windows.states[0])))
    assert WindowSampler(data(), 5).sample(jax.random.key(0), 3).past_actions is None


@pytest.mark.quick("stacked")
@pytest.mark.parametrize("encoder", ["stacked", "recurrent"])
def test_what_is_unknown_may_be_left_out_and_the_rest_counts(encoder):
    own, (states, taken, actions) = model(encoder), past()
    whole = own.rollout(states, actions, past_actions=taken).states
    holes = states.copy()
    holes[:2] = np.nan
    same(
        own.rollout(holes, actions, past_actions=taken[1:]).states,
        own.rollout(states[2:], actions, past_actions=taken[1:]).states,
    )
    same(own.rollout(states[-1], actions).states, own.rollout(states[-1:], actions, past_actions=taken[:0]).states)
    # Every row and action is seen.
    for row in range(HISTORY - 1):
        other = states.copy()
        other[row] += 1
        assert not np.allclose(own.rollout(other, actions, past_actions=taken).states, whole)
        other = taken.copy()
        other[row] += 1
        assert not np.allclose(own.rollout(states, actions, past_actions=other).states, whole)
    batch = own.rollouts(np.stack([states, holes]), np.stack([actions] * 2), past_actions=np.stack([taken] * 2))
    same(batch.states[0], whole)
    np.testing.assert_array_equal(np.isfinite(batch.states), True)


@given(rows=st.integers(1, 9), unknown=st.integers(0, 8), seed=st.integers(0, 9))
@settings(max_examples=8)
@pytest.mark.slow
def test_the_recurrent_encoder_takes_any_length(rows, unknown, seed):
    own, encoder = model("recurrent"), model("recurrent").encoder
    assert isinstance(encoder, RecurrentHistory)
    states, taken, _ = past(rows, seed)
    states[: min(unknown, rows - 1)] = np.nan
    with jax.disable_jit():
        # Its slow twin: oldest first, one step after another.
        discrete = discretise(encoder.spectrum)
        carried = jnp.zeros(32), jnp.zeros(32)
        for state, action in zip(states[:-1], taken, strict=True):
            seen = np.concatenate([state, action]).astype(np.float32)
            added = jnp.zeros(32), jnp.zeros(32)
            if not np.isnan(seen).any():
                embedded = encoder.embedding(jnp.asarray(seen))
                added = multiply(discrete.gain, (embedded[:32], embedded[32:]))
            moved = multiply(discrete.transition, carried)
            carried = moved[0] + added[0], moved[1] + added[1]
        expected = encoder.network(jnp.concatenate([jnp.asarray(states[-1], jnp.float32), *carried]))
        same(encoder(jnp.asarray(states, jnp.float32), jnp.asarray(taken, jnp.float32)), expected, 1e-4)
    assert own.config.history == HISTORY


def test_the_recurrent_encoder_looks_back_further_than_it_was_trained():
    states, taken, actions = past(9)
    own = model("recurrent")
    long, short = (
        own.rollout(states, actions, past_actions=taken),
        own.rollout(states[5:], actions, past_actions=taken[5:]),
    )
    assert not np.allclose(long.states, short.states, atol=1e-4)
    with pytest.raises(KoopaxError, match="9 observations are given to a model with a history of 4"):
        model().rollout(states, actions, past_actions=taken)


def by_hand(own, states, taken, actions, every):
    """Decoded and encoded again after `every` steps, in raw units, with the history known then."""
    states, taken, found = list(states), list(taken), []
    latent = own.encode(np.stack(states), np.stack(taken))
    for number, action in enumerate(actions):
        if number and number % every == 0:
            latent = own.encode(np.stack(states[-HISTORY:]), np.stack(taken[-HISTORY + 1 :]))
        latent = own.core.step(latent, own.normaliser.normalise_action(jnp.asarray(action)))
        found.append(np.asarray(own.decode(latent)))
        states.append(found[-1])
        taken.append(action)
    return np.stack(found)


@pytest.mark.parametrize("every", [1, 2])
def test_returns_to_the_encoder_see_the_history_that_there_is_by_then(every):
    own, (states, taken, actions) = model(), past()
    found = own.rollout(states, actions, past_actions=taken, reencode_every=every)
    same(found.states, by_hand(own, states, taken, actions, every), 1e-4)


@pytest.mark.slow
def test_planning_sees_the_same():
    every = 2
    own, (states, taken, actions) = model(head=True), past()
    candidates = jnp.stack([jnp.asarray(actions), jnp.asarray(-actions)], axis=1)
    seen = LearnedModel(own, every)
    start = seen.encode(jnp.asarray(states), horizon=6, past_actions=jnp.asarray(taken))
    found = own.rollout(states, -actions, past_actions=taken, reencode_every=every)
    latents = seen.rollout(start, candidates)
    same(seen.reward(latents, candidates)[:, 1], found.rewards, 1e-4)
    assert seen.remembered_observations == HISTORY - 1

    rewarded = RewardedModel(own, lambda s, a, n: s[..., 0] + n[..., 1], every)
    start = rewarded.encode(jnp.asarray(states), horizon=6, past_actions=jnp.asarray(taken))
    rolled = rewarded.rollout(start, candidates)
    same(rolled[0], np.tile(states[-1], (2, 1)))
    same(rolled[1:, 1], found.states, 1e-4)


def test_trials_of_returns_equal_the_models_own():
    for every in (None, 2):
        own = model().with_reencoding(every)
        trial = ReturnTrials(data(), 8, past=own.past_steps).error(own, every)
        same(trial, free_run_error(own, data(), horizon=8), 1e-4)


@given(row=st.integers(0, 15), episode=st.integers(0, 3))
def test_windows_know_what_came_before_and_nothing_of_other_episodes(row, episode):
    episodes, length = data(), 20
    first = episode * (length + 1)
    sampler = WindowSampler(episodes, 5, past=3)
    windows = sampler.gather(jnp.asarray([first + row]))
    for age in range(1, 4):
        state, action = np.asarray(windows.past_states)[-age, 0], np.asarray(windows.past_actions)[-age, 0]
        if age > row:
            assert np.isnan(state).all()
            assert np.isnan(action).all()
        else:
            np.testing.assert_array_equal(state, episodes.observations[first + row - age])
            np.testing.assert_array_equal(action, episodes.actions[first + row - age])


def test_an_encoder_is_asked_about_steps_within_a_window():
    windows = jax.tree.map(jnp.asarray, fixed_windows(data(), 8, 5, 0, past=3).take(slice(None)))
    own = model()
    at_start = past_of_windows(own, windows)
    normalise = own.normaliser
    found = seen_later(
        at_start,
        normalise.normalise_state(windows.states),
        normalise.normalise_action(windows.actions),
        jnp.asarray([1, 6]),
    )
    later = fixed_windows(data(), 8, 5, 0, past=3)
    for number, step in enumerate((1, 6)):
        moved = (
            jax.tree.map(jnp.asarray, type(later)(later.episodes, later.rows + step + 1, 0 + 1, 5, 3).take(slice(None)))
            if step < 7
            else None
        )
        expected = past_of_windows(own, moved)
        same(found.states[number], expected.states)
        same(found.actions[number], expected.actions)


def test_some_windows_forget():
    keys = jax.random.split(jax.random.key(0), 400)
    states, taken, _ = past()
    whole = Past(jnp.asarray(states), jnp.asarray(taken))
    found = jax.vmap(forgetting, in_axes=(None, 0))(whole, keys)
    unknown = np.isnan(np.asarray(found.states)).any((1, 2))
    assert 0.03 < unknown.mean() < 0.2
    assert not np.isnan(np.asarray(found.states)[:, -1]).any()
    # A state and the action taken in it are forgotten together, and the older before the newer.
    np.testing.assert_array_equal(np.isnan(found.states)[:, :-1, 0], np.isnan(found.actions)[:, :, 0])
    assert (np.diff(np.isnan(np.asarray(found.states))[:, :, 0].astype(int), axis=1) <= 0).all()


def test_losses_are_finite_and_reach_the_whole_history():
    own = model().with_reencoding(3)
    windows = WindowSampler(data(), 8, past=own.past_steps).sample(jax.random.key(0), 6)
    config = TrainConfig(horizon=8, loss_stride=2, batch_size=6)

    def total(own):
        return sum(loss_terms(own, windows, config, key=jax.random.key(1)).values())

    gradient = eqx.filter_jit(eqx.filter_grad(total))(own)
    weight = np.asarray(gradient.encoder.network.layers[0].weight)
    assert np.isfinite(weight).all()
    assert (np.abs(weight).sum(0) > 0).all()  # states, actions and what is unknown


def oscillator(count=8, length=60):
    """Two masses and springs; the position of the first is measured, a force acts on it."""
    rng, found = np.random.default_rng(3), ([], [])
    step = np.array([[0.99, 0.1, 0.0, 0.0], [-0.15, 0.985, 0.1, 0.0], [0.0, 0.0, 0.99, 0.1], [0.1, 0.0, -0.15, 0.985]])
    for _ in range(count):
        x, positions, forces = rng.normal(size=4), [], rng.normal(size=(length, 1))
        for force in [*forces, None]:
            positions.append(x[:1].copy())
            x = step @ x + (0 if force is None else np.array([0, 0.3, 0, 0]) * force)
        found[0].append(np.stack(positions))
        found[1].append(forces)
    return Episodes.from_arrays(*found)


def test_a_regression_with_delays_finds_what_one_observation_hides(tmp_path):
    episodes = oscillator()
    errors = {}
    for history in (1, 6):
        own = DynamicsModel.create("dmdc", episodes, history=history, key=jax.random.key(0))
        run = fit(own, episodes[:5], validation=episodes[5:7], horizon=20, progress=False)
        errors[history] = prediction_error(run.model, episodes[7:], horizon=20).state.normalised
    assert errors[6] < 0.02 * errors[1]  # also where an episode begins, and little is known
    run.model.save(tmp_path / "delays.koopax")
    again = load_model(tmp_path / "delays.koopax")
    assert again.config.history == 6
    windows = jax.tree.map(jnp.asarray, fixed_windows(episodes, 20, 10, 0, past=5).take(slice(None)))
    np.testing.assert_array_equal(predict_windows(again, windows).states, predict_windows(run.model, windows).states)


def test_a_regression_expects_what_it_does_not_know():
    """Four observations tell all four components; one tells little, but a guess must not be worse than the mean."""
    episodes = oscillator()
    own = DynamicsModel.create("dmdc", episodes, history=6, key=jax.random.key(0))
    run = fit(own, episodes[:5], validation=episodes[5:7], horizon=20, progress=False)
    scale = np.asarray(run.model.normaliser.state_std)

    def error(known, first):
        missed = []
        for episode in episodes[7:]:
            begun = slice(first, first + known)
            taken, actions = episode.actions[begun][:-1], episode.actions[first + known - 1 :][:20]
            found = run.model.rollout(episode.observations[begun], actions, past_actions=taken).states
            missed.append((found - episode.observations[first + known :][:20]) / scale)
        return float(np.mean(np.square(missed)))

    for known in (4, 5, 6):
        assert error(known, 3) < 1e-4
    assert max(error(1, first) for first in (0, 3, 6)) < 1.5


def test_bad_input(unchecked_shapes):
    states, taken, actions = past()
    with pytest.raises(KoopaxError, match="history is 0"):
        DynamicsModel.create("koopman", data(), history=0, key=jax.random.key(0))
    with pytest.raises(KoopaxError, match="unknown history encoder 'gru'"):
        DynamicsModel.create("koopman", data(), history=2, history_encoder="gru", key=jax.random.key(0))
    gaps = states.copy()
    gaps[-1, 0] = np.nan
    with pytest.raises(KoopaxError, match="newest observation has gaps"):
        model().rollout(gaps, actions, past_actions=taken)
    with pytest.raises(KoopaxError, match="states has shape"):
        model().rollout(states[:, :1], actions)
    long = DynamicsModel.create("koopman", data(), **SMALL, history=21, key=jax.random.key(0))
    with pytest.raises(KoopaxError, match="a history of 21 observations"):
        fit(long, data(), steps=1, progress=False)


def test_step_by_step_is_the_rollout():
    own, (states, taken, actions) = model().with_reencoding(2), past()
    stepper = Stepper(own)

    @jax.jit
    def walk(states, taken, actions):
        begun = stepper.begin(states, taken)
        return jax.lax.scan(lambda now, a: ((found := stepper.step(now, a)).carried, found.state), begun, actions)[1]

    found = walk(*(jnp.asarray(each, jnp.float32) for each in (states, taken, actions)))
    same(found, own.rollout(states, actions, past_actions=taken).states, 1e-4)
