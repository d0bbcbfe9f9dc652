"""Numbers that real data has: learned from data to predictions, or refused in one sentence."""

import jax
import numpy as np
import pytest

import koopax
from koopax import KoopaxError

MODEL = {"latent_size": 8, "encoder_hidden": (8,), "decoder_hidden": (8,)}


def arrays(length=12, state_size=2, action_size=1):
    """Ten episodes of x' = 0.9 x + 0.1 Σ u with the reward Σ x', float64."""
    rng = np.random.default_rng(0)
    states, actions = np.zeros((10, length + 1, state_size)), rng.normal(size=(10, length, action_size))
    states[:, 0] = rng.normal(size=(10, state_size))
    for step in range(length):
        states[:, step + 1] = 0.9 * states[:, step] + 0.1 * actions[:, step].sum(-1, keepdims=True)
    return states, actions, states[:, 1:].sum(-1)


def learn(states, actions, rewards, horizon=5, **settings):
    """The errors on held-out episodes of a model that was trained for a moment."""
    train, test = koopax.Episodes.from_arrays(states, actions, rewards).split(0.8, seed=0)
    model = koopax.DynamicsModel.create("koopman", train, **MODEL, key=jax.random.key(0))
    run = koopax.fit(model, train, validation=test, horizon=horizon, steps=20, batch_size=4, **settings)
    return koopax.prediction_error(run.model, test, horizon=horizon)


def constant_column(states, actions, rewards):
    return states * [1, 0] + [0, 3.0], actions, rewards


def constant_states(states, actions, rewards):
    return np.full_like(states, 3.0), actions, rewards


def constant_reward(states, actions, rewards):
    return states, actions, np.full_like(rewards, -1.0)


def constant_action(states, actions, rewards):
    return states, np.zeros_like(actions), rewards


def tiny(states, actions, rewards):
    return states * 1e-12, actions * 1e-12, rewards * 1e-12


def huge(states, actions, rewards):
    return states * 1e12, actions * 1e12, rewards * 1e12


@pytest.mark.slow
@pytest.mark.parametrize("change", [constant_column, constant_states, constant_reward, constant_action])
def test_what_does_not_change_is_learned(change):
    found = learn(*change(*arrays()))
    assert np.isfinite([found.state.normalised, found.state.raw, found.reward.normalised, found.reward.raw]).all()


@pytest.mark.slow
def test_units_are_learned_alike():
    plain, *others = (learn(*change(*arrays())) for change in (lambda *whole: whole, tiny, huge))
    for found in others:
        np.testing.assert_allclose(found.state.normalised, plain.state.normalised, rtol=1e-2)
        np.testing.assert_allclose(found.reward.normalised, plain.reward.normalised, rtol=1e-2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", ["observations", "actions", "rewards"])
def test_what_is_not_finite_is_refused_with_its_place(which, value):
    given = dict(zip(("observations", "actions", "rewards"), arrays(), strict=True))
    given[which][2, 3] = value
    with pytest.raises(KoopaxError, match=rf"{which} of episode 2 hold {value}.* \(row 3"):
        learn(*given.values())


def test_a_horizon_that_no_episode_has_is_refused_with_the_longest():
    with pytest.raises(KoopaxError, match=r"a window of 50 steps fits in none of .*longest of which has 12"):
        learn(*arrays(), horizon=50)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [{"length": 1}, {"state_size": 1}, {"action_size": 0}, {"length": 1, "state_size": 1, "action_size": 0}]
)
def test_the_smallest_shapes_are_learned(sizes):
    found = learn(*arrays(**sizes), horizon=1 if "length" in sizes else 5)
    assert np.isfinite([found.state.normalised, found.reward.normalised]).all()
