"""One score per agent and seed over all tasks, and what rliable makes of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from koopax._errors import KoopaxError
from koopax.agents.recorded import RecordedRun
from koopax.evaluation.aggregate import STATISTICS, aggregate, performance_profile
from koopax.reporting.groups import by_settings, flat
from koopax.reporting.numbers import numbers

DMC_BEST = 1000.0
"""The highest return of every dm_control task."""
EXPERTS = {"hopper": 3234.0, "halfcheetah": 12135.0, "walker2d": 4592.0}
"""D4RL's reference returns, by the environment's name without its version."""
THRESHOLDS = np.linspace(0, 1.2, 61)
"""τ of performance profiles."""


@dataclass(frozen=True)
class Scores:
    """Normalised returns of every agent on the tasks that all of them were trained on."""

    tasks: tuple[str, ...]
    """The columns."""
    steps: tuple[float, ...]
    """Environment steps at which each task is compared: as far as all of its runs have come."""
    scale: tuple[float, ...]
    """Return that counts as a score of 1, per task."""
    matrices: dict[str, np.ndarray]
    """By agent, [runs, tasks]."""
    notes: tuple[str, ...]
    """What was left out, and where a score's scale is the best run there is."""


def gather(runs: Sequence[RecordedRun], *, at: float | None = None) -> Scores:
    """Scores of agents at `at` environment steps, or as far as all runs of a task have come."""
    if not runs:
        raise KoopaxError("there are no runs of agents to aggregate: name folders that `koopax agent train` wrote.")
    methods = by_settings(runs, [_settings(run) for run in runs])
    tasks = tuple(dict.fromkeys(run.task for run in runs))
    shared = tuple(task for task in tasks if all(any(run.task == task for run in m.runs) for m in methods))
    if not shared:
        raise KoopaxError("no task was tried by all agents: aggregate runs on the same tasks.")
    of_task = {task: [run for run in runs if run.task == task] for task in shared}
    steps = tuple(float(min(run.curve[-1].steps for run in of_task[task]) if at is None else at) for task in shared)
    scales, notes = zip(*(_scale(task, of_task[task]) for task in shared), strict=True)
    if shared != tasks:
        notes += (f"Left out, as not all agents tried them: {', '.join(t for t in tasks if t not in shared)}.",)
    matrices = {}
    for method in methods:
        columns = [[run for run in method.runs if run.task == task] for task in shared]
        count = min(len(column) for column in columns)
        if any(len(column) != count for column in columns):
            notes += (f"Of {method.label}, the first {count} seeds of each task count, as all tasks have those.",)
        matrices[method.label] = np.array(
            [
                [_return(column[i], step) / scale for column, step, scale in zip(columns, steps, scales, strict=True)]
                for i in range(count)
            ]
        )
    return Scores(shared, steps, scales, matrices, tuple(note for note in notes if note))


def describe(scores: Scores, *, seed: int = 0, repetitions: int = 2000) -> dict[str, Any]:
    """Aggregates and performance profiles, as plain JSON."""
    found = aggregate(scores.matrices, seed=seed, repetitions=repetitions)
    profiles = performance_profile(scores.matrices, THRESHOLDS, seed=seed, repetitions=repetitions)
    return {
        "tasks": [
            {"task": task, "steps": step, "score_of_one": scale}
            for task, step, scale in zip(scores.tasks, scores.steps, scores.scale, strict=True)
        ],
        "notes": list(scores.notes),
        "thresholds": numbers(THRESHOLDS),
        "agents": [
            {
                "agent": agent,
                "runs": int(matrix.size),
                **{name: found[agent][name] for name in STATISTICS},
                "profile": {name: numbers(values) for name, values in profiles[agent].items()},
            }
            for agent, matrix in scores.matrices.items()
        ],
    }


def _settings(run: RecordedRun) -> dict[str, Any]:
    """What makes an agent of a run: everything but the task."""
    return {name: value for name, value in flat(run.settings).items() if name.split(".")[-1] not in ("task", "env")}


def _scale(task: str, runs: Sequence[RecordedRun]) -> tuple[float, str]:
    """The return of a score of 1, and a note where it had to be made up."""
    name = task.removeprefix("dm_control/")
    if task.startswith("dm_control/") or re.fullmatch(r"[a-z0-9_]+-[a-z0-9_]+", name):
        return DMC_BEST, ""
    known = EXPERTS.get(re.sub(r"-v\d+$", "", name).lower())
    if known is not None:
        return known, ""
    best = max(max(point.value for point in run.curve) for run in runs)
    if not best > 0:
        raise KoopaxError(
            f"no run on {task!r} has a positive return, so its scores have no scale: leave that task out."
        )
    return best, f"On {task}, 1 is the best return of these runs, as the task has no reference."


def _return(run: RecordedRun, steps: float) -> float:
    """The last evaluation up to so many steps, or the first one."""
    reached = [point for point in run.curve if point.steps <= steps] or run.curve[:1]
    return reached[-1].value
