"""Model-based planning (section 4.2.1): TD-MPC with the Koopman core against TD-MPC with an MLP.

Four DMC tasks × {mlp H = 5, koopman H = 20} × seeds, and koopman H = 5 for the ablation of the horizon. The return of
a run is the mean of its last evaluation; 1000 is the most that any of these tasks gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from koopax._plots import BLUE, INK, ORANGE, SKY, VERMILION, tidy
from koopax.agents import tdmpc_arm
from koopax.evaluation.aggregate import aggregate, performance_profile
from koopax.experiments.agent_grid import AgentCell, run_agents
from koopax.experiments.experiment import Experiment
from koopax.experiments.summaries import Summary, interval, markdown

MAXIMUM_RETURN = 1000.0
LINES = ((INK, ":", "^"), (BLUE, "-", "o"), (SKY, "--", "s"), (ORANGE, "-.", "D"), (VERMILION, "--", "v"))
PROFILE_POINTS = 101
ARMS: dict[str, tuple[str, int]] = {
    "mlp H=5": ("mlp", 5),
    "koopman H=20": ("koopman", 20),
    "koopman H=5": ("koopman", 5),
}

# Published returns after 100k and 500k environment steps.
PUBLISHED_RETURNS = {
    "acrobot-swingup": {100_000: 51, 500_000: 342},
    "cheetah-run": {100_000: 603, 500_000: 814},
    "quadruped-run": {100_000: 341, 500_000: 797},
    "quadruped-walk": {100_000: 467, 500_000: 931},
}


@dataclass(frozen=True)
class PlanningBudget:
    """The size of the planning experiment."""

    steps: int
    """Environment steps of each run."""
    seeds: Mapping[str, int]
    """Seeds of each task, most important task first."""
    arms: tuple[str, ...] = tuple(ARMS)
    """Arms by name; the third is the ablation of the horizon."""
    published: bool = False
    """TD-MPC's published networks and planner, or those for one CPU core."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Further settings of the agent."""


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
BUDGETS = {
    "smoke": PlanningBudget(steps=2_000, seeds={"cheetah-run": 2}, changes=TINY),
    "cpu": PlanningBudget(steps=100_000, seeds={"cheetah-run": 2, "acrobot-swingup": 1, "quadruped-walk": 1}),
    "paper": PlanningBudget(steps=500_000, seeds=dict.fromkeys(PUBLISHED_RETURNS, 5), published=True),
}


def cells(size: PlanningBudget) -> list[AgentCell]:
    """Every task and seed with every arm, the comparison before the ablation."""
    comparison, ablation = size.arms[:2], size.arms[2:]
    return [
        _cell(task, label, seed, size)
        for arms in (comparison, ablation)
        for task, seeds in size.seeds.items()
        for seed in range(seeds)
        for label in arms
    ]


def _cell(task: str, label: str, seed: int, size: PlanningBudget) -> AgentCell:
    dynamics, horizon = ARMS[label]
    settings = {**size.changes, "steps": size.steps, "task": task, "seed": seed, "horizon": horizon}
    config = tdmpc_arm(dynamics, published=size.published, **settings)
    labels = {"task": task, "arm": label, "seed": seed}
    return AgentCell(f"{task}-{label.replace(' ', '-')}-seed{seed}", labels, config)


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


def curves(found: list[dict[str, Any]]) -> Figure:
    """Returns against environment steps, one panel per task, and the performance profile where seeds allow one.

    Markers are evaluations, averaged over seeds; thin lines are the training episodes of each run. The dashed line is
    what TD-MPC's authors report after as many steps.
    """
    tasks = list(dict.fromkeys(cell["labels"]["task"] for cell in found))
    scores = comparable_scores(found)
    panels_wanted = len(tasks) + bool(scores)
    columns = min(3, panels_wanted)
    rows = -(-panels_wanted // columns)
    figure = Figure(figsize=(4.6 * columns, 3.4 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for panel, task in zip(panels, tasks, strict=False):
        _task(panel, task, [cell for cell in found if cell["labels"]["task"] == task])
    if scores:
        _profile(panels[len(tasks)], scores)
    for panel in panels[panels_wanted:]:
        panel.set_visible(False)
    panels[0].legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def _task(panel: Axes, task: str, mine: list[dict[str, Any]]) -> None:
    labels = list(dict.fromkeys(cell["labels"]["arm"] for cell in mine))
    for label, (colour, line, marker) in zip(labels, LINES, strict=False):
        runs = [cell["curve"] for cell in mine if cell["labels"]["arm"] == label and cell["curve"]]
        for run in runs:
            panel.plot(_column(run, "env_steps"), _column(run, "return"), color=colour, alpha=0.25, linewidth=0.8)
        evaluated = [[entry for entry in run if "evaluation_return" in entry] for run in runs]
        shared = min((len(run) for run in evaluated), default=0)
        if shared:
            steps = np.mean([_column(run[:shared], "env_steps") for run in evaluated], axis=0)
            means = np.mean([_column(run[:shared], "evaluation_return") for run in evaluated], axis=0)
            panel.plot(steps, means, color=colour, linestyle=line, marker=marker, label=f"{label} ({len(runs)})")
    steps = mine[0]["made_of"]["config"]["steps"]
    published = PUBLISHED_RETURNS.get(task, {}).get(steps)
    if published is not None:
        panel.axhline(published, color=VERMILION, linestyle="--", linewidth=1, label="TD-MPC, published")
    panel.set(title=task, xlabel="environment steps", ylabel="return", ylim=(0, None))
    tidy(panel)


def _profile(panel: Axes, scores: dict[str, np.ndarray]) -> None:
    thresholds = np.linspace(0, 1, PROFILE_POINTS)
    profiles = performance_profile(scores, thresholds, seed=0)
    for (label, profile), (colour, line, _) in zip(profiles.items(), LINES, strict=False):
        panel.plot(thresholds, profile["value"], color=colour, linestyle=line, label=label)
        panel.fill_between(thresholds, profile["low"], profile["high"], color=colour, alpha=0.15, linewidth=0)
    panel.set(title="performance profile", xlabel=f"return / {MAXIMUM_RETURN:.0f}", ylabel="share of runs above")
    tidy(panel)


def _column(lines: list[dict[str, Any]], name: str) -> np.ndarray:
    return np.array([line[name] for line in lines], float)


EXPERIMENT = Experiment(
    name="planning",
    budgets=BUDGETS,
    run=lambda budget, place: run_agents(cells(budget), place),
    summarise=summarise,
    figure=curves,
)
