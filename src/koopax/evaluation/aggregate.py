"""Aggregate statistics over runs and tasks, by rliable: mean, interquartile mean, optimality gap, profiles.

Scores are normalised returns, one matrix `[runs, tasks]` per method; 1 is the best that a task allows. Intervals come
from a bootstrap stratified by task (Agarwal et al., 2021): runs are resampled within each task.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from koopax._errors import KoopaxError

STATISTICS = ("mean", "iqm", "optimality_gap")


def aggregate(
    scores: Mapping[str, np.ndarray], *, seed: int, repetitions: int = 2_000, confidence: float = 0.95
) -> dict[str, dict[str, dict[str, Any]]]:
    """For each method and each of `STATISTICS`, its `value` and the bounds `low` and `high` of its interval.

    The IQM is the 25 % trimmed mean over runs × tasks; the optimality gap is the mean of max(1 − score, 0).
    """
    _check(scores)
    from rliable import library, metrics

    def statistics(matrix: np.ndarray) -> np.ndarray:
        return np.array(
            [
                metrics.aggregate_mean(matrix),
                metrics.aggregate_iqm(matrix),
                metrics.aggregate_optimality_gap(matrix),
            ]
        )

    with _seeded(seed):
        points, intervals = library.get_interval_estimates(
            dict(scores), statistics, reps=repetitions, confidence_interval_size=confidence
        )
    return {
        method: {
            name: {"value": float(points[method][i]), "low": float(low), "high": float(high)}
            for i, (name, low, high) in enumerate(zip(STATISTICS, *intervals[method], strict=True))
        }
        for method in scores
    }


def performance_profile(
    scores: Mapping[str, np.ndarray], thresholds: np.ndarray, *, seed: int, repetitions: int = 2_000
) -> dict[str, dict[str, np.ndarray]]:
    """For each method, the share of runs whose score is above each threshold: `value`, `low` and `high`."""
    _check(scores)
    from rliable import library

    with _seeded(seed):
        points, intervals = library.create_performance_profile(dict(scores), thresholds, reps=repetitions)
    return {
        method: {"value": points[method], "low": intervals[method][0], "high": intervals[method][1]}
        for method in scores
    }


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """NumPy's global generator, seeded and put back: rliable resamples with it whatever `random_state` it is given."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def _check(scores: Mapping[str, np.ndarray]) -> None:
    if not scores:
        raise KoopaxError("there are no scores to aggregate: give a matrix [runs, tasks] for one method or more.")
    for method, matrix in scores.items():
        if matrix.ndim != 2 or not matrix.size:
            raise KoopaxError(f"the scores of {method!r} have shape {matrix.shape}: give a matrix [runs, tasks].")
        if not np.all(np.isfinite(matrix)):
            raise KoopaxError(f"the scores of {method!r} are not all finite: count diverged runs as 0.")
