"""What the page shows of agents, as plain JSON: return curves with intervals over seeds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from koopax.agents.recorded import RecordedRun
from koopax.reporting.groups import Group, by_task
from koopax.reporting.intervals import interval
from koopax.reporting.numbers import band, numbers, thinned

POINTS = 300


def describe(runs: Sequence[RecordedRun]) -> list[dict[str, Any]]:
    """One document per task: the groups' curves."""
    return [{"task": task, "groups": [_returns(group) for group in groups]} for task, groups in by_task(runs).items()]


def _returns(group: Group[RecordedRun]) -> dict[str, Any]:
    """Every seed's curve, and their mean on the steps that all have reached."""
    curves = [
        (np.array([point.steps for point in run.curve], float), np.array([point.value for point in run.curve]))
        for run in group.runs
    ]
    steps = np.unique(np.concatenate([steps for steps, _ in curves]))
    steps = steps[(steps >= max(s.min() for s, _ in curves)) & (steps <= min(s.max() for s, _ in curves))]
    steps = steps[thinned(len(steps), POINTS)]
    found = interval(np.stack([np.interp(steps, *curve) for curve in curves]))
    return {
        "label": group.label,
        "seeds": [run.seed for run in group.runs],
        "steps": numbers(steps, 7),
        "returns": band(found),
        "final": band(interval(np.array([[returns[-1]] for _, returns in curves]))),
        "runs": [
            {"seed": run.seed, "steps": numbers(steps[chosen], 7), "returns": numbers(returns[chosen])}
            for run, (steps, returns) in zip(group.runs, curves, strict=True)
            for chosen in [thinned(len(steps), POINTS)]
        ],
    }
