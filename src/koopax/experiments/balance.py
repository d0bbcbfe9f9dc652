"""Unstable plants: models that may grow and models that may not, and who balances with them.

A cell is a plant and a model of random pushes, under which the plant falls; all controllers balance it from the same
starts. Balanced is who ends within 0.05 of upright, standing still.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from koopax._plots import BLUE, GREEN, ORANGE, tidy
from koopax._provenance import provenance
from koopax.envs.plants import PLANTS
from koopax.evaluation.prediction import prediction_error
from koopax.experiments.closed_loop import fitted, random_pushes, run_loop
from koopax.experiments.experiment import Experiment, Place
from koopax.experiments.grid import Job, conditions, load_average, run_missing
from koopax.experiments.summaries import Summary, markdown
from koopax.models.dynamics import DynamicsModel
from koopax.models.koopman import KoopmanCore
from koopax.models.linear import LinearCore
from koopax.planning.choice import QuadraticCost, make_planner
from koopax.planning.controller import Controller
from koopax.planning.lqr import LQR, linearise
from koopax.planning.planner import Planner
from koopax.planning.protocol import Box

HORIZON = 10
NEAR = 0.05
# A Koopman model as it is, which grows where the data asks for it, and one that must not.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "dmdc": ("dmdc", {}),
    "koopman": ("koopman-small", {}),
    "koopman-stable": ("koopman-small", {"growth": 0.0}),
}
# LQR in latents, which relies on the spectrum, over 40 steps; `koopax plan`'s own LQR; and the convex program.
CONTROLLERS = ("lqr-latent", "lqr", "qp")


@dataclass(frozen=True)
class BalanceBudget:
    """The size of the grid."""

    plants: tuple[str, ...]
    """Of `koopax.envs.plants`."""
    rows: int
    """Steps of random pushes."""
    steps: int
    """Gradient steps of the Koopman models."""
    starts: int
    """Where each controller begins."""
    length: int
    """Decisions from each start."""
    seeds: int
    """Sets of data, and trainings."""


BUDGETS = {
    "smoke": BalanceBudget(("upright",), 600, 0, starts=2, length=60, seeds=1),
    "cpu": BalanceBudget(("upright", "cart-pole"), 3_000, 2_000, starts=20, length=200, seeds=1),
    "paper": BalanceBudget(("upright", "cart-pole"), 3_000, 5_000, starts=50, length=500, seeds=5),
}


@dataclass(frozen=True)
class Setting:
    """What a cell is about."""

    plant: str
    model: str
    seed: int


def run(budget: BalanceBudget, place: Place) -> list[dict[str, Any]]:
    """Run what is not finished yet and return every cell's document."""
    cells = [Setting(plant, model, s) for s in range(budget.seeds) for plant in budget.plants for model in MODELS]
    jobs = [Job(f"{c.plant}-{c.model}-{c.seed}", {**asdict(c), **_sizes(budget)}) for c in cells]

    def run_cells(numbers: Sequence[int], place: Place) -> Iterator[tuple[int, dict[str, Any]]]:
        del place  # nothing is kept besides the document
        for number in numbers:
            yield number, {"made_of": jobs[number].made_of, **_run_cell(cells[number], budget)}

    return run_missing(jobs, run_cells, place)


def _sizes(budget: BalanceBudget) -> dict[str, Any]:
    return {name: value for name, value in asdict(budget).items() if name not in ("plants", "seeds")}


def _run_cell(setting: Setting, budget: BalanceBudget) -> dict[str, Any]:
    load, plant = load_average(), PLANTS[setting.plant]
    name, options = MODELS[setting.model]
    data = random_pushes(setting.plant, budget.rows, seed=setting.seed)
    model = fitted(name, data, steps=budget.steps, horizon=HORIZON, seed=setting.seed, **options)
    fresh = random_pushes(setting.plant, 1_000, seed=1_000 + setting.seed)
    starts = np.random.default_rng(setting.seed).uniform(-1, 1, (budget.starts, len(plant.start))) * plant.start
    controllers = {}
    for controller in CONTROLLERS:
        planner = controller_of(controller, model, setting.plant)
        found = run_loop(Controller(model, planner), setting.plant, starts, budget.length)
        ends = np.array([np.abs(states[-1]).max() for states in found.states])
        stood = np.array([len(states) > budget.length for states in found.states])
        controllers[controller] = {
            "balanced": float(np.mean(stood & (ends < NEAR))),
            "fell": float(np.mean(~stood)),
            "farthest_end": float(ends[stood].max()) if stood.any() else None,
            **found.latency(),
        }
    error = prediction_error(model, fresh, horizon=HORIZON, windows=500).state.normalised
    return {
        "labels": asdict(setting),
        "largest_eigenvalue": largest_eigenvalue(model),
        "error": error,
        "controllers": controllers,
        "conditions": conditions(load),
        **provenance(),
    }


def largest_eigenvalue(model: DynamicsModel) -> float:
    """max |λ̄|."""
    if isinstance(model.core, KoopmanCore):
        return float(np.abs(model.spectrum().discrete).max())
    assert isinstance(model.core, LinearCore)
    return float(np.abs(np.linalg.eigvals(np.asarray(model.core.matrix, float)[1:, 1:])).max())


def controller_of(name: str, model: DynamicsModel, plant_name: str) -> Planner:
    """A controller that brings a plant to rest at zero."""
    plant = PLANTS[plant_name]
    box, goal = Box([-plant.force], [plant.force]), (0.0,) * len(plant.start)
    cost = QuadraticCost(goal, plant.state_cost, (plant.action_cost,))
    if name == "lqr-latent":
        system = linearise(model, jnp.zeros(len(goal)))
        costs = jnp.diag(jnp.asarray(plant.state_cost)), plant.action_cost * jnp.eye(1)
        return LQR.for_cost(system, jnp.zeros(len(goal)), *costs, horizon=40, box=box)
    return make_planner(name, model, box, cost=cost, horizon=30 if name == "qp" else None)


def summarise(found: list[dict[str, Any]]) -> Summary:
    """A line per plant and model."""
    lines, document = [], []
    for cell in found:
        labels, controllers = cell["labels"], cell["controllers"]
        shown = [_ended(controllers[name]) for name in CONTROLLERS]
        lines.append(
            [labels["plant"], labels["model"], f"{cell['largest_eigenvalue']:.4f}", f"{cell['error']:.2g}", *shown]
        )
        document.append({**labels, **{k: cell[k] for k in ("largest_eigenvalue", "error", "controllers")}})
    header = ["plant", "model", "max |λ|", "error of 10 steps", "LQR in latents", "LQR", "QP"]
    note = (
        "Share of starts that were balanced, and how far from zero the farthest of those that did not fall ended. LQR "
        "in latents looks 40 steps ahead by the model's own spectrum; LQR is that of `koopax plan`; QP plans 30 steps."
    )
    return Summary("Balancing unstable plants", [markdown(header, lines), note], {"rows": document})


def _ended(controller: dict[str, Any]) -> str:
    end = controller["farthest_end"]
    return f"{controller['balanced']:.0%} ({'all fell' if end is None else f'{end:.2g}'})"


def figure(found: list[dict[str, Any]]) -> Figure:
    """Share of starts balanced, a panel per plant."""
    plants = list(dict.fromkeys(cell["labels"]["plant"] for cell in found))
    drawn = Figure(figsize=(4 * len(plants), 3.2), layout="constrained")
    panels = np.atleast_1d(drawn.subplots(1, len(plants), sharey=True))
    for panel, plant in zip(panels, plants, strict=True):
        cells = [cell for cell in found if cell["labels"]["plant"] == plant]
        names = list(dict.fromkeys(cell["labels"]["model"] for cell in cells))
        for number, (controller, colour) in enumerate(zip(CONTROLLERS, (ORANGE, BLUE, GREEN), strict=True)):
            heights = [
                np.mean([c["controllers"][controller]["balanced"] for c in cells if c["labels"]["model"] == name])
                for name in names
            ]
            panel.bar(np.arange(len(names)) + 0.27 * (number - 1), heights, 0.25, color=colour, label=controller)
        panel.set_xticks(range(len(names)), names)
        panel.set(title=plant, ylim=(0, 1.05))
        tidy(panel)
    panels[0].set_ylabel("share of starts balanced")
    drawn.legend(*panels[0].get_legend_handles_labels(), frameon=False, fontsize=8, ncols=3, loc="outside upper right")
    return drawn


EXPERIMENT = Experiment(name="balance", budgets=BUDGETS, run=run, summarise=summarise, figure=figure)
