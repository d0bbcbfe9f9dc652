"""Model-based planning (section 4.2.1): TD-MPC with the Koopman core against TD-MPC with an MLP.

Four DMC tasks × {mlp H = 5, koopman H = 20} × seeds, and koopman H = 5 for the ablation of the horizon. The return of
a run is the mean of its last evaluation; 1000 is the most that any of these tasks gives.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from koopax._errors import DivergedError, unknown_name
from koopax._provenance import provenance
from koopax.agents.tdmpc import TDMPCConfig, arm, train
from koopax.agents.tdmpc.checkpoint import CHECKPOINT
from koopax.evaluation.aggregate import aggregate
from koopax.experiments.grid import Interrupted, Report, run_missing
from koopax.experiments.summaries import Summary, interval, markdown

MAXIMUM_RETURN = 1000.0
ARMS: dict[str, tuple[str, int]] = {
    "mlp H=5": ("mlp", 5),
    "koopman H=20": ("koopman", 20),
    "koopman H=5": ("koopman", 5),
}
SWEPT_DECAYS = (0.5, 0.9, 0.95, 1.0)
CURVE = ("decisions", "env_steps", "updates", "seconds", "return", "evaluation_return", "evaluation_returns")

# Published returns after 100k and 500k environment steps.
PUBLISHED_RETURNS = {
    "acrobot-swingup": {100_000: 51, 500_000: 342},
    "cheetah-run": {100_000: 603, 500_000: 814},
    "quadruped-run": {100_000: 341, 500_000: 797},
    "quadruped-walk": {100_000: 467, 500_000: 931},
}


@dataclasses.dataclass(frozen=True)
class PlanningBudget:
    """The size of the planning experiment."""

    steps: int
    """Environment steps of each run."""
    seeds: dict[str, int]
    """Seeds of each task, most important task first."""
    arms: tuple[str, ...] = tuple(ARMS)
    """Arms by name; the third is the ablation of the horizon."""
    published: bool = False
    """TD-MPC's published networks and planner, or those for one CPU core."""
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Further settings of the agent."""
    sweep_steps: int = 30_000
    """Environment steps of each run of the sweep over ρ."""


TINY = {
    "hidden": (16, 16),
    "encoder_hidden": (16,),
    "reward_hidden": (16,),
    "latent_size": 16,
    "batch_size": 8,
    "samples": 16,
    "elites": 4,
    "iterations": 2,
    "seed_decisions": 250,
    "updates_per_decision": 0.08,
    "evaluate_episodes": 1,
    "final_episodes": 1,
}
PLANNING_BUDGETS = {
    "smoke": PlanningBudget(2_000, {"cheetah-run": 2}, changes=TINY, sweep_steps=1_000),
    "cpu": PlanningBudget(100_000, {"cheetah-run": 2, "acrobot-swingup": 1, "quadruped-walk": 1}),
    "paper": PlanningBudget(500_000, dict.fromkeys(PUBLISHED_RETURNS, 5), published=True, sweep_steps=100_000),
}


def planning_budget(name: str) -> PlanningBudget:
    """The budget of that name."""
    if name not in PLANNING_BUDGETS:
        raise unknown_name("budget", name, list(PLANNING_BUDGETS))
    return PLANNING_BUDGETS[name]


@dataclasses.dataclass(frozen=True)
class PlanningCell:
    """One training run."""

    name: str
    """Unique in its experiment, and a file name."""
    labels: dict[str, Any]
    """Task, arm and seed."""
    config: TDMPCConfig
    """What is trained."""


def cells(size: PlanningBudget) -> list[PlanningCell]:
    """Every task and seed with every arm, the comparison before the ablation."""
    comparison, ablation = size.arms[:2], size.arms[2:]
    return [
        _cell(task, label, seed, size, steps=size.steps)
        for arms in (comparison, ablation)
        for task, seeds in size.seeds.items()
        for seed in range(seeds)
        for label in arms
    ]


def sweep_cells(size: PlanningBudget) -> list[PlanningCell]:
    """The Koopman arm with each ρ of the sweep, in short runs on the first task."""
    task = next(iter(size.seeds))
    return [
        _cell(task, "koopman H=20", 0, size, name=f"rho={decay}", steps=size.sweep_steps, decay=decay)
        for decay in SWEPT_DECAYS
    ]


def _cell(
    task: str, label: str, seed: int, size: PlanningBudget, *, name: str | None = None, **changes: Any
) -> PlanningCell:
    dynamics, horizon = ARMS[label]
    settings = {**size.changes, **changes, "task": task, "seed": seed, "horizon": horizon}
    config = arm(dynamics, published=size.published, **settings)
    shown = name or label
    return PlanningCell(
        f"{task}-{shown.replace(' ', '-')}-seed{seed}", {"task": task, "arm": shown, "seed": seed}, config
    )


Watcher = Callable[[str, int, None], AbstractContextManager[Callable[[dict[str, Any]], None]]]


def run_cells(
    cells: Sequence[PlanningCell],
    results: Path,
    work: Path,
    *,
    report: Report,
    watcher: Watcher,
    only: str | None = None,
) -> list[dict[str, Any]]:
    """Run what is not finished yet and return the result of every cell, in order; see `run_missing` for `only`."""
    return run_missing(
        [cell.name for cell in cells],
        [made_of(cell) for cell in cells],
        lambda number: run_cell(cells[number], work / cells[number].name, watcher),
        results,
        report=report,
        only=only,
    )


def made_of(cell: PlanningCell) -> dict[str, Any]:
    """All that decides a cell's numbers, as JSON has it."""
    return json.loads(json.dumps({"config": dataclasses.asdict(cell.config), "core": cell.config.all_core_options}))


def run_cell(cell: PlanningCell, folder: Path, watcher: Watcher) -> dict[str, Any]:
    """Train one cell, or go on with it. A loss that becomes non-finite is a result: a return of zero."""
    document = {"cell": cell.name, "labels": cell.labels, "made_of": made_of(cell)}
    resume = (folder / CHECKPOINT).is_file()
    try:
        with watcher(cell.name, cell.config.steps, None) as watch:
            run = train(cell.config, folder, resume=resume, watch=watch)
    except DivergedError as error:
        return {**document, "diverged": str(error), "return": 0.0, "curve": [], **provenance()}
    if run.interrupted:
        raise Interrupted
    curve = [{name: line[name] for name in CURVE if name in line} for line in run.lines]
    return {
        **document,
        "diverged": None,
        "return": curve[-1]["evaluation_return"],
        "seconds": curve[-1]["seconds"],
        "curve": curve,
        **provenance(),
    }


def summarise(found: list[dict[str, Any]]) -> Summary:
    """Returns per task and arm beside the published ones, and aggregates over tasks."""
    tasks, arms = _names(found, "task"), _names(found, "arm")
    steps = found[0]["made_of"]["config"]["steps"]
    table: dict[str, Any] = {}
    rows = []
    for task in tasks:
        returns = {label: _returns(found, task, label) for label in arms}
        table[task] = {label: interval(values) for label, values in returns.items() if values}
        published = PUBLISHED_RETURNS.get(task, {}).get(steps)
        cells = [table[task][label]["text"] if label in table[task] else "–" for label in arms]
        counts = "/".join(str(len(returns[label])) for label in arms)
        rows.append([task, *cells, "–" if published is None else str(published), counts])
    sections = [markdown(["task", *arms, "TD-MPC, published", "seeds"], rows)]
    scores, aggregates = comparable_scores(found), {}
    if scores:
        aggregates = {"tasks": list(comparable_tasks(found)), "arms": aggregate(scores, seed=0)}
        sections.append(_aggregate_table(aggregates, len(next(iter(scores.values())))))
    document = {"returns": table, "aggregates": aggregates, "published": PUBLISHED_RETURNS, "env_steps": steps}
    return Summary(f"TD-MPC: returns after {steps} environment steps", sections, document)


def summarise_sweep(found: list[dict[str, Any]]) -> Summary:
    """The return of each ρ: at the end, and averaged over the training episodes after the random ones."""
    rows, document = [], {}
    for cell in found:
        after = cell["made_of"]["config"]["seed_decisions"]
        learned = [line["return"] for line in cell["curve"] if line["decisions"] > after]
        average = float(np.mean(learned)) if learned else 0.0
        document[cell["labels"]["arm"]] = {"return": cell["return"], "training_return": average}
        rows.append([cell["labels"]["arm"], f"{cell['return']:.0f}", f"{average:.0f}"])
    sections = [markdown(["ρ", "last evaluation", "mean training return"], rows)]
    return Summary("Koopman TD-MPC: the weight of later steps", sections, document)


def _names(found: list[dict[str, Any]], label: str) -> list[str]:
    return list(dict.fromkeys(cell["labels"][label] for cell in found))


def _returns(found: list[dict[str, Any]], task: str, label: str) -> list[float]:
    return [float(cell["return"]) for cell in found if (cell["labels"]["task"], cell["labels"]["arm"]) == (task, label)]


def comparable_scores(found: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Normalised returns `[runs, tasks]` of each arm, over the tasks with two seeds or more in every arm."""
    chosen, labels = comparable_tasks(found), _names(found, "arm")
    if not chosen:
        return {}
    runs = min(chosen.values())
    return {
        label: np.stack([_returns(found, task, label)[:runs] for task in chosen], axis=1) / MAXIMUM_RETURN
        for label in labels
    }


def comparable_tasks(found: list[dict[str, Any]]) -> dict[str, int]:
    """The tasks with two seeds or more in every arm, and how many every arm has."""
    labels = _names(found, "arm")
    counts = {task: min(len(_returns(found, task, label)) for label in labels) for task in _names(found, "task")}
    return {task: count for task, count in counts.items() if count > 1}


def _aggregate_table(aggregates: dict[str, Any], runs: int) -> str:
    rows = [
        [label, *(f"{one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]" for one in statistics.values())]
        for label, statistics in aggregates["arms"].items()
    ]
    heading = f"Normalised by 1000, over {', '.join(aggregates['tasks'])} with {runs} runs each:"
    return heading + "\n\n" + markdown(["arm", "mean", "IQM", "optimality gap"], rows)
