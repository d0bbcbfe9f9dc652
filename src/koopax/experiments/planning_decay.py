"""The weight ρ of later steps in TD-MPC's losses: short runs of the Koopman arm, which found its default."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from koopax.agents import tdmpc_arm
from koopax.experiments.agent_grid import AgentCell, run_agents
from koopax.experiments.experiment import Experiment
from koopax.experiments.planning import ARMS, TINY, curves
from koopax.experiments.summaries import Summary, markdown

TASK, ARM = "cheetah-run", "koopman H=20"


@dataclass(frozen=True)
class DecayBudget:
    """The size of the sweep."""

    steps: int
    """Environment steps of each run."""
    decays: tuple[float, ...] = (0.5, 0.9, 0.95, 1.0)
    """The values of ρ."""
    published: bool = False
    """TD-MPC's published networks and planner, or those for one CPU core."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the agent."""


BUDGETS = {
    "smoke": DecayBudget(steps=1_000, changes=TINY),
    "cpu": DecayBudget(steps=30_000),
    "paper": DecayBudget(steps=100_000, published=True),
}


def cells(budget: DecayBudget) -> list[AgentCell]:
    """The Koopman arm with each ρ, one seed."""
    return [_cell(decay, budget) for decay in budget.decays]


def _cell(decay: float, budget: DecayBudget) -> AgentCell:
    dynamics, horizon = ARMS[ARM]
    settings = {**budget.changes, "steps": budget.steps, "decay": decay}
    config = tdmpc_arm(dynamics, published=budget.published, task=TASK, seed=0, horizon=horizon, **settings)
    label = f"rho={decay}"
    return AgentCell(f"{TASK}-{label}-seed0", {"task": TASK, "arm": label, "seed": 0}, config)


def summarise(found: list[dict[str, Any]]) -> Summary:
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


EXPERIMENT = Experiment(
    name="planning-decay",
    budgets=BUDGETS,
    run=lambda budget, place: run_agents(cells(budget), place),
    summarise=summarise,
    figure=curves,
)
