"""A resumable grid of agents: as `koopax.experiments.grid`, with agents' run folders."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from koopax._errors import DivergedError
from koopax._provenance import provenance
from koopax.agents import PixelSACConfig, TDMPCConfig, train_pixel_sac, train_tdmpc
from koopax.agents.pixels.config import OF_PREDICTIONS, PLAIN
from koopax.agents.run import TrainResult, Watch, holds_run
from koopax.experiments.experiment import Place, Watcher
from koopax.experiments.grid import Interrupted, Job, conditions, load_average, run_missing

KEPT = ("decisions", "updates", "seconds", "return", "evaluation_return", "evaluation_returns", "plan_length")
EVALUATED = ("consistency_errors", "spent")
"""What a result keeps of the lines with an evaluation only."""
CURVE = {"environment_steps": "env_steps"} | dict(zip(KEPT, KEPT, strict=True))
"""Metrics that a result keeps, and what they are called there."""


@dataclasses.dataclass(frozen=True)
class AgentCell:
    """One training run."""

    name: str
    """Unique in its experiment, and a file name."""
    labels: dict[str, Any]
    """Task, arm and seed."""
    config: TDMPCConfig | PixelSACConfig
    """What is trained."""


def run_agents(cells: Sequence[AgentCell], place: Place) -> list[dict[str, Any]]:
    """Run what is not finished yet and return the result of every cell, in order."""

    def run(numbers: Sequence[int], place: Place):
        for number in numbers:
            cell = cells[number]
            yield number, run_cell(cell, place.work / cell.name, place.watcher)

    return run_missing([Job(cell.name, made_of(cell), deciding=deciding) for cell in cells], run, place)


def made_of(cell: AgentCell) -> dict[str, Any]:
    """All that decides a cell's numbers, as JSON has it."""
    return json.loads(json.dumps({"config": dataclasses.asdict(cell.config), "core": cell.config.all_core_options}))


def deciding(made_of: dict[str, Any]) -> dict[str, Any]:
    """What decides a cell's numbers: an agent that predicts nothing has no use for the settings of predictions.

    Of the core's options all count, those that were given and the others: they stand in `core`.
    """
    config = made_of["config"]
    idle = OF_PREDICTIONS if config.get("dynamics") == PLAIN else ("core_options",)
    return made_of | {"config": {name: value for name, value in config.items() if name not in idle}}


def run_cell(cell: AgentCell, folder: Path, watcher: Watcher) -> dict[str, Any]:
    """Train one cell, or go on with it. A loss that becomes non-finite is a result: a return of zero."""
    document = {"cell": cell.name, "labels": cell.labels, "made_of": made_of(cell)}
    begin = load_average()
    try:
        with watcher(cell.name, cell.config.steps, None) as watch:
            run = _train(cell.config, folder, watch)
    except DivergedError as error:
        return {**document, "diverged": str(error), "return": 0.0, "curve": [], **provenance()}
    if run.interrupted:
        raise Interrupted
    curve = [_kept(line) for line in run.metrics]
    return {
        **document,
        "diverged": None,
        "conditions": conditions(begin),
        "return": curve[-1]["evaluation_return"],
        "seconds": curve[-1]["seconds"],
        "curve": curve,
        **provenance(),
    }


def _kept(line: dict[str, Any]) -> dict[str, Any]:
    evaluated = EVALUATED if "evaluation_return" in line else ()
    return {
        kept: line[name] for name, kept in [*CURVE.items(), *zip(evaluated, evaluated, strict=True)] if name in line
    }


def _train(config: TDMPCConfig | PixelSACConfig, folder: Path, watch: Watch) -> TrainResult:
    resume = holds_run(folder)
    if isinstance(config, PixelSACConfig):
        return train_pixel_sac(config, folder, resume=resume, watch=watch)
    return train_tdmpc(config, folder, resume=resume, watch=watch)
