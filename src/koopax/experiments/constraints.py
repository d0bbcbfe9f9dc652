"""Hard limits: who keeps them, and what it costs.

A plant has to go to a goal close to a wall that it must not touch, with limited force and speed, the cart-pole without
leaning far. All controllers begin at the same starts. A learned model's convex program is compared with that of the
true equations, with LQR that is clipped, and with MPPI on the same model, whose reward is the same cost, and the same
with a heavy penalty on states outside.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from koopax._plots import BLUE, GREEN, INK, ORANGE, tidy
from koopax._provenance import provenance
from koopax.envs.plants import PLANTS
from koopax.experiments.closed_loop import ClosedLoop, fitted, random_pushes, run_loop
from koopax.experiments.experiment import Experiment, Place
from koopax.experiments.grid import Job, conditions, load_average, run_missing
from koopax.experiments.summaries import Summary, markdown
from koopax.models.dynamics import DynamicsModel
from koopax.planning.choice import QuadraticCost, make_planner
from koopax.planning.constraints import Constraints, Limits, limits_of
from koopax.planning.controller import Controller
from koopax.planning.learned import RewardedModel
from koopax.planning.protocol import Box
from koopax.planning.qp import QP, QPConfig
from koopax.planning.true_model import TrueModel

HORIZON = 10
BEYOND = 1e-3
PENALTY = 1e3


@dataclass(frozen=True)
class Task:
    """What a plant has to do."""

    goal: tuple[float, ...]
    state_bounds: tuple[float, ...]
    start: tuple[float, ...]
    """Starts are at this state, moved by up to a tenth."""
    horizon: int
    """Steps of a plan."""


INF = float("inf")
TASKS = {
    "double-integrator": Task((0.95, 0.0), (-1.0, 1.0, -0.6, 0.6), (-0.8, 0.0), 20),
    # LQR would lean by 0.27 and reach a speed of 1.8.
    "cart-pole": Task((0.9, 0.0, 0.0, 0.0), (-1.0, 1.0, -0.15, 0.15, -1.0, 1.0, -INF, INF), (-0.8, 0.0, 0.0, 0.0), 30),
}
# Linear in the actions and in the read-out, so that one program is the exact optimum.
LINEAR = {"decoder_hidden": (), "action_hidden": ()}
PROGRAMS = ("true-qp", "dmdc-qp", "koopman-qp", "koopman-network-qp")
ARMS = (*PROGRAMS, "dmdc-lqr", "koopman-network-mppi", "koopman-network-penalised")
COLOURS = {"qp": BLUE, "lqr": ORANGE, "mppi": GREEN, "penalised": INK}


@dataclass(frozen=True)
class ConstraintsBudget:
    """The size of the grid."""

    plants: tuple[str, ...]
    """Of `TASKS`."""
    rows: int
    """Steps of random pushes."""
    steps: int
    """Gradient steps of the Koopman models."""
    starts: int
    """Where each controller begins."""
    length: int
    """Decisions from each start."""
    samples: int
    """Candidates of MPPI."""


BUDGETS = {
    "smoke": ConstraintsBudget(("double-integrator",), 300, 0, starts=1, length=30, samples=16),
    "cpu": ConstraintsBudget(("double-integrator", "cart-pole"), 3_000, 2_000, starts=10, length=150, samples=256),
    "paper": ConstraintsBudget(("double-integrator", "cart-pole"), 3_000, 5_000, starts=50, length=200, samples=512),
}


def run(budget: ConstraintsBudget, place: Place) -> list[dict[str, Any]]:
    """Run what is not finished yet and return every cell's document."""
    jobs = jobs_of(budget)

    def run_cells(numbers: Sequence[int], place: Place) -> Iterator[tuple[int, dict[str, Any]]]:
        del place  # nothing is kept besides the document
        for number in numbers:
            made_of = jobs[number].made_of
            yield number, {"made_of": made_of, **_run_cell(made_of["plant"], made_of["arm"], budget)}

    return run_missing(jobs, run_cells, place)


def jobs_of(budget: ConstraintsBudget) -> list[Job]:
    """A cell for each plant and arm. A task is told in words, as JSON knows no infinite bounds."""
    sizes = {name: value for name, value in asdict(budget).items() if name != "plants"}
    return [
        Job(f"{plant}-{arm}", {"plant": plant, "arm": arm, **sizes, "task": str(TASKS[plant])})
        for plant in budget.plants
        for arm in ARMS
    ]


def _run_cell(plant: str, arm: str, budget: ConstraintsBudget) -> dict[str, Any]:
    load, task, equations = load_average(), TASKS[plant], PLANTS[plant]
    box = Box([-equations.force], [equations.force])
    limits = limits_of(Constraints(task.state_bounds), box, len(task.goal), 1, goal=task.goal)
    near = np.random.default_rng(0).uniform(-0.1, 0.1, (budget.starts, len(task.goal)))
    controller = _controller(plant, arm, box, limits, budget)
    found = run_loop(controller, plant, np.asarray(task.start) + near * (np.asarray(task.start) != 0), budget.length)
    return {
        "labels": {"plant": plant, "arm": arm},
        **_judged(found, plant, limits, budget.length),
        "conditions": conditions(load),
        **provenance(),
    }


def _judged(found: ClosedLoop, plant: str, limits: Limits, length: int) -> dict[str, Any]:
    """Cost, violations, where it ended, and how long a decision took."""
    task, equations = TASKS[plant], PLANTS[plant]
    outside = [limits.violation(states[1:]) for states in found.states]
    away = [(states[1:] - task.goal) ** 2 @ np.asarray(equations.state_cost) for states in found.states]
    costs = [
        float(own.sum() + equations.action_cost * (actions**2).sum())
        for own, actions in zip(away, found.actions, strict=True)
    ]
    every = np.concatenate(outside)
    return {
        "cost": float(np.mean(costs)),
        "fell": float(np.mean([len(states) <= length for states in found.states])),
        "violation": float(every.max()),
        "steps_beyond": float(np.mean(every > BEYOND)),
        "end": float(np.mean([np.abs(states[-1] - task.goal).max() for states in found.states])),
        "trajectory": [round(float(position), 5) for position in found.states[0][:, 0]],
        **found.latency(),
    }


def _controller(plant: str, arm: str, box: Box, limits: Limits, budget: ConstraintsBudget) -> Controller:
    task, equations = TASKS[plant], PLANTS[plant]
    cost = QuadraticCost(task.goal, equations.state_cost, (equations.action_cost,))
    name, _, planner = arm.rpartition("-")
    if name == "true":
        goal, of_states, of_actions = map(jnp.asarray, (task.goal, equations.state_cost, (equations.action_cost,)))
        exact, linear = TrueModel(plant), plant == "double-integrator"
        config = QPConfig(task.horizon)
        chosen = QP.for_cost(exact, goal, of_states, of_actions, limits, box=box, config=config, linear=linear)
        return Controller(exact, chosen, sizes=(len(task.goal), 1))
    model = _model(plant, name, budget)
    if planner in ("mppi", "penalised"):
        weight = PENALTY if planner == "penalised" else 0.0
        ends = {"low": tuple(limits.state_low), "high": tuple(limits.state_high)}
        reward = partial(_reward, plant=plant, penalty=weight, **ends)
        chosen = make_planner("mppi", model, box, horizon=task.horizon, samples=budget.samples)
        return Controller(RewardedModel(model, reward), chosen, sizes=(len(task.goal), 1))
    constraints = Constraints(task.state_bounds) if planner == "qp" else Constraints()
    horizon = task.horizon if planner == "qp" else None
    chosen = make_planner(planner, model, box, cost=cost, constraints=constraints, horizon=horizon)
    return Controller(model, chosen)


def _model(plant: str, name: str, budget: ConstraintsBudget) -> DynamicsModel:
    data = random_pushes(plant, budget.rows, seed=0)
    core, _, kind = name.partition("-")
    options = {} if core == "dmdc" or kind == "network" else LINEAR
    return fitted(
        "dmdc" if core == "dmdc" else "koopman-small", data, steps=budget.steps, horizon=HORIZON, seed=0, **options
    )


def _reward(states: Any, actions: Any, next_states: Any, *, plant: str, penalty: float, low: tuple, high: tuple) -> Any:
    """The reward of MPPI: minus the cost, and minus a penalty on leaving the bounds."""
    del states
    task, equations = TASKS[plant], PLANTS[plant]
    away = jnp.sum(jnp.asarray(equations.state_cost) * (next_states - jnp.asarray(task.goal)) ** 2, axis=-1)
    outside = jnp.maximum(jnp.asarray(low) - next_states, next_states - jnp.asarray(high))
    left = penalty * jnp.sum(jnp.maximum(outside, 0.0), axis=-1)
    return -(away + equations.action_cost * jnp.sum(actions**2, axis=-1) + left)


def summarise(found: list[dict[str, Any]]) -> Summary:
    """A line per plant and controller."""
    lines = [
        [
            cell["labels"]["plant"],
            cell["labels"]["arm"],
            f"{cell['cost']:.2f}" if not cell["fell"] else f"fell from {cell['fell']:.0%}",
            f"{cell['violation']:.2g}",
            f"{cell['steps_beyond']:.1%}",
            f"{cell['end']:.2g}",
            f"{cell['p50_ms']:.2f} / {cell['p99_ms']:.2f}",
            f"{cell['processor_p50_ms']:.2f} / {cell['processor_p99_ms']:.2f}",
        ]
        for cell in found
    ]
    header = [
        "plant",
        "controller",
        "cost",
        "largest violation",
        "steps beyond 1e-3",
        "distance to the goal at the end",
    ]
    header += ["ms (p50 / p99)", "processor ms (p50 / p99)"]
    kept = ("labels", "cost", "fell", "violation", "steps_beyond", "end", "p50_ms", "p99_ms")
    document = [{name: cell[name] for name in kept} | {"load": cell["conditions"]["load_end"]} for cell in found]
    note = (
        "A controller is a model and a planner: `true` are the plant's own equations, `koopman` is linear in actions "
        "and read-out, `koopman-network` has networks in both and is planned with by a sequence of programs. MPPI "
        "minimises the same cost; `penalised` also a heavy penalty on states outside the limits."
    )
    return Summary("Hard limits: violations and cost", [markdown(header, lines), note], {"rows": document})


def figure(found: list[dict[str, Any]]) -> Figure:
    """The position from the first start, a panel per plant, and the wall."""
    plants = list(dict.fromkeys(cell["labels"]["plant"] for cell in found))
    drawn = Figure(figsize=(4.6 * len(plants), 3.4), layout="constrained")
    panels = np.atleast_1d(drawn.subplots(1, len(plants)))
    lines = {"true": "-", "dmdc": "--", "koopman": ":", "koopman-network": "-."}
    labels = {"penalised": "mppi with a penalty"}
    for panel, plant in zip(panels, plants, strict=True):
        for cell in found:
            if cell["labels"]["plant"] == plant:
                name, _, planner = cell["labels"]["arm"].rpartition("-")
                style = {"color": COLOURS[planner], "linestyle": lines[name], "linewidth": 1.4}
                panel.plot(cell["trajectory"], label=f"{name}, {labels.get(planner, planner)}", **style)
        panel.axhline(TASKS[plant].state_bounds[1], color=INK, linewidth=0.8)
        panel.set(title=plant, xlabel="step", ylabel="position (the line is the wall)")
        panel.set_ylim(-1.05, 1.3)
        tidy(panel)
    panels[0].legend(frameon=False, fontsize=7, loc="lower right")
    return drawn


EXPERIMENT = Experiment(name="constraints", budgets=BUDGETS, run=run, summarise=summarise, figure=figure)
