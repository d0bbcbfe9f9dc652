"""Intervals of means, by resampling whole clusters: seeds where there are several, else test episodes."""

from typing import NamedTuple

import numpy as np

LEVEL = 0.95


class Interval(NamedTuple):
    """A mean and where it may lie, each of the shape of one observation."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def interval(values: np.ndarray, clusters: np.ndarray | None = None, *, draws: int = 1000, seed: int = 0) -> Interval:
    """The mean of `values` over its first axis [N, …] and its 95 % percentile-bootstrap interval.

    Rows of one cluster are drawn together, as windows of one episode say nearly the same; each row is its own cluster
    by default. A mean that is infinite has infinite bounds; a single cluster has no width.
    """
    values = np.asarray(values, np.float64)
    _, number = np.unique(np.arange(len(values)) if clusters is None else clusters, return_inverse=True)
    counts = np.bincount(number).astype(np.float64)
    flat = values.reshape(len(values), -1)
    sums = np.zeros((len(counts), flat.shape[1]))
    np.add.at(sums, number, flat)
    mean = sums.sum(0) / counts.sum()
    finite = np.isfinite(mean)
    drawn = np.random.default_rng(seed).multinomial(len(counts), np.full(len(counts), 1 / len(counts)), size=draws)
    means = (drawn @ sums[:, finite]) / (drawn @ counts)[:, None]
    low, high = np.full_like(mean, np.inf), np.full_like(mean, np.inf)
    if finite.any():
        low[finite], high[finite] = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return Interval(*(part.reshape(values.shape[1:]) for part in (mean, low, high)))
