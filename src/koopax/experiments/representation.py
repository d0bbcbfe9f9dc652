"""Self-predictive representations from pixels (section 4.2.2): SAC, SAC with an MLP (SPR), SAC with the Koopman core.

Five DMC tasks × three arms × seeds, and the Koopman arm at K = 20 for the ablation of the horizon. Only the core
differs between the arms. The return of a run is the mean of its last evaluation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from koopax.agents import pixel_arm
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
    "sac": ("none", 5),
    "mlp K=5": ("mlp", 5),
    "koopman K=5": ("koopman", 5),
    "koopman K=20": ("koopman", 20),
}
COMPARED = 3
"""How many arms the comparison has; the last one is for the ablation."""

# Published returns after 100k and 500k environment steps.
PUBLISHED_RETURNS: dict[str, dict[str, dict[int, int]]] = {
    "cartpole-swingup": {
        "pixel SAC": {100_000: 419, 500_000: 419},
        "CURL": {100_000: 582, 500_000: 841},
        "DrQ": {100_000: 759, 500_000: 869},
        "SPR": {100_000: 799, 500_000: 870},
    },
    "cheetah-run": {
        "pixel SAC": {100_000: 197, 500_000: 197},
        "CURL": {100_000: 299, 500_000: 518},
        "DrQ": {100_000: 361, 500_000: 680},
        "SPR": {100_000: 467, 500_000: 716},
    },
    "walker-walk": {
        "pixel SAC": {100_000: 42, 500_000: 42},
        "CURL": {100_000: 403, 500_000: 902},
        "DrQ": {100_000: 634, 500_000: 924},
        "SPR": {100_000: 398, 500_000: 916},
    },
    "ball_in_cup-catch": {
        "pixel SAC": {100_000: 312, 500_000: 312},
        "CURL": {100_000: 769, 500_000: 959},
        "DrQ": {100_000: 914, 500_000: 964},
        "SPR": {100_000: 861, 500_000: 963},
    },
    "finger-spin": {
        "pixel SAC": {100_000: 179, 500_000: 179},
        "CURL": {100_000: 767, 500_000: 926},
        "DrQ": {100_000: 901, 500_000: 939},
        "SPR": {100_000: 868, 500_000: 924},
    },
}
REFERENCES = ("pixel SAC", "CURL", "DrQ", "SPR")
DRAWN = ("SPR", "pixel SAC")


@dataclass(frozen=True)
class RepresentationBudget:
    """The size of the experiment."""

    steps: int
    """Environment steps of each run."""
    seeds: Mapping[str, int]
    """Seeds of each task, most important task first."""
    arms: tuple[str, ...] = tuple(ARMS)
    """Arms by name; the fourth is the ablation of the horizon."""
    published: bool = False
    """84×84 images, the published encoder and batches of 512, or what one CPU core can afford."""
    updates: Mapping[str, float] = field(default_factory=dict)
    """Updates per decision of tasks where it is not 1: those that decide often."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Further settings of the agent."""


TINY = {
    "image_size": 32,
    "shift": 2,
    "hidden": (16,),
    "latent_size": 16,
    "batch_size": 8,
    "random_decisions": 125,
    "updates_per_decision": 0.1,
    "evaluate_episodes": 1,
    "final_episodes": 1,
}
# Some 25 000 updates in each task, however often it decides.
UPDATES = {"cartpole-swingup": 2.0, "walker-walk": 0.5, "finger-spin": 0.5}
BUDGETS = {
    "smoke": RepresentationBudget(steps=2_000, seeds={"cartpole-swingup": 2}, changes=TINY),
    "cpu": RepresentationBudget(
        steps=100_000,
        seeds=dict.fromkeys(PUBLISHED_RETURNS, 1),
        updates=UPDATES,
        changes={"evaluate_every": 20_000},
    ),
    "paper": RepresentationBudget(steps=500_000, seeds=dict.fromkeys(PUBLISHED_RETURNS, 5), published=True),
}


def cells(size: RepresentationBudget) -> list[AgentCell]:
    """Breadth first: every task with every arm, seed after seed, the comparison before the ablation."""
    comparison, ablation = size.arms[:COMPARED], size.arms[COMPARED:]
    return [
        _cell(task, label, seed, size)
        for arms in (comparison, ablation)
        for seed in range(max(size.seeds.values()))
        for task, seeds in size.seeds.items()
        for label in arms
        if seed < seeds
    ]


def _cell(task: str, label: str, seed: int, size: RepresentationBudget) -> AgentCell:
    dynamics, horizon = ARMS[label]
    settings = {**size.changes, "steps": size.steps, "task": task, "seed": seed, "horizon": horizon}
    if task in size.updates:
        settings["updates_per_decision"] = size.updates[task]
    config = pixel_arm(dynamics, published=size.published, **settings)
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
        own = [table[task][label]["text"] if label in table[task] else "–" for label in arms]
        counts = "/".join(str(len(returns[label])) for label in arms)
        known = PUBLISHED_RETURNS.get(task, {})
        others = [str(known.get(name, {}).get(steps, "–")) for name in REFERENCES]
        rows.append([task, *own, *others, counts])
    sections = [markdown(["task", *arms, *(f"{name}, published" for name in REFERENCES), "seeds"], rows)]
    aggregates = _aggregates(found)
    if aggregates:
        sections.append(aggregate_table(aggregates, aggregates["runs"]))
    document = {"returns": table, "aggregates": aggregates, "published": PUBLISHED_RETURNS, "env_steps": steps}
    return Summary(f"SAC from pixels: returns after {steps} environment steps", sections, document)


def _aggregates(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Over the tasks that all arms of the comparison were trained in; with the ablation's arm if it was there too."""
    compared = [cell for cell in found if cell["labels"]["arm"] in tuple(ARMS)[:COMPARED]]
    tasks = comparable_tasks(compared, least=1)
    if not tasks:
        return {}
    everywhere = [arm for arm in names(found, "arm") if all(len(returns_of(found, t, arm)) >= tasks[t] for t in tasks)]
    chosen = [cell for cell in found if cell["labels"]["arm"] in everywhere and cell["labels"]["task"] in tasks]
    scores = comparable_scores(chosen, least=1)
    runs = len(next(iter(scores.values())))
    return {"tasks": list(tasks), "runs": runs, "arms": aggregate(scores, seed=0)}


def curves(found: list[dict[str, Any]]) -> Figure:
    """Returns against environment steps, beside what was published after as many."""
    return return_curves(found, _references)


def _references(task: str, steps: int) -> dict[str, float]:
    known = PUBLISHED_RETURNS.get(task, {})
    return {f"{name}, published": float(known[name][steps]) for name in DRAWN if steps in known.get(name, {})}


EXPERIMENT = Experiment(
    name="representation",
    budgets=BUDGETS,
    run=lambda budget, place: run_agents(cells(budget), place),
    summarise=summarise,
    figure=curves,
)
