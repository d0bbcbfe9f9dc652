"""Data that stays on disk: the same windows as in memory, read ahead, from any step on."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import koopax
from episode_samples import mapped, random_episodes
from koopax import DynamicsModel, KoopaxError
from koopax.data import feeding, load, save
from koopax.data.feeding import Feed
from koopax.data.windows import WindowSampler
from koopax.training.config import TrainConfig
from koopax.training.programs import Programs, _rows_of_steps
from koopax.training.state import step_keys

SETTINGS = {"horizon": 5, "batch_size": 4, "log_every": 3, "validate_every": 5}


def on_disk(tmp_path, *, irregular=False):
    """A set in memory, and the same on disk after it was shuffled by a split, so that rows are found by episode."""
    episodes = random_episodes([12, 7, 3, 20, 9, 15], irregular=irregular)
    return episodes.split(0.8, seed=0)[0], mapped(episodes, tmp_path).split(0.8, seed=0)[0]


def small(episodes):
    return DynamicsModel.create("koopman", episodes, latent_size=8, encoder_hidden=(8,), key=jax.random.key(0))


def leaves(model):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_array))]


@pytest.mark.parametrize("irregular", [False, True])
def test_a_feed_gives_the_windows_that_are_drawn_in_memory(tmp_path, irregular):
    episodes, there = on_disk(tmp_path, irregular=irregular)
    assert there.is_memory_mapped
    here, sampler, key = WindowSampler(episodes, 5), WindowSampler(there, 5), jax.random.key(3)
    rows = eqx.filter_jit(_rows_of_steps)
    draw = jax.jit(lambda step: here.sample(step_keys(key, step)[0], 4))

    def rows_of(steps):
        return np.asarray(rows(sampler, key, steps, 4))

    feed = Feed(sampler, 4)
    try:
        for first in (0, 126, 3):  # also across the rows that are drawn together, and back
            feed.begin(rows_of, first)
            taken = feed.take(3, 5)
            assert not any(leaf[3:].any() for leaf in jax.tree.leaves(taken))
            for number in range(3):
                true = draw(jnp.asarray(first + number))
                for left, right in zip(jax.tree.leaves(taken), jax.tree.leaves(true), strict=True):
                    np.testing.assert_array_equal(left[number], right)
            assert feed.is_at(first + 3)
    finally:
        feed.close()


@pytest.mark.slow
def test_training_from_disk_is_training_in_memory_and_resumes_bit_for_bit(tmp_path, monkeypatch):
    episodes, there = on_disk(tmp_path)
    whole = koopax.fit(small(episodes), episodes, validation=episodes, steps=12, **SETTINGS)
    monkeypatch.setattr(feeding, "BLOCK_BYTES", 1000)  # so that a block of steps is cut into several
    assert Programs(there, None, TrainConfig(horizon=5, batch_size=4)).most == 1
    begun = {"validation": there, "checkpoint_every": 7, "final_learning_rate": 1.0, "warmup": 0.0, **SETTINGS}
    straight = koopax.fit(small(episodes), there, steps=12, **begun)
    koopax.fit(small(episodes), there, steps=7, out=tmp_path / "run", **begun)
    resumed = koopax.fit(small(episodes), there, steps=12, out=tmp_path / "run", resume=True, **begun)
    for left, right in zip(leaves(straight.model), leaves(resumed.model), strict=True):
        np.testing.assert_array_equal(left, right)
    there_too = koopax.fit(small(episodes), there, validation=there, steps=12, **SETTINGS)
    losses = [[line["loss"] for line in run.metrics if "loss" in line] for run in (whole, there_too)]
    np.testing.assert_allclose(*losses, rtol=1e-6)


@pytest.mark.slow
def test_without_grain_windows_are_read_one_batch_at_a_time(tmp_path, monkeypatch):
    episodes, there = on_disk(tmp_path)
    fed = koopax.fit(small(episodes), there, steps=3, **SETTINGS)
    monkeypatch.setattr("koopax.training.programs.can_feed", lambda: False)
    called = koopax.fit(small(episodes), there, steps=3, **SETTINGS)
    np.testing.assert_allclose(fed.metrics[-1]["loss"], called.metrics[-1]["loss"], rtol=1e-6)


def test_what_memory_a_process_may_use_decides_where_data_is_kept(tmp_path, monkeypatch):
    episodes, _ = on_disk(tmp_path)
    path = save(episodes, tmp_path / "again.episodes")
    assert not load(path).is_memory_mapped
    monkeypatch.setattr("koopax.data.loading.memory", lambda: 1000)
    assert load(path).is_memory_mapped
    with pytest.raises(KoopaxError, match="leave it on disk"):
        load(path, memory_map=False)
