"""What speeds say about each other: how time grows with the horizon, and how much faster one arm is than others."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from koopax.bench.settings import BASELINES, LISTING

# Below, a step's fixed costs (sampling, the optimiser) hide how its work grows.
LEAST_HORIZON = 50
OURS = "koopman"


def fit_exponent(horizons: Sequence[int], seconds: Sequence[float]) -> float | None:
    """p of the least-squares fit log seconds = p log τ + constant; None for fewer than two horizons."""
    if len(set(horizons)) < 2:
        return None
    slope, _ = np.polyfit(np.log(horizons), np.log(seconds), 1)
    return float(slope)


def exponents(results: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """p of time ∝ τᵖ by model, over horizons of 50 and more."""
    found = {}
    for model in dict.fromkeys(row["model"] for row in results):
        rows = [r for r in results if r["model"] == model and r["horizon"] >= LEAST_HORIZON and r["steps_per_second"]]
        found[model] = fit_exponent([r["horizon"] for r in rows], [1 / r["steps_per_second"] for r in rows])
    return found


def ratios(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By horizon: how many times as fast as each other arm, as the fastest baseline and as the listing Koopman is."""
    found = []
    for horizon in dict.fromkeys(row["horizon"] for row in results):
        speed = {r["model"]: r["steps_per_second"] for r in results if r["horizon"] == horizon}
        speed = {model: rate for model, rate in speed.items() if rate}
        if OURS not in speed:
            continue
        over = {model: speed[OURS] / rate for model, rate in speed.items() if model != OURS}
        fastest = min((model for model in over if model in BASELINES), key=lambda model: over[model], default=None)
        found.append(
            {
                "horizon": horizon,
                "fastest_baseline": fastest,
                "koopman_over_fastest_baseline": None if fastest is None else over[fastest],
                "koopman_over_listing": over.get(LISTING),
                "koopman_over": over,
            }
        )
    return found
