"""Free runs over whole episodes: error and fit of each column, by hand."""

import equinox as eqx
import jax
import numpy as np
import pytest

from koopax import DynamicsModel, Ensemble, Episodes, KoopaxError
from koopax.evaluation import whole, whole_episodes


def data(lengths=(12, 30, 7), state=2):
    rng = np.random.default_rng(0)
    return Episodes.from_arrays(
        [rng.normal(size=(n + 1, state)) for n in lengths],
        [rng.normal(size=(n, 1)) for n in lengths],
        state_names=("voltage", "current"),
    )


@pytest.mark.parametrize("history", [1, 3])
def test_every_episode_is_predicted_from_its_first_history_to_its_end(history, monkeypatch):
    episodes = data()
    model = DynamicsModel.create("gru", episodes, latent_size=4, history=history, key=jax.random.key(0))
    errors, true = [], []
    for episode in episodes:
        start = episode.observations[:history] if history > 1 else episode.observations[0]
        past = episode.actions[: history - 1] if history > 1 else None
        found = model.rollout(start, episode.actions[history - 1 :], past_actions=past).states
        errors.append(np.asarray(found, np.float64) - episode.observations[history:])
        true.append(episode.observations[history:])
    errors, true = np.concatenate(errors), np.concatenate(true).astype(np.float64)
    missed = np.linalg.norm(errors, axis=0) / np.linalg.norm(true - true.mean(axis=0), axis=0)
    watched = []
    for together in (30, 100_000):  # one episode at a time, and all at once
        monkeypatch.setattr(whole, "TOGETHER", together)
        found = whole_episodes(model, episodes, watch=lambda *now: watched.append(now))
        document = found.to_json()
        assert list(document["columns"]) == ["voltage", "current"]
        np.testing.assert_allclose([c.rmse for c in found.columns.values()], np.sqrt(np.mean(errors**2, 0)), rtol=1e-5)
        np.testing.assert_allclose([c.fit_percent for c in found.columns.values()], 100 * (1 - missed), rtol=1e-4)
        assert (found.episodes, found.longest, found.nonfinite) == (3, 31 - history, 0)
        assert watched[-1] == (len(true), len(true)) == (found.steps, found.steps)
        assert document["reward"] is None


def test_an_ensemble_predicts_the_mean_of_free_runs():
    episodes = data(lengths=(12, 12))
    members = [DynamicsModel.create("gru", episodes, latent_size=4, key=jax.random.key(k)) for k in range(2)]
    found = whole_episodes(Ensemble(members), episodes)
    runs = [
        np.mean([m.rollout(e.observations[0], e.actions).states for m in members], axis=0) - e.observations[1:]
        for e in episodes
    ]
    rmse = np.sqrt(np.mean(np.concatenate(runs) ** 2, axis=0))
    np.testing.assert_allclose([column.rmse for column in found.columns.values()], rmse, rtol=1e-4)
    assert found.model == "2 × gru"


def test_divergence_is_counted_and_told():
    episodes = data()
    model = DynamicsModel.create("dmdc", episodes, key=jax.random.key(0))
    exploding = jax.tree.map(lambda leaf: 1e20 * leaf, model.core)
    found = whole_episodes(eqx.tree_at(lambda own: own.core, model, exploding), episodes)
    assert found.nonfinite == 3
    assert found.to_json()["columns"]["voltage"] == {"rmse": None, "fit_percent": None}


def test_a_history_longer_than_an_episode_is_refused():
    model = DynamicsModel.create("gru", data(), latent_size=4, history=8, key=jax.random.key(0))
    with pytest.raises(KoopaxError, match="an episode of 7 steps leaves nothing to predict after a history of 8"):
        whole_episodes(model, data())
