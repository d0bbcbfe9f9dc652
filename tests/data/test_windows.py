import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from episode_samples import mapped, random_episodes
from koopax._errors import KoopaxError
from koopax.data import Episodes, WindowSampler, fixed_windows, valid_starts


def numbered(lengths, irregular=False) -> Episodes:
    """Episodes whose state is (episode, step), so that a window shows where it comes from."""
    return Episodes.from_arrays(
        [np.stack([np.full(n + 1, e), np.arange(n + 1)], 1) for e, n in enumerate(lengths)],
        [np.stack([np.full(n, e), np.arange(n)], 1) for e, n in enumerate(lengths)],
        [e * 1000 + np.arange(n) for e, n in enumerate(lengths)],
        durations=[1 + np.arange(n) for n in lengths] if irregular else None,
    )


def starts_of(windows) -> list[tuple[int, int]]:
    """Check that each window is consecutive steps of one episode, and return (episode, first step)."""
    states, actions, rewards = (np.asarray(a) for a in windows[:3])
    horizon, batch = rewards.shape
    assert states.shape == (horizon + 1, batch, 2)
    assert actions.shape == (horizon, batch, 2)
    assert (states[:, :, 0] == states[:1, :, 0]).all(), "a window crosses an episode"
    assert (np.diff(states[:, :, 1], axis=0) == 1).all(), "a window is not consecutive"
    np.testing.assert_array_equal(actions, states[:-1])
    np.testing.assert_array_equal(rewards, states[:-1, :, 0] * 1000 + states[:-1, :, 1])
    if windows.durations is not None:
        np.testing.assert_array_equal(windows.durations, states[:-1, :, 1] + 1)
    return [(int(e), int(s)) for e, s in states[0]]


def all_starts(lengths, horizon):
    return {(e, s) for e, n in enumerate(lengths) for s in range(n - horizon + 1)}


cases = (st.lists(st.integers(1, 8), min_size=1, max_size=8), st.integers(1, 8), st.integers(0, 2**31), st.booleans())


@given(*cases)
@settings(max_examples=200)
def test_fixed_windows_are_every_valid_start_once(lengths, horizon, seed, irregular):
    episodes = numbered(lengths, irregular)
    possible = all_starts(lengths, horizon)
    np.testing.assert_array_equal(
        valid_starts(episodes, horizon), [sum(e == i for e, _ in possible) for i in range(len(lengths))]
    )
    if not possible:
        with pytest.raises(KoopaxError, match=f"longest of which has {max(lengths)} steps"):
            fixed_windows(episodes, horizon, 1, seed)
        return
    fixed = fixed_windows(episodes, horizon, len(possible), seed, batch_size=7)
    assert sorted(s for batch in fixed for s in starts_of(batch)) == sorted(possible)


@given(st.lists(st.integers(1, 8), min_size=5, max_size=5), st.integers(0, 2**31))
def test_sampled_windows_stay_inside_episodes_and_every_start_occurs(lengths, seed):
    # The last episode makes the number of rows the same in every example, so that shapes are compiled once.
    lengths = [*lengths, 60 - sum(lengths)]
    possible = all_starts(lengths, 3)
    sampler = WindowSampler(numbered(lengths), 3)
    assert sampler.num_windows == len(possible)
    # A start is missed with probability (1 − 1/n)^(40 n) < e^−40.
    found = set(starts_of(sampler.sample(jax.random.key(seed), 40 * 60)))
    assert found == possible


def test_starts_are_uniform():
    lengths = [12, 3, 30, 7, 5]
    episodes = numbered(lengths)
    possible = sorted(all_starts(lengths, 5))
    draws = starts_of(WindowSampler(episodes, 5).sample(jax.random.key(0), 20_000))
    counts = [draws.count(start) for start in possible]
    assert stats.chisquare(counts).pvalue > 1e-3
    fixed = [s for seed in range(600) for batch in fixed_windows(episodes, 5, 10, seed) for s in starts_of(batch)]
    assert stats.chisquare([fixed.count(start) for start in possible]).pvalue > 1e-3


def test_same_key_same_windows_inside_and_outside_jit():
    sampler = WindowSampler(random_episodes([20, 30, 5], irregular=True), 10)
    compiled = jax.jit(lambda sampler, key: sampler.sample(key, 16))
    key = jax.random.key(3)
    first = sampler.sample(key, 16)
    for again in (sampler.sample(key, 16), compiled(sampler, key)):
        jax.tree.map(np.testing.assert_array_equal, first, again)
    other = sampler.sample(jax.random.key(4), 16)
    assert not np.array_equal(first.states, other.states)
    assert compiled._cache_size() == 1


@pytest.mark.parametrize("irregular", [False, True])
def test_mapped_windows_equal_those_in_memory(tmp_path, irregular):
    episodes = random_episodes([20, 3, 30, 25], irregular=irregular)
    on_disk = mapped(episodes, tmp_path)
    compiled = jax.jit(lambda sampler, key: sampler.sample(key, 33))
    for here, there in ((episodes, on_disk), (episodes.split(0.5, 0)[0], on_disk.split(0.5, 0)[0])):
        left, right = (compiled(WindowSampler(e, 6), jax.random.key(1)) for e in (here, there))
        jax.tree.map(np.testing.assert_array_equal, left, right)
        for a, b in zip(fixed_windows(here, 6, 40, 2), fixed_windows(there, 6, 40, 2), strict=True):
            jax.tree.map(np.testing.assert_array_equal, a, b)


def test_fixed_windows_are_distinct_repeatable_and_streamed():
    episodes = numbered([300] * 20)
    windows = fixed_windows(episodes, 100, 1000, seed=0, batch_size=64)
    first = [s for batch in windows for s in starts_of(batch)]
    assert len(set(first)) == len(first) == windows.num_windows == 1000
    assert len(windows) == 16
    assert first == [s for batch in windows for s in starts_of(batch)]
    assert first != [s for batch in fixed_windows(episodes, 100, 1000, seed=1) for s in starts_of(batch)]
    assert fixed_windows(episodes, 100, 10**6, seed=0).num_windows == 20 * 201


def test_bad_horizons_and_counts():
    episodes = random_episodes([5, 9])
    with pytest.raises(KoopaxError, match=r"window of 10 steps fits in none of the 2 episodes.*longest.*9 steps \(0 w"):
        WindowSampler(episodes, 10)
    with pytest.raises(KoopaxError, match="horizon of 0"):
        valid_starts(episodes, 0)
    with pytest.raises(KoopaxError, match="0 windows"):
        fixed_windows(episodes, 2, 0, 0)
