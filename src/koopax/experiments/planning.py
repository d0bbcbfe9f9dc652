"""Model-based planning (section 4.2.1): TD-MPC with the Koopman core against TD-MPC with an MLP.

Four DMC tasks × {mlp H = 5, koopman H = 20} × seeds, and koopman H = 5 for the ablation of the horizon. The return of
a run is the mean of its last evaluation; 1000 is the most that any of these tasks gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from koopax.agents import tdmpc_arm
from koopax.evaluation.aggregate import aggregate
from koopax.experiments.agent_grid import AgentCell, run_agents
from koopax.experiments.experiment import Experiment
from koopax.experiments.returns import (
    aggregate_table,
    comparable_scores,
    comparable_tasks,
    names,
    return_curves,
    returns_of,
)
from koopax.experiments.summaries import Summary, interval, markdown

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
    tasks, arms = names(found, "task"), names(found, "arm")
    steps = found[0]["made_of"]["config"]["steps"]
    table: dict[str, Any] = {}
    rows = []
    for task in tasks:
        returns = {label: returns_of(found, task, label) for label in arms}
        table[task] = {label: interval(values) for label, values in returns.items() if values}
        published = PUBLISHED_RETURNS.get(task, {}).get(steps)
        cells = [table[task][label]["text"] if label in table[task] else "–" for label in arms]
        counts = "/".join(str(len(returns[label])) for label in arms)
        rows.append([task, *cells, "–" if published is None else str(published), counts])
    sections = [markdown(["task", *arms, "TD-MPC, published", "seeds"], rows)]
    scores, aggregates = comparable_scores(found), {}
    if scores:
        aggregates = {"tasks": list(comparable_tasks(found)), "arms": aggregate(scores, seed=0)}
        sections.append(aggregate_table(aggregates, len(next(iter(scores.values())))))
    document = {"returns": table, "aggregates": aggregates, "published": PUBLISHED_RETURNS, "env_steps": steps}
    return Summary(f"TD-MPC: returns after {steps} environment steps", sections, document)


def curves(found: list[dict[str, Any]]) -> Figure:
    """Returns against environment steps; the dashed line is what TD-MPC's authors report after as many steps."""
    return return_curves(found, _references)


def _references(task: str, steps: int) -> dict[str, float]:
    published = PUBLISHED_RETURNS.get(task, {}).get(steps)
    return {} if published is None else {"TD-MPC, published": float(published)}


EXPERIMENT = Experiment(
    name="planning",
    budgets=BUDGETS,
    run=lambda budget, place: run_agents(cells(budget), place),
    summarise=summarise,
    figure=curves,
)
