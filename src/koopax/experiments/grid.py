"""A resumable grid: one result file per cell, finished cells skipped, checkpoints inside a cell.

results/EXPERIMENT/BUDGET/cells/CELL.json   what a cell found, with its task and provenance
WORK/EXPERIMENT/BUDGET/CELL/                its run folder while it trains
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from koopax._errors import DivergedError, KoopaxError
from koopax._provenance import provenance
from koopax.evaluation.prediction import prediction_error
from koopax.models.presets import preset
from koopax.training.fit import resolved
from koopax.training.run import write_json
from koopax.training.tasks import TrainTask, run_task, splits

Report = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """One training and its test."""

    name: str
    """Unique in its experiment, and a file name."""
    labels: dict[str, Any]
    """Where it stands in the tables: dataset, model, seed, …"""
    task: TrainTask
    """What is trained."""


@dataclass(frozen=True)
class Testing:
    """How a trained cell is tested."""

    horizon: int
    """Steps to predict."""
    windows: int
    """Windows of the test split, the same for every cell of a dataset."""
    split: str = "test"
    """"test", or "validation" while settings are still being chosen."""


class Interrupted(Exception):
    """Ctrl-C during a grid: what is finished is kept, what was running has a checkpoint."""


def run_grid(
    cells: Sequence[Cell],
    testing: Testing,
    results: Path,
    work: Path,
    *,
    report: Report,
    watcher: Callable,
    only: str | None = None,
) -> list[dict[str, Any]]:
    """Run what is not finished yet and return the result of every cell, in order; see `run_missing` for `only`."""
    return run_missing(
        [cell.name for cell in cells],
        [_made_of(cell) for cell in cells],
        lambda number: run_cell(cells[number], testing, work / cells[number].name, watcher),
        results,
        report=report,
        only=only,
    )


def run_missing(
    names: Sequence[str],
    made_of: Sequence[dict[str, Any]],
    run: Callable[[int], dict[str, Any]],
    results: Path,
    *,
    report: Report,
    only: str | None = None,
) -> list[dict[str, Any]]:
    """The document of every cell, in order: read if it is there, made of the same settings, and else by `run(number)`.

    `made_of` is all that decides a cell's numbers; a cell's document holds it under the same name. With `only`, a
    regular expression, no other cells are run than those whose names it finds, and unfinished ones are left out.
    """
    if len(set(names)) != len(names):
        raise KoopaxError("two cells of a grid have the same name: make their labels different.")
    found = []
    for number, name in enumerate(names):
        path = results / "cells" / f"{name}.json"
        if path.is_file():
            document = json.loads(path.read_text())
            if _stated(document["made_of"]) != _stated(made_of[number]):
                raise KoopaxError(
                    f"{str(path)!r} was made with other settings than today's: delete it, or use another --out."
                )
            found.append(document)
            continue
        if only is not None and not re.search(only, name):
            continue
        report(f"{number + 1}/{len(names)} {name}")
        document = run(number)
        write_json(path, document)
        found.append(document)
    if not found:
        raise KoopaxError(
            f"no cell of {str(results)!r} is finished, and {only!r} is found in no name: try another --only."
        )
    return found


def _stated(settings: Any) -> Any:
    """The settings without those that are None: an option that did not exist yet and one that is not used are alike."""
    if isinstance(settings, dict):
        return {name: _stated(value) for name, value in settings.items() if value is not None}
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


def run_cell(cell: Cell, testing: Testing, folder: Path, watcher: Callable) -> dict[str, Any]:
    """Train and test one cell. A loss that becomes non-finite is a result, not a failure of the grid."""
    resume = (folder / "config.json").is_file()
    document: dict[str, Any] = {"cell": cell.name, "labels": cell.labels, "made_of": _made_of(cell)}
    episodes = splits(cell.task)
    tested = episodes.test if testing.split == "test" else episodes.validation
    try:
        with watcher(cell.name, cell.task.train.steps, cell.task.train.seconds) as watch:
            run = run_task(cell.task, folder, episodes=episodes, resume=resume, watch=watch)
    except DivergedError as error:
        return {**document, "diverged": str(error), "error": None, **provenance()}
    if run.stopped == "interrupted":
        raise Interrupted
    error = prediction_error(run.model, tested, horizon=testing.horizon, windows=testing.windows)
    return {
        **document,
        "diverged": None,
        "step": run.step,
        "seconds": round(run.seconds, 2),
        "learning_rate": run.config.learning_rate,
        "parameters": run.model.num_parameters(),
        "testing": asdict(testing),
        "error": error.to_json(),
        "curve": [
            {name: line[name] for name in ("step", "seconds", "validation_state", "validation_reward")}
            for line in run.metrics
            if "validation_state" in line
        ],
        **provenance(),
    }
