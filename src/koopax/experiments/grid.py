"""A resumable grid: one result file per cell, finished cells skipped, checkpoints inside a cell.

results/EXPERIMENT/BUDGET/cells/CELL.json   what a cell found, with its task, the conditions and provenance
WORK/EXPERIMENT/BUDGET/CELL/                its run folder while it trains

Cells of a group are compared at equal time: they take turns in one process, see `koopax.training.turns`.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from koopax._errors import DivergedError, KoopaxError
from koopax._provenance import provenance, usable_cores
from koopax._untrusted import read_json, reading
from koopax.evaluation.prediction import prediction_error
from koopax.experiments.experiment import Place
from koopax.models.presets import preset
from koopax.training.config import FORMER_VALUES, current_names
from koopax.training.fitting import resolved
from koopax.training.run import Run, write_json
from koopax.training.tasks import Splits, TrainTask, run_task, splits
from koopax.training.turns import run_tasks_in_turns


@dataclass(frozen=True)
class Cell:
    """One training and its test."""

    name: str
    """Unique in its experiment, and a file name."""
    labels: dict[str, Any]
    """Where it stands in the tables: dataset, model, seed, …"""
    task: TrainTask
    """What is trained."""
    group: str | None = None
    """Cells of the same group have the same data and take turns; None trains alone."""


@dataclass(frozen=True)
class Testing:
    """How a trained cell is tested."""

    horizon: int
    """Steps to predict."""
    windows: int
    """Windows of the test split, the same for every cell of a dataset."""
    split: str = "test"
    """"test", or "validation" while settings are still being chosen."""


@dataclass(frozen=True)
class Job:
    """What a grid knows of a cell."""

    name: str
    """Of its result file."""
    made_of: dict[str, Any]
    """All that decides its numbers; its document holds it under the same name."""
    group: str | None = None
    """Jobs of a group are run together."""


class Interrupted(Exception):
    """Ctrl-C during a grid: what is finished is kept, what was running has a checkpoint."""


def run_grid(cells: Sequence[Cell], testing: Testing, place: Place) -> list[dict[str, Any]]:
    """Run what is not finished yet and return the result of every cell, in order; see `run_missing`."""

    def run(numbers: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        together = _in_turns if len(numbers) > 1 else _alone
        for position, document in together([cells[number] for number in numbers], testing, place):
            yield numbers[position], document

    return run_missing([Job(cell.name, _made_of(cell), cell.group) for cell in cells], run, place)


def run_missing(
    jobs: Sequence[Job],
    run: Callable[[Sequence[int]], Iterable[tuple[int, dict[str, Any]]]],
    place: Place,
) -> list[dict[str, Any]]:
    """The document of every job, in order: read if it is there, made of the same settings, and else by `run`.

    `run` is given the numbers of jobs to run together, one job or those that are missing of a group, and yields each
    number with its document as soon as that is done. Where `place.only` is given, no other jobs are run than those
    whose names it finds, and unfinished ones are left out.
    """
    if len({job.name for job in jobs}) != len(jobs):
        raise KoopaxError("two cells of a grid have the same name: make their labels different.")
    found = {number: document for number, job in enumerate(jobs) if (document := _finished(job, place)) is not None}
    wanted = [n for n, job in enumerate(jobs) if n not in found and re.search(place.only or "", job.name)]
    for number in wanted:
        if number in found:
            continue
        group = jobs[number].group
        together = [n for n in wanted if n not in found and jobs[n].group == group] if group else [number]
        place.report(f"{number + 1}/{len(jobs)} {', '.join(jobs[n].name for n in together)}")
        for done, document in run(together):
            write_json(_path(jobs[done], place), document)
            found[done] = document
    if not found:
        where = str(place.results)
        raise KoopaxError(f"no cell of {where!r} is finished, and {place.only!r} is in no name: try another --only.")
    return [found[number] for number in sorted(found)]


def _path(job: Job, place: Place):
    return place.results / "cells" / f"{job.name}.json"


def _finished(job: Job, place: Place) -> dict[str, Any] | None:
    """The document of a job that is done, if it was made of the same settings."""
    path = _path(job, place)
    if not path.is_file():
        return None
    with reading(path, "the result of a cell", "delete it, and it is run again"):
        document = read_json(path)
        if "train" in document["made_of"]:
            document["made_of"]["train"] = FORMER_VALUES | document["made_of"]["train"]
        same = _stated(document["made_of"]) == _stated(job.made_of)
    if not same:
        raise KoopaxError(f"{str(path)!r} was made with other settings than today's: delete it, or use another --out.")
    return document


def _stated(settings: Any) -> Any:
    """The settings under today's names, without those that are None.

    An option that did not exist yet and one that is not used are alike.
    """
    if isinstance(settings, dict):
        return {name: _stated(value) for name, value in current_names(settings).items() if value is not None}
    return settings


def _made_of(cell: Cell) -> dict[str, Any]:
    """All that decides a cell's numbers, as JSON has it."""
    model = preset(cell.task.model) | dict(cell.task.model_options)
    train = asdict(resolved(cell.task.train, model["core"]))
    return json.loads(json.dumps(asdict(cell.task) | {"model_options": model, "train": train}, default=dict))


def error_of(cell: dict[str, Any], quantity: str, unit: str = "normalised") -> float:
    """The error that a cell found, infinite where it diverged in training or testing."""
    value = None if cell["error"] is None else cell["error"][quantity][unit]
    return float("inf") if value is None else value


def load_average() -> float | None:
    """Of the last minute; None where the system does not say."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def conditions(load_begin: float | None, *, slices: int = 1, turns_with: Sequence[str] = ()) -> dict[str, Any]:
    """What else went on while a cell was trained: cores, load, its slices of time, and the cells it took turns with."""
    load = {"load_begin": load_begin, "load_end": load_average()}
    return {"usable_cores": usable_cores(), **load, "slices": slices, "turns_with": list(turns_with)}


def _alone(cells: Sequence[Cell], testing: Testing, place: Place) -> Iterator[tuple[int, dict[str, Any]]]:
    (cell,) = cells
    folder, load = place.work / cell.name, load_average()
    episodes = splits(cell.task)
    resume = (folder / "config.json").is_file()
    with place.watcher(cell.name, cell.task.train.steps, cell.task.train.seconds) as watch:
        try:
            outcome = run_task(cell.task, folder, episodes=episodes, resume=resume, watch=watch)
        except DivergedError as error:
            outcome = error
    yield 0, _document(cell, outcome, conditions(load), testing, episodes)


def _in_turns(cells: Sequence[Cell], testing: Testing, place: Place) -> Iterator[tuple[int, dict[str, Any]]]:
    load, episodes = load_average(), splits(cells[0].task)
    names, seconds = [cell.name for cell in cells], [cell.task.train.seconds for cell in cells]
    total = None if None in seconds else sum(one for one in seconds if one is not None)
    with place.watcher(f"{len(cells)} cells in turns", None, total) as watch:
        turns = run_tasks_in_turns(
            [cell.task for cell in cells], [place.work / name for name in names], episodes, watch=watch
        )
    interrupted = False
    for number, (cell, turn) in enumerate(zip(cells, turns, strict=True)):
        if isinstance(turn.outcome, Run) and turn.outcome.stopped == "interrupted":
            interrupted = True
            continue
        around = conditions(load, slices=turn.slices, turns_with=[name for name in names if name != cell.name])
        yield number, _document(cell, turn.outcome, around, testing, episodes)
    if interrupted:
        raise Interrupted


def _document(
    cell: Cell, outcome: Run | DivergedError, around: dict[str, Any], testing: Testing, episodes: Splits
) -> dict[str, Any]:
    """What a cell found. A loss that becomes non-finite is a result, not a failure of the grid."""
    document = {"cell": cell.name, "labels": cell.labels, "made_of": _made_of(cell), "conditions": around}
    if isinstance(outcome, DivergedError):
        return {**document, "diverged": str(outcome), "error": None, **provenance()}
    if outcome.stopped == "interrupted":
        raise Interrupted
    tested = episodes.test if testing.split == "test" else episodes.validation
    error = prediction_error(outcome.model, tested, horizon=testing.horizon, windows=testing.windows)
    return {
        **document,
        "diverged": None,
        "step": outcome.step,
        "seconds": round(outcome.seconds, 2),
        "learning_rate": outcome.config.learning_rate,
        "parameters": outcome.model.num_parameters(),
        "testing": asdict(testing),
        "error": error.to_json(),
        "curve": [
            {name: line[name] for name in ("step", "seconds", "validation_state", "validation_reward")}
            for line in outcome.metrics
            if "validation_state" in line
        ],
        **provenance(),
    }
