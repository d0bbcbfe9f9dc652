"""Bootstrapped intervals against a slow twin, and what they must never hide."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from koopax.reporting.intervals import interval


def slow_twin(values, clusters, draws, seed):
    """Resample clusters one by one, with the same counts."""
    names = np.unique(clusters)
    counts = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
    means = []
    for drawn in counts:
        rows = [values[clusters == name] for name, times in zip(names, drawn, strict=True) for _ in range(times)]
        means.append(np.concatenate(rows).mean(0))
    return values.mean(0), *np.quantile(np.array(means), [0.025, 0.975], axis=0)


@given(seed=st.integers(0, 100), rows=st.integers(1, 12), clusters=st.integers(1, 4))
def test_agrees_with_resampling_by_hand(seed, rows, clusters):
    rng = np.random.default_rng(seed)
    values, names = rng.normal(size=(rows, 3)), rng.integers(0, clusters, rows)
    found = interval(values, names, draws=40, seed=seed)
    for part, expected in zip(found, slow_twin(values, names, 40, seed), strict=True):
        np.testing.assert_allclose(part, expected, atol=1e-12)


def test_windows_of_one_episode_count_once():
    values = np.repeat(np.array([0.0, 1.0, 2.0, 3.0]), 50)[:, None]
    apart = interval(values)
    together = interval(values, np.repeat(np.arange(4), 50))
    assert (together.high - together.low)[0] > 4 * (apart.high - apart.low)[0]


def test_a_diverged_rollout_is_not_averaged_away():
    values = np.ones((10, 2))
    values[3, 1] = np.inf
    found = interval(values)
    np.testing.assert_array_equal(found.mean, [1, np.inf])
    np.testing.assert_array_equal(found.high, [1, np.inf])


def test_one_cluster_has_no_width():
    found = interval(np.arange(6.0).reshape(6, 1), np.zeros(6))
    assert found.low == found.mean == found.high == 2.5
