"""Prioritised replay: windows against the episodes they come from, and the distribution they are drawn with."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koopax._errors import KoopaxError
from koopax.agents.tdmpc.replay import Replay


def episode(number, length):
    """Rows that tell their episode and time: observation [number, t], action [number, t], reward 100 number + t."""
    time = np.arange(length + 1)
    rows = np.stack([np.full(length + 1, number), time], axis=1)
    return rows, rows[:-1], 100.0 * number + time[:-1]


def filled(lengths, capacity=64, terminated=lambda number: number % 2 == 0):
    replay = Replay(capacity, 2, 2, alpha=0.6, beta=0.4)
    for number, length in enumerate(lengths):
        replay.add(*episode(number, length), terminated(number))
    return replay


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=14), horizon=st.integers(1, 8), seed=st.integers(0, 9))
def test_windows_stay_in_their_episode(lengths, horizon, seed):
    """Also when the ring has wrapped around and cut its oldest episode."""
    replay = filled(lengths, capacity=40)
    sample = replay.sample(2, 16, horizon, np.random.default_rng(seed))
    observations, actions, rewards, continues, inside, _ = (np.asarray(part) for part in sample.windows)
    number, start = observations[:, 0, :, 0].astype(int), observations[:, 0, :, 1].astype(int)
    length = np.array(lengths)[number]
    step = np.arange(horizon)[None, :, None]
    assert np.all(start < length)
    np.testing.assert_array_equal(inside, start[:, None] + step < length[:, None])
    reached = np.minimum(start[:, None] + np.arange(horizon + 1)[None, :, None], length[:, None])
    np.testing.assert_array_equal(observations[..., 1], reached)
    assert np.all(observations[..., 0] == number[:, None])
    counted = inside.astype(bool)
    np.testing.assert_array_equal(actions[..., 1][counted], reached[:, :-1][counted])
    np.testing.assert_array_equal(rewards[counted], (100 * number[:, None] + reached[:, :-1])[counted])
    last = (reached[:, :-1] == length[:, None] - 1) & counted
    terminated = last & (number[:, None] % 2 == 0)
    np.testing.assert_array_equal(continues[counted], 1 - terminated[counted])


def test_starts_are_drawn_by_priority_and_weighted_by_importance():
    replay = filled([5, 4])
    rows = np.flatnonzero(replay.arrays["powers"])
    errors = np.array([0.1, 1.0, 2.0, 0.5, 4.0, 3.0, 1e-9, 0.2, 1.5])
    replay.set_priorities(rows, errors)
    sample = replay.sample(400, 50, 3, np.random.default_rng(0))
    share = np.bincount(sample.rows.ravel(), minlength=rows[-1] + 1)[rows] / sample.rows.size
    expected = np.maximum(errors, 1e-6) ** 0.6
    expected /= expected.sum()
    deviation = np.sqrt(expected * (1 - expected) / sample.rows.size)
    np.testing.assert_allclose(share, expected, atol=4.5 * deviation.max())
    weights = (len(rows) * expected) ** -0.4
    drawn = np.searchsorted(rows, sample.rows)
    np.testing.assert_allclose(
        sample.windows.weights, weights[drawn] / weights[drawn].max(axis=1, keepdims=True), rtol=1e-5
    )


def test_new_episodes_get_the_largest_priority():
    replay = filled([4])
    rows = np.arange(4)
    replay.set_priorities(rows, np.array([0.5, 7.0, 1.0, 2.0]))
    replay.add(*episode(1, 3), False)
    np.testing.assert_allclose(replay.arrays["powers"][5:8], 7.0**0.6)
    assert replay.arrays["powers"][4] == replay.arrays["powers"][8] == 0  # the last observations start nothing


@pytest.mark.parametrize("lengths", [[5, 7], [12, 12, 12, 12]])
def test_restore_returns_to_a_saved_state(lengths):
    replay, other = filled(lengths, capacity=40), Replay(40, 2, 2, alpha=0.6, beta=0.4)
    other.restore({name: np.copy(array) for name, array in replay.save().items()})
    for one in (replay, other):
        one.add(*episode(9, 6), False)
    a, b = (one.sample(2, 20, 4, np.random.default_rng(3)) for one in (replay, other))
    np.testing.assert_array_equal(a.rows, b.rows)
    for left, right in zip(a.windows, b.windows, strict=True):
        np.testing.assert_array_equal(left, right)


def test_an_episode_that_does_not_fit_is_refused():
    with pytest.raises(KoopaxError, match="replay_size 8"):
        filled([8], capacity=8)
