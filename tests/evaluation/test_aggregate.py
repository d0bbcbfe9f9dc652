"""Aggregates against NumPy and against the sampling distribution that the bootstrap imitates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from koopax._errors import KoopaxError
from koopax.evaluation.aggregate import STATISTICS, aggregate, performance_profile


def scores(seed, runs=5, tasks=4):
    return np.random.default_rng(seed).uniform(0, 1.2, (runs, tasks))


@given(seed=st.integers(0, 100), runs=st.integers(1, 6), tasks=st.integers(1, 4))
def test_values_are_their_definitions(seed, runs, tasks):
    matrix = scores(seed, runs, tasks)
    found = aggregate({"a": matrix}, seed=0, repetitions=20)["a"]
    assert found["mean"]["value"] == pytest.approx(matrix.mean())
    flat = np.sort(matrix.ravel())
    cut = int(0.25 * flat.size)
    assert found["iqm"]["value"] == pytest.approx(flat[cut : flat.size - cut].mean())
    assert found["optimality_gap"]["value"] == pytest.approx(np.maximum(1 - matrix, 0).mean())
    assert set(found) == set(STATISTICS)


def test_intervals_are_those_of_runs_resampled_within_tasks():
    """One task differs much from the other: the interval does not contain that difference, only that between runs."""
    rng = np.random.default_rng(0)
    matrix = np.stack([rng.normal(0.1, 0.05, 40), rng.normal(0.9, 0.05, 40)], axis=1)
    found = aggregate({"a": matrix}, seed=1, repetitions=2000)["a"]["mean"]
    standard_error = np.sqrt((matrix.var(axis=0) / len(matrix)).sum()) / 2
    half = stats.norm.ppf(0.975) * standard_error
    assert found["low"] == pytest.approx(found["value"] - half, abs=0.2 * half)
    assert found["high"] == pytest.approx(found["value"] + half, abs=0.2 * half)


def test_same_seed_same_interval_and_the_global_generator_is_left_alone():
    data = {"a": scores(0), "b": scores(1)}
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, again, other = (aggregate(data, seed=seed, repetitions=50) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_profile_is_the_share_above_each_threshold():
    matrix, thresholds = scores(2), np.linspace(0, 1, 11)
    found = performance_profile({"a": matrix}, thresholds, seed=0, repetitions=50)["a"]
    np.testing.assert_allclose(found["value"], [(matrix > threshold).mean() for threshold in thresholds])
    assert np.all(found["low"] <= found["value"])
    assert np.all(found["value"] <= found["high"])


@pytest.mark.parametrize("bad", [{}, {"a": np.zeros(3)}, {"a": np.zeros((0, 2))}, {"a": np.array([[np.nan]])}])
def test_bad_scores_are_refused(bad):
    with pytest.raises(KoopaxError):
        aggregate(bad, seed=0)
