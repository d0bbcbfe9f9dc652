"""The ring buffer and the running statistics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koopax.agents.sac.replay import (
    Transitions,
    extend_statistics,
    initial_statistics,
    insert,
    make_replay,
    sample,
)


def block(start, count):
    """Transitions whose reward is their number."""
    numbers = np.arange(start, start + count, dtype=np.float32)
    column = numbers[:, None]
    parts = np.repeat(column, 3, 1), np.repeat(column, 2, 1), numbers, numbers * 0 + 1, np.repeat(column + 1, 3, 1)
    return Transitions(*map(jnp.asarray, parts))


@given(blocks=st.integers(1, 20), count=st.sampled_from([1, 2, 4]))
@settings(max_examples=30, deadline=None)
def test_holds_the_newest_transitions(blocks, count):
    replay = make_replay(8, 3, 2)
    for i in range(blocks):
        replay = insert(replay, block(i * count, count))
    total = blocks * count
    assert int(replay.inserted) == total
    kept = np.sort(np.asarray(replay.storage.rewards)[: min(total, 8)])
    np.testing.assert_array_equal(kept, np.arange(max(0, total - 8), total))


def test_rows_stay_together_after_wrapping():
    replay = make_replay(8, 3, 2)
    for i in range(5):
        replay = insert(replay, block(4 * i, 4))
    batch = sample(replay, 500, key=jax.random.key(0))
    np.testing.assert_array_equal(batch.observations[:, 0], batch.rewards)
    np.testing.assert_array_equal(batch.actions[:, 1], batch.rewards)
    np.testing.assert_array_equal(batch.next_observations[:, 2], batch.rewards + 1)
    assert set(np.unique(batch.rewards)) == set(range(12, 20))


def test_samples_only_what_was_inserted():
    replay = insert(make_replay(8, 3, 2), block(100, 4))
    assert float(sample(replay, 200, key=jax.random.key(0)).rewards.min()) >= 100


def test_refuses_blocks_that_would_wrap():
    with pytest.raises(ValueError, match="multiple"):
        insert(make_replay(8, 3, 2), block(0, 3))


def test_statistics_equal_those_of_all_observations():
    rng = np.random.default_rng(0)
    parts = [rng.normal(5, 3, (n, 4)).astype(np.float32) for n in (3, 50, 1, 200)]
    statistics = initial_statistics(4)
    for part in parts:
        statistics = extend_statistics(statistics, jnp.asarray(part))
    everything = np.concatenate(parts)
    np.testing.assert_allclose(statistics.mean, everything.mean(0), rtol=1e-4)
    np.testing.assert_allclose(statistics.deviation(), everything.std(0), rtol=1e-4)
    scaled = statistics.normalise(jnp.asarray(everything))
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(scaled.std(0), 1, rtol=1e-3)


def test_statistics_of_a_constant_leave_it_finite():
    statistics = extend_statistics(initial_statistics(2), jnp.full((10, 2), 7.0))
    np.testing.assert_array_equal(statistics.normalise(jnp.full((1, 2), 7.0)), 0)
