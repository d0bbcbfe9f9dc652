"""A model as an environment."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import VectorEnv

import koopax
from koopax.simulation.starts import make_starts

SMALL = {"latent_size": 4, "encoder_hidden": (6,), "decoder_hidden": (6,), "reward_hidden": (4,)}


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    return koopax.Episodes.from_arrays(
        [5 + 3 * random.normal(size=(31, 3)) for _ in range(4)],
        [random.uniform(-2, 1, size=(30, 2)) for _ in range(4)],
        [10 * random.normal(size=30) for _ in range(4)],
    )


@pytest.fixture(scope="module")
def models(data):
    """Three seeds of a model that remembers an action and returns to its encoder."""
    options = {**SMALL, "action_embedding": 3, "action_hidden": (5,), "action_history": 2, "reencode_every": 3}
    made = [koopax.DynamicsModel.create("koopman", data, key=jax.random.key(seed), **options) for seed in range(3)]
    return [jax.tree.map(lambda leaf: 1.5 * leaf, model) for model in made]


def test_gymnasium_finds_nothing_to_complain_of(models, data, recwarn):
    check_env(koopax.SimulatedEnv(models[:2], starts=data, max_steps=5), skip_render_check=True)
    # It recommends bounded spaces, which data does not tell.
    complaints = [str(warning.message) for warning in recwarn if "WARN" in str(warning.message)]
    assert all("Box" in complaint for complaint in complaints), complaints


def test_it_is_the_models_rollout(models, data):
    model, env = models[0], koopax.SimulatedEnv(models[0], starts=data, max_steps=8)
    state, info = env.reset(seed=3)
    assert info == {}
    assert any(np.array_equal(state, episode.observations[0]) for episode in data)
    env.action_space.seed(0)
    actions = np.stack([env.action_space.sample() for _ in range(8)])
    steps = [env.step(action) for action in actions]
    wanted = model.rollout(state, actions)
    np.testing.assert_allclose([step[0] for step in steps], wanted.states, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose([step[1] for step in steps], wanted.rewards, rtol=1e-4, atol=1e-4)
    assert [step[2] for step in steps] == [False] * 8
    assert [step[3] for step in steps] == [False] * 7 + [True]


def test_copies_that_end_start_again_in_the_same_step(models, data):
    many = koopax.SimulatedVectorEnv(models[:2], 6, starts=data, start_at="any", max_steps=4)
    assert isinstance(many, VectorEnv)
    observed, _ = many.reset(seed=0)
    assert len(np.unique(observed, axis=0)) > 1
    many.action_space.seed(0)
    for _ in range(3):
        observed, rewards, terminated, truncated, info = many.step(many.action_space.sample())
        assert observed.shape == (6, 3)
        assert np.isfinite(rewards).all()
        assert not (terminated | truncated).any()
        assert (info["uncertainty"] > 0).all()
    observed, _, terminated, truncated, info = many.step(many.action_space.sample())
    assert truncated.all()
    assert info["_final_obs"].all()
    starts = make_starts(data, state_size=3, action_size=2, start_at="any")
    for state, last in zip(observed, info["final_obs"], strict=True):
        assert (np.abs(starts - state).max(axis=1) < 1e-6).any()
        assert not (np.abs(starts - last).max(axis=1) < 1e-6).any()
    assert not many.step(many.action_space.sample())[3].any()


def test_copies_equal_a_rollout_from_given_states(models):
    starts = np.random.default_rng(1).normal(size=(1, 3)).astype(np.float32)
    many = koopax.SimulatedVectorEnv(models[0], 3, starts=starts, action_bounds=(-1, 1), max_steps=100)
    observed, _ = many.reset(seed=0)
    np.testing.assert_array_equal(observed, np.repeat(starts, 3, axis=0))
    actions = np.random.default_rng(2).uniform(-1, 1, size=(7, 3, 2)).astype(np.float32)
    found = [many.step(now) for now in actions]
    wanted = models[0].rollouts(observed, actions.swapaxes(0, 1))
    np.testing.assert_allclose([step[0] for step in found], wanted.states.swapaxes(0, 1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose([step[1] for step in found], wanted.rewards.swapaxes(0, 1), rtol=1e-4, atol=1e-4)


def test_episodes_end_at_bounds_and_where_models_disagree(models, data):
    inside = koopax.SimulatedEnv(models, starts=data, bounds=(-1e6, 1e6), most_uncertain=1e6)
    inside.reset(seed=0)
    *_, terminated, _, info = inside.step(np.zeros(2, np.float32))
    assert not terminated
    spread = info["uncertainty"]
    assert spread > 0
    low = np.array([-1e6, -1e6, 1e5])
    for options in ({"bounds": (low, 1e6)}, {"most_uncertain": 0.5 * spread}):
        env = koopax.SimulatedEnv(models, starts=data, **options)
        env.reset(seed=0)
        assert env.step(np.zeros(2, np.float32))[2], options


def test_uncertainty_is_the_spread_of_the_predictions(models, data):
    env = koopax.SimulatedEnv(models, starts=data, penalty=2.0, reward=lambda states, actions, after: after[..., 0])
    state, _ = env.reset(seed=0)
    action = np.array([0.3, -0.4], np.float32)
    after, reward, *_, info = env.step(action)
    predicted = np.stack([model.rollout(state, action[None]).states[0] for model in models])
    np.testing.assert_allclose(after, predicted.mean(0), rtol=1e-4)
    wanted = np.sqrt(np.mean(np.var(predicted / np.asarray(models[0].normaliser.state_std), axis=0)))
    assert info["uncertainty"] == pytest.approx(wanted, rel=1e-3)
    assert reward == pytest.approx(after[0] - 2 * wanted, rel=1e-3)


def test_a_prediction_that_is_not_finite_ends_the_episode(models, data):
    env = koopax.SimulatedEnv(models[0], starts=data, reward=lambda states, actions, after: jnp.nan * after[..., 0])
    state, _ = env.reset(seed=0)
    after, reward, terminated, *_ = env.step(np.zeros(2, np.float32))
    assert terminated
    assert reward == 0
    np.testing.assert_array_equal(after, state)


def test_starts_are_the_states_that_an_action_was_taken_in(data):
    starts = make_starts(data, state_size=3, action_size=2, start_at="any")
    assert starts.shape == (data.num_steps, 3)
    np.testing.assert_array_equal(starts[29], data[0].observations[29])
    np.testing.assert_array_equal(starts[30], data[1].observations[0])
    first = make_starts(data, state_size=3, action_size=2)
    np.testing.assert_array_equal(first, [episode.observations[0] for episode in data])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"starts": np.zeros((2, 4))}, r"starts have shape \(2, 4\), but the model's states have 3 components"),
        ({"starts": np.full((1, 3), np.nan)}, "starts hold NaN"),
        ({"starts": np.zeros((1, 3))}, "action_bounds are not known"),
        ({"bounds": (1.0, 0.0)}, "bounds contradict each other"),
        ({"bounds": (np.zeros(2), np.ones(2))}, r"bounds must be \(low, high\) with one number or 3 each"),
        ({"action_bounds": (np.ones(2), np.ones(2))}, "action_bounds contradict each other"),
        ({"most_uncertain": 0.1}, "one model has nobody to disagree with"),
        ({"penalty": 1.0}, "one model has nobody to disagree with"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"start_at": "last"}, "start_at is 'last'"),
    ],
)
def test_bad_input(models, data, options, message, unchecked_shapes):
    with pytest.raises(koopax.KoopaxError, match=message):
        koopax.SimulatedEnv(models[0], **{"starts": data, **options})


def test_more_bad_input(models, data):
    other = koopax.Episodes.from_arrays([np.random.default_rng(0).normal(size=(5, 2))], [np.ones((4, 2))])
    with pytest.raises(koopax.KoopaxError, match="the episodes have 2 state and 2 action components"):
        koopax.SimulatedEnv(models[0], starts=other)
    with pytest.raises(koopax.KoopaxError, match="the list is empty"):
        koopax.SimulatedEnv([], starts=data)
    with pytest.raises(koopax.KoopaxError, match="num_envs is 0"):
        koopax.SimulatedVectorEnv(models[0], 0, starts=data)
    with pytest.raises(koopax.KoopaxError, match="before reset"):
        koopax.SimulatedEnv(models[0], starts=data).step(np.zeros(2))
