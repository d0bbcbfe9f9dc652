"""Runs that belong together: the same model, settings and data with different seeds, and groups on the same data."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from koopax.agents.recorded import RecordedRun
from koopax.reporting.runs import ModelRun
from koopax.training.config import current_names
from koopax.training.tasks import TrainTask

R = TypeVar("R", ModelRun, RecordedRun)

IRRELEVANT = {"seed", "log_every", "validate_every", "checkpoint_every", "checkpoint_seconds", "snapshot_every"}
"""Settings that don't make another model of a run."""


@dataclass(frozen=True)
class Group(Generic[R]):
    """Runs that differ in their seed only."""

    label: str
    """What tells the group from others in the same chart."""
    runs: tuple[R, ...]
    """In the order of their seeds."""


@dataclass(frozen=True)
class DataGroup:
    """Groups of runs on the same data, whose errors can be compared."""

    name: str
    """The source, or what is known of it."""
    groups: tuple[Group[ModelRun], ...]
    """In the order of the command line."""


def by_data(runs: Sequence[ModelRun]) -> list[DataGroup]:
    """Model runs grouped by their data, then by everything but the seed."""
    kept: dict[str, list[ModelRun]] = {}
    for run in runs:
        task = run.task
        key = "" if task is None else _key([task.source, dict(task.source_options), task.split, task.split_seed])
        kept.setdefault(key, []).append(run)
    tasks = [of_data[0].task for of_data in kept.values()]
    sources = [task.source for task in tasks if task is not None]

    def name(task: TrainTask | None) -> str:
        if task is None:
            return "data that is not recorded"
        short = Path(task.source).name if Path(task.source).is_absolute() else task.source
        return short if sources.count(task.source) == 1 else f"{short} {_plain(task.source_options)}"

    return [
        DataGroup(name(task), tuple(by_settings(of_data, [_model_settings(run) for run in of_data])))
        for task, of_data in zip(tasks, kept.values(), strict=True)
    ]


def by_task(runs: Sequence[RecordedRun]) -> dict[str, list[Group[RecordedRun]]]:
    """Agent runs grouped by their task, then by everything but the seed."""
    kept: dict[str, list[RecordedRun]] = {}
    for run in runs:
        kept.setdefault(run.task, []).append(run)
    return {task: by_settings(of_task, [flat(run.settings) for run in of_task]) for task, of_task in kept.items()}


def by_settings(runs: Sequence[R], settings: Sequence[Mapping[str, Any]]) -> list[Group[R]]:
    """Runs with equal settings in one group; a name that two groups share is told apart by what differs."""
    groups: dict[str, list[R]] = {}
    chosen: dict[str, dict[str, Any]] = {}
    for run, all_settings in zip(runs, settings, strict=True):
        relevant = {name: value for name, value in all_settings.items() if name.split(".")[-1] not in IRRELEVANT}
        key = run.name + _key(relevant)
        groups.setdefault(key, []).append(run)
        chosen[key] = relevant
    labels = _labels([(of[0].name, chosen[key]) for key, of in groups.items()])
    return [
        Group(label, tuple(sorted(of, key=lambda run: run.seed)))
        for label, of in zip(labels, groups.values(), strict=True)
    ]


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level with dotted names."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def _model_settings(run: ModelRun) -> dict[str, Any]:
    return flat({"train": current_names(run.document["train"]), "model": run.document["model"]})


def _labels(named: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    labels = []
    for name, settings in named:
        rivals = [other for rival, other in named if rival == name and other != settings]
        differing = [key for key in settings if any(other.get(key) != settings[key] for other in rivals)]
        shown = [f"{key.split('.')[-1].replace('_', ' ')} {_plain(settings[key])}" for key in differing[:2]]
        labels.append(" · ".join([name, *shown]))
    # Settings beyond the first two may be what differs: number what is still equal.
    return [
        label if labels.count(label) == 1 else f"{label} ({labels[: i + 1].count(label)})"
        for i, label in enumerate(labels)
    ]


def _key(document: Any) -> str:
    return json.dumps(document, sort_keys=True, default=str)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(part)}" for name, part in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
