"""A resumable grid: one result file per cell, finished cells skipped, checkpoints inside a cell.

results/EXPERIMENT/BUDGET/cells/CELL.json   what a cell found, with its task, the conditions and provenance
WORK/EXPERIMENT/BUDGET/CELL/                its run folder while it trains

Cells of a group are compared at equal time: they take turns in one process, see `koopax.training.turns`.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from koopax._cluster import StoppedError, fetch
from koopax._compilations import make_room
from koopax._errors import DivergedError, KoopaxError
from koopax._provenance import provenance, usable_cores
from koopax._untrusted import read_json, reading
from koopax.evaluation.prediction import prediction_error
from koopax.experiments.experiment import Place, away
from koopax.models.presets import preset
from koopax.training.config import FORMER_VALUES, current_names
from koopax.training.run import Run, write_json
from koopax.training.settings import resolved
from koopax.training.tasks import Splits, TrainTask, run_task, splits
from koopax.training.turns import fair_clock, run_tasks_in_turns

# Options that say what is so without them: no pilot, no second member, no linear path, targets of one step, …
UNUSED = {
    "pilot_modes": 0,
    "members": 1,
    "linear_paths": False,
    "action_history": 1,
    "activation": "relu",
    "return_steps": 1,
}


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
    deciding: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """The part of a recorded `made_of` that decides the numbers: all of it by default."""


class Interrupted(Exception):
    """Ctrl-C during a grid: what is finished is kept, what was running has a checkpoint."""


def run_grid(cells: Sequence[Cell], testing: Testing, place: Place) -> list[dict[str, Any]]:
    """Run what is not finished yet and return the result of every cell, in order; see `run_missing`."""

    shared = _shared_data(cells, place)

    def run(numbers: Sequence[int], place: Place) -> Iterator[tuple[int, dict[str, Any]]]:
        together = _in_turns if len(numbers) > 1 else _alone
        chosen = [cells[number] for number in numbers]
        data = shared.get(chosen[0].task.source)
        episodes = splits(chosen[0].task) if data is None else fetch(data)
        for position, document in together(chosen, testing, place, episodes):
            yield numbers[position], document

    return run_missing([Job(cell.name, made_of(cell), cell.group) for cell in cells], run, place)


def _shared_data(cells: Sequence[Cell], place: Place) -> dict[str, Any]:
    """On a cluster, the splits of files, which only this machine may have; koopax's own sets are made anywhere."""
    if place.cluster is None:
        return {}
    tasks = {cell.task.source: cell.task for cell in cells if Path(cell.task.source).exists()}
    return {source: place.cluster.share(splits(task)) for source, task in tasks.items()}


def run_missing(
    jobs: Sequence[Job],
    run: Callable[[Sequence[int], Place], Iterable[tuple[int, dict[str, Any]]]],
    place: Place,
) -> list[dict[str, Any]]:
    """The document of every job, in order: read if it is there, made of the same settings, and else by `run`.

    `run` is given the numbers of jobs to run together, one job or those that are missing of a group, and where, and
    yields each number with its document as soon as that is done. With `place.cluster` that is on its machines. Where
    `place.only` is given, no other jobs are run than those whose names it finds, and unfinished ones are left out.
    """
    if len({job.name for job in jobs}) != len(jobs):
        raise KoopaxError("two cells of a grid have the same name: make their labels different.")
    found = {number: document for number, job in enumerate(jobs) if (document := finished(job, place)) is not None}
    wanted = [n for n, job in enumerate(jobs) if n not in found and re.search(place.only or "", job.name)]
    groups = _groups(jobs, wanted)
    if place.cluster is not None:
        for done, document in _on_cluster(jobs, groups, run, place):
            write_json(path_of(jobs[done], place), document)
            found[done] = document
            place.report(f"{len(found)}/{len(jobs)} {jobs[done].name}")
        groups = []
    for together in groups:
        make_room()
        place.report(f"{together[0] + 1}/{len(jobs)} {', '.join(jobs[n].name for n in together)}")
        for done, document in run(together, place):
            write_json(path_of(jobs[done], place), document)
            found[done] = document
    if not found:
        where = str(place.results)
        raise KoopaxError(f"no cell of {where!r} is finished, and {place.only!r} is in no name: try another --only.")
    return [found[number] for number in sorted(found)]


def _groups(jobs: Sequence[Job], wanted: Sequence[int]) -> list[list[int]]:
    """Numbers of jobs that run together, in the order of their first ones."""
    found: dict[str | int, list[int]] = {}
    for number in wanted:
        found.setdefault(jobs[number].group or number, []).append(number)
    return list(found.values())


def _on_cluster(
    jobs: Sequence[Job],
    groups: Sequence[list[int]],
    run: Callable[[Sequence[int], Place], Iterable[tuple[int, dict[str, Any]]]],
    place: Place,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Run every group as one job of the cluster; their run folders come back to `place.work`."""
    assert place.cluster is not None

    def job(numbers: list[int]) -> Callable[[Path], list[tuple[int, dict[str, Any]]]]:
        return lambda folder: list(run(numbers, away(folder)))

    names = {jobs[numbers[0]].name: numbers for numbers in groups}
    folders = {name: place.work / "cluster" / name for name in names}
    try:
        work = {name: job(numbers) for name, numbers in names.items()}
        for name, documents in place.cluster.run(work, folders):
            for number, document in documents:
                unpacked, own = folders[name] / jobs[number].name, place.work / jobs[number].name
                if unpacked.is_dir() and not own.exists():
                    unpacked.rename(own)
                yield number, document
            shutil.rmtree(folders[name], ignore_errors=True)
    except StoppedError:
        raise Interrupted from None


def path_of(job: Job, place: Place) -> Path:
    """The file of a job's result."""
    return place.results / "cells" / f"{job.name}.json"


def finished(job: Job, place: Place) -> dict[str, Any] | None:
    """The document of a job that is done, if it was made of the same settings."""
    path = path_of(job, place)
    if not path.is_file():
        return None
    with reading(path, "the result of a cell", "delete it, and it is run again"):
        document = read_json(path)
        made_of = document["made_of"]
        if "train" in made_of:
            made_of = made_of | {"train": FORMER_VALUES | made_of["train"]}
        same = _stated(job.deciding(made_of)) == _stated(job.deciding(job.made_of))
    if not same:
        raise KoopaxError(f"{str(path)!r} was made with other settings than today's: delete it, or use another --out.")
    return document


def _stated(settings: Any) -> Any:
    """The settings under today's names, without those that are None or say the same as nothing.

    An option that did not exist yet and one that is not used are alike.
    """
    if isinstance(settings, dict):
        named = current_names(settings).items()
        return {name: _stated(value) for name, value in named if value is not None and UNUSED.get(name) != value}
    return settings


def made_of(cell: Cell) -> dict[str, Any]:
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
    clock = {"clock": fair_clock().__name__} if turns_with else {}
    return {"usable_cores": usable_cores(), **load, **clock, "slices": slices, "turns_with": list(turns_with)}


def _alone(
    cells: Sequence[Cell], testing: Testing, place: Place, episodes: Splits
) -> Iterator[tuple[int, dict[str, Any]]]:
    (cell,) = cells
    folder, load = place.work / cell.name, load_average()
    resume = (folder / "config.json").is_file()
    with place.watcher(cell.name, cell.task.train.steps, cell.task.train.seconds) as watch:
        try:
            outcome = run_task(cell.task, folder, episodes=episodes, resume=resume, watch=watch)
        except DivergedError as error:
            outcome = error
    yield 0, document_of(cell, outcome, conditions(load), testing, episodes)


def _in_turns(
    cells: Sequence[Cell], testing: Testing, place: Place, episodes: Splits
) -> Iterator[tuple[int, dict[str, Any]]]:
    load = load_average()
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
        yield number, document_of(cell, turn.outcome, around, testing, episodes)
    if interrupted:
        raise Interrupted


def document_of(
    cell: Cell, outcome: Run | DivergedError, around: dict[str, Any], testing: Testing, episodes: Splits
) -> dict[str, Any]:
    """What a cell found. A loss that becomes non-finite is a result, not a failure of the grid."""
    document = {"cell": cell.name, "labels": cell.labels, "made_of": made_of(cell), "conditions": around}
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
