"""Model-based planning (section 4.2.1): TD-MPC with the Koopman core against TD-MPC with an MLP.

Four DMC tasks × {mlp H = 5, koopman H = 20} × seeds, breadth first: every task with one seed before any has two. Then
what explains them: koopman H = 5, mlp H = 20, koopman's plans grown at the published rate, as mlp's are (20 steps after
25,000 decisions, not 4750), what values see normalised, or bounded, or neither, and the weight ρ of later steps, which
is 0.5 elsewhere. The return of a run is the mean of its last evaluation; 1000 is the most that any of these tasks
gives. `planning-long` is the comparison over more steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
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

DECAYS = (0.9, 0.95, 1.0)
COMPARED = ("mlp H=5", "koopman H=20")
ARMS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "mlp H=5": ("mlp", {"horizon": 5}),
    "koopman H=20": ("koopman", {"horizon": 20}),
    "koopman H=5": ("koopman", {"horizon": 5}),
    "koopman H=20 growing slowly": ("koopman", {"horizon": 20, "plan_growth": None}),
    "mlp H=20": ("mlp", {"horizon": 20}),
    "mlp H=5 normalised": ("mlp", {"horizon": 5, "latent_norm": "layer"}),
    "koopman H=20 unnormalised": ("koopman", {"horizon": 20, "latent_norm": "none"}),
    "koopman H=20 bounded": ("koopman", {"horizon": 20, "latent_norm": "none", "latent_bound": 4.0}),
    **{f"koopman H=20 rho={decay}": ("koopman", {"horizon": 20, "decay": decay}) for decay in DECAYS},
}

SPENT = ("playing", "learning", "evaluating")
# The tasks, most important first, and what is published of them: returns after 100k and 500k environment steps.
PUBLISHED_RETURNS = {
    "cheetah-run": {100_000: 603, 500_000: 814},
    "quadruped-walk": {100_000: 467, 500_000: 931},
    "acrobot-swingup": {100_000: 51, 500_000: 342},
    "quadruped-run": {100_000: 341, 500_000: 797},
}


@dataclass(frozen=True)
class PlanningBudget:
    """The size of the planning experiment."""

    steps: int
    """Environment steps of each run."""
    seeds: Mapping[str, int]
    """Seeds of each task in the comparison."""
    ablations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The same for each further arm, by its name; they come after the comparison."""
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
    "smoke": PlanningBudget(
        steps=2_000, seeds={"cheetah-run": 2}, ablations={"koopman H=5": {"cheetah-run": 1}}, changes=TINY
    ),
    "cpu": PlanningBudget(
        steps=100_000,
        seeds={"cheetah-run": 5, "quadruped-walk": 2, "acrobot-swingup": 2, "quadruped-run": 2},
        ablations={
            "mlp H=5 normalised": {"cheetah-run": 2, "quadruped-walk": 2},
            "koopman H=20 unnormalised": {"cheetah-run": 2, "quadruped-walk": 2},
            "koopman H=20 bounded": {"cheetah-run": 2, "quadruped-walk": 2},
            "koopman H=5": {"cheetah-run": 2},
            "koopman H=20 growing slowly": {"cheetah-run": 2},
            "mlp H=20": {"cheetah-run": 2},
            **{f"koopman H=20 rho={decay}": {"cheetah-run": 1} for decay in DECAYS},
        },
    ),
    "paper": PlanningBudget(
        steps=500_000,
        seeds=dict.fromkeys(PUBLISHED_RETURNS, 5),
        ablations={arm: dict.fromkeys(PUBLISHED_RETURNS, 5) for arm in ("koopman H=5", "mlp H=20")},
        published=True,
    ),
}
LONG_BUDGETS = {
    "smoke": PlanningBudget(steps=3_000, seeds={"cheetah-run": 1}, changes=TINY),
    "cpu": PlanningBudget(steps=500_000, seeds={"cheetah-run": 1}),
    "paper": PlanningBudget(steps=1_000_000, seeds={"cheetah-run": 5}, published=True),
}


def cells(size: PlanningBudget) -> list[AgentCell]:
    """The comparison before the ablations, and in each every task and arm before the next seed."""
    return [
        _cell(task, label, seed, size)
        for arms in (dict.fromkeys(COMPARED, size.seeds), size.ablations)
        for seed in range(max((count for seeds in arms.values() for count in seeds.values()), default=0))
        for task in PUBLISHED_RETURNS
        for label, seeds in arms.items()
        if seed < seeds.get(task, 0)
    ]


def _cell(task: str, label: str, seed: int, size: PlanningBudget) -> AgentCell:
    dynamics, changes = ARMS[label]
    settings = {**size.changes, "steps": size.steps, "task": task, "seed": seed, **changes}
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
    both = compared(found)
    scores, aggregates = comparable_scores(both), {}
    if scores:
        aggregates = {"tasks": list(comparable_tasks(both)), "arms": aggregate(scores, seed=0)}
        sections.append(aggregate_table(aggregates, len(next(iter(scores.values())))))
    spent = time_spent(found)
    sections.append(f"Minutes of a run, and what they were spent on:\n\n{_time_table(spent)}")
    document = {
        "returns": table,
        "aggregates": aggregates,
        "minutes": spent,
        "published": PUBLISHED_RETURNS,
        "env_steps": steps,
    }
    return Summary(f"TD-MPC: returns after {steps} environment steps", sections, document)


def time_spent(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every task and arm: minutes, the shares of them, and the share of training decisions with plans of H steps."""
    rows = []
    for task in names(found, "task"):
        for label in names(found, "arm"):
            runs = [cell for cell in found if (cell["labels"]["task"], cell["labels"]["arm"]) == (task, label)]
            timed = [cell for cell in runs if cell["curve"] and "seconds" in cell]
            if timed:
                rows.append({"task": task, "arm": label} | _spent(timed))
    return rows


def _spent(cells: list[dict[str, Any]]) -> dict[str, Any]:
    parts = [cell["curve"][-1].get("spent", {}) for cell in cells]
    total = sum(cell["seconds"] for cell in cells)
    lengths = [
        line["plan_length"] >= cell["made_of"]["config"]["horizon"]
        for cell in cells
        for line in cell["curve"]
        if "plan_length" in line
    ]
    return {
        "minutes": total / len(cells) / 60,
        **{what: sum(part.get(what, 0.0) for part in parts) / total for what in SPENT},
        "whole_plans": float(np.mean(lengths)) if lengths else None,
    }


def _time_table(rows: list[dict[str, Any]]) -> str:
    def percent(value: float | None) -> str:
        return "–" if value is None else f"{100 * value:.0f} %"

    shown = [
        [row["task"], row["arm"], f"{row['minutes']:.0f}", *(percent(row[name]) for name in (*SPENT, "whole_plans"))]
        for row in rows
    ]
    return markdown(["task", "arm", "minutes", *SPENT, "episodes with plans of H steps"], shown)


def curves(found: list[dict[str, Any]]) -> Figure:
    """Returns against environment steps; the dashed line is what TD-MPC's authors report after as many steps."""
    return return_curves(found, _references, compared(found))


def compared(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs of the comparison, once both of its arms have some."""
    runs = [cell for cell in found if cell["labels"]["arm"] in COMPARED]
    return runs if set(names(runs, "arm")) == set(COMPARED) else []


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
LONG = Experiment(
    name="planning-long",
    budgets=LONG_BUDGETS,
    run=lambda budget, place: run_agents(cells(budget), place),
    summarise=summarise,
    figure=curves,
)
