"""`koopax reproduce`: every table and figure of the paper by name."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from koopax._atomic import new_file
from koopax._errors import unknown_name
from koopax.experiments import (
    ablations,
    figures,
    gradients,
    planning,
    planning_figures,
    prediction,
    search,
    speed,
)
from koopax.experiments.budgets import Budget, budget
from koopax.experiments.grid import Cell, Testing, run_grid
from koopax.experiments.summaries import Summary
from koopax.training.run import write_json


@dataclass(frozen=True)
class GridExperiment:
    """An experiment that trains and tests cells."""

    cells: Callable[[Budget], list[Cell]]
    summarise: Callable[[list[dict[str, Any]]], Summary]
    figure: Callable[[list[dict[str, Any]]], Any]
    split: str = "test"


GRIDS = {
    "prediction": GridExperiment(prediction.cells, prediction.summarise, figures.prediction),
    "init-ablation": GridExperiment(ablations.init_cells, ablations.summarise_init, figures.ablation),
    "latent-ablation": GridExperiment(ablations.latent_cells, ablations.summarise_latent, figures.ablation),
    "search": GridExperiment(search.cells, search.summarise, figures.search, split="validation"),
}


@dataclass(frozen=True)
class Measurement:
    """An experiment that trains nothing to the end: one document, measured in one go."""

    measure: Callable[[Budget], dict[str, Any]]
    summarise: Callable[[dict[str, Any]], Summary]
    figure: Callable[[dict[str, Any]], Any]


MEASUREMENTS = {
    "gradients": Measurement(gradients.measure, gradients.summarise, figures.gradients),
    "speed": Measurement(speed.measure, speed.summarise, speed.figure),
}


@dataclass(frozen=True)
class AgentExperiment:
    """An experiment that trains agents."""

    cells: Callable[[planning.PlanningBudget], list[planning.PlanningCell]]
    summarise: Callable[[list[dict[str, Any]]], Summary]
    figure: Callable[[list[dict[str, Any]]], Any]


AGENTS = {
    "planning": AgentExperiment(planning.cells, planning.summarise, planning_figures.curves),
    "planning-decay": AgentExperiment(planning.sweep_cells, planning.summarise_sweep, planning_figures.curves),
}
EXPERIMENTS = (*GRIDS, *MEASUREMENTS, *AGENTS)


def reproduce(
    name: str,
    budget_name: str,
    *,
    results: Path,
    work: Path,
    report: Callable[[str], None],
    watcher: Callable,
    only: str | None = None,
) -> Path:
    """Run what is not finished of an experiment, and write its table and figure. Returns their folder.

    With `only`, a regular expression, only cells whose names it finds are run, and the table is of what is finished.
    """
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    size = planning.planning_budget(budget_name) if name in AGENTS else budget(budget_name)
    folder = results / name / budget_name
    folder.mkdir(parents=True, exist_ok=True)
    keep_compilations(work)
    place = work / name / budget_name
    if isinstance(size, planning.PlanningBudget):
        agents = AGENTS[name]
        found = planning.run_cells(agents.cells(size), folder, place, report=report, watcher=watcher, only=only)
        summary, figure = agents.summarise(found), agents.figure(found)
    elif name in MEASUREMENTS:
        summary, figure = _measured(MEASUREMENTS[name], folder, size)
    else:
        experiment = GRIDS[name]
        testing = Testing(horizon=size.horizon, windows=size.windows, split=experiment.split)
        found = run_grid(experiment.cells(size), testing, folder, place, report=report, watcher=watcher, only=only)
        summary, figure = experiment.summarise(found), experiment.figure(found)
    summary.write(folder, command=f"koopax reproduce {name} --budget {budget_name}", budget=asdict(size))
    with new_file(folder / "figure.png", overwrite=True) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
    return folder


def _measured(experiment: Measurement, folder: Path, size: Budget) -> tuple[Summary, Any]:
    path = folder / "measurement.json"
    if not path.is_file():
        write_json(path, experiment.measure(size))
    found = json.loads(path.read_text())
    return experiment.summarise(found), experiment.figure(found)


def keep_compilations(work: Path) -> None:
    """Cells of the same shape compile once, also across a stop and a resume."""
    jax.config.update("jax_compilation_cache_dir", str((work / "compilations").absolute()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
