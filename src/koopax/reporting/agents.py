"""What the page shows of agents, as plain JSON: return curves with intervals over seeds, plans, errors and films."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from koopax.agents.recorded import RecordedRun
from koopax.reporting.groups import Group, by_task
from koopax.reporting.intervals import interval
from koopax.reporting.mp4 import FILM_RATE
from koopax.reporting.numbers import band, numbers, thinned

POINTS = 300
FILM = "play.mp4"
"""What `koopax agent play` calls its film."""
MOST_FILM = 16 << 20
"""Bytes of a film that a page still holds."""


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
        "planning": [planning for run in group.runs if (planning := _planning(run))],
        "videos": [video for run in group.runs if (video := _video(run))],
    }


def _planning(run: RecordedRun) -> dict[str, Any] | None:
    """How far a run's plans looked ahead while it learned, and its model's last error over the horizon."""
    known = [line for line in run.metrics if _are_numbers(line.get("plan_length"), line.get("environment_steps"))]
    if not known:
        return None
    chosen = [known[i] for i in thinned(len(known), POINTS)]
    measured = (line.get("consistency_errors") for line in reversed(known))
    errors = next((found for found in measured if isinstance(found, list) and _are_numbers(*found)), [])
    return {
        "seed": run.seed,
        "steps": numbers([line["environment_steps"] for line in chosen], 7),
        "lengths": [line["plan_length"] for line in chosen],
        "errors": numbers(errors),
    }


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _video(run: RecordedRun) -> dict[str, Any] | None:
    """The film that `koopax agent play` has left in the run folder, as base64."""
    path = run.folder / FILM
    if not path.is_file() or path.stat().st_size > MOST_FILM:
        return None
    return {"seed": run.seed, "rate": FILM_RATE, "mp4": base64.b64encode(path.read_bytes()).decode()}
