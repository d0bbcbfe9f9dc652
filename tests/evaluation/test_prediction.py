"""Prediction errors against a plain loop, and divergence that is counted."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import koopax
from koopax import DynamicsModel, Episodes
from koopax.evaluation import prediction


@pytest.fixture(scope="module")
def setting():
    rng = np.random.default_rng(0)
    data = Episodes.from_arrays(
        [np.cumsum(rng.normal(size=(31, 3)), axis=0) for _ in range(5)],
        [rng.normal(size=(30, 2)) for _ in range(5)],
        [rng.normal(size=30) for _ in range(5)],
    )
    return data, DynamicsModel.create("koopman", data, latent_size=8, key=jax.random.key(0))


def test_errors_equal_a_loop_over_all_windows(setting, monkeypatch):
    data, model = setting
    monkeypatch.setattr(prediction, "BATCH", 7)  # several batches, and a smaller last one
    horizon = 6
    error = koopax.prediction_error(model, data, horizon=horizon, windows=10_000)
    rollout = eqx.filter_jit(model.rollout)
    states, rewards, constant, mean = [], [], [], []
    for i in range(data.num_episodes):
        episode = data.episode(i)
        for start in range(30 - horizon + 1):
            true = episode.observations[start + 1 : start + 1 + horizon]
            actions = jnp.asarray(episode.actions[start : start + horizon])
            found = rollout(jnp.asarray(episode.observations[start]), actions)
            states.append((found.states - true) ** 2)
            rewards.append((found.rewards - episode.rewards[start : start + horizon]) ** 2)
            constant.append((episode.observations[start] - true) ** 2)
            mean.append((np.asarray(model.normaliser.state_mean) - true) ** 2)
    assert error.windows == len(states) == 125
    std = np.asarray(model.normaliser.state_std)
    np.testing.assert_allclose(error.state.per_step_raw, np.mean(states, axis=(0, 2)), rtol=1e-4)
    np.testing.assert_allclose(error.state.per_step, np.mean(np.array(states) / std**2, axis=(0, 2)), rtol=1e-4)
    np.testing.assert_allclose(error.state.per_dimension, np.mean(np.array(states) / std**2, axis=(0, 1)), rtol=1e-4)
    np.testing.assert_allclose(error.reward.per_step_raw, np.mean(rewards, axis=0), rtol=1e-4)
    np.testing.assert_allclose(error.baselines["constant"][0].raw, np.mean(constant), rtol=1e-4)
    np.testing.assert_allclose(error.baselines["mean"][0].raw, np.mean(mean), rtol=1e-4)
    document = error.to_json()
    assert len(document["state"]["per_step"]) == horizon
    assert document["nonfinite"] == 0


def test_the_same_windows_for_every_model(setting):
    data, model = setting
    other = DynamicsModel.create("koopman", data, latent_size=16, key=jax.random.key(1))
    one, two = (koopax.prediction_error(m, data, horizon=5, windows=20) for m in (model, other))
    assert one.baselines["mean"][0].raw == two.baselines["mean"][0].raw
    assert one.state.raw != two.state.raw


def test_rollouts_that_are_not_finite_are_counted_not_dropped(setting):
    data, model = setting
    broken = eqx.tree_at(lambda m: m.decoder.layers[-1].bias, model, replace_fn=lambda bias: bias + np.nan)
    error = koopax.prediction_error(broken, data, horizon=5, windows=20)
    assert error.nonfinite == 20
    assert error.state.raw == np.inf
    assert error.to_json()["state"]["raw"] is None
