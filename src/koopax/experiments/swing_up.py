"""Pendulum swing-up from random steps, by every planner: return, and how long a decision takes.

One Koopman model is trained on random actions in Gymnasium's `Pendulum-v1`. Every planner then plays the same episodes
with it, one environment at a time, as a control loop would: `koopax.Controller`, compiled beforehand. The searches
maximise the learned reward. LQR and the convex program have a quadratic cost about the upright state instead, (cos θ,
sin θ, θ̇) = (1, 0, 0); both are local: they know what to do near it, and nobody promises that they swing up.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from koopax._plots import BLUE, INK, tidy
from koopax._provenance import provenance
from koopax.collection.collecting import collect
from koopax.envs import action_bounds, make
from koopax.experiments.closed_loop import latency
from koopax.experiments.experiment import Experiment, Place
from koopax.experiments.grid import Job, conditions, load_average, run_missing
from koopax.experiments.summaries import Summary, markdown
from koopax.models.dynamics import DynamicsModel
from koopax.models.files import load_model
from koopax.planning.choice import PLANNERS, REGULATORS, QuadraticCost, make_planner
from koopax.planning.controller import Controller
from koopax.planning.protocol import Box
from koopax.training.fitting import fit

ENV = "Pendulum-v1"
GOAL = QuadraticCost((1.0, 0.0, 0.0), (1.0, 1.0, 0.1), (0.001,))
# Half a minute of training on an idle core; see docs/planning.md.
MODEL = {"latent_size": 64, "encoder_hidden": (128,), "decoder_hidden": (128,)}


@dataclass(frozen=True)
class SwingUpBudget:
    """The size of the comparison."""

    rows: int
    """Random steps to learn from."""
    steps: int
    """Gradient steps of the model."""
    episodes: int
    """Of each planner, the same ones."""
    length: int
    """Decisions in an episode."""
    horizon: int
    """Steps of a plan."""
    samples: int
    """Candidates of a search; restarts of `gradient` are an eighth."""


BUDGETS = {
    "smoke": SwingUpBudget(600, 5, episodes=1, length=5, horizon=4, samples=8),
    "cpu": SwingUpBudget(20_000, 1_500, episodes=10, length=200, horizon=20, samples=64),
    "paper": SwingUpBudget(20_000, 5_000, episodes=50, length=200, horizon=20, samples=256),
}


def run(budget: SwingUpBudget, place: Place) -> list[dict[str, Any]]:
    """Run what is not finished yet and return every planner's document."""
    jobs = [Job(planner, {"planner": planner, **asdict(budget)}) for planner in PLANNERS]

    def run_cells(numbers: Sequence[int], place: Place) -> Iterator[tuple[int, dict[str, Any]]]:
        model = _trained(budget, place)
        for number in numbers:
            yield number, {"made_of": jobs[number].made_of, **_run_cell(PLANNERS[number], model, budget)}

    return run_missing(jobs, run_cells, place)


def _trained(budget: SwingUpBudget, place: Place) -> DynamicsModel:
    """The model that all planners share, trained once."""
    path = Path(place.work) / f"model-{budget.rows}-{budget.steps}.koopax"
    if not path.is_file():
        import jax

        data = collect(ENV, policy="random", steps=budget.rows, seed=0)
        model = DynamicsModel.create("koopman", data, key=jax.random.key(0), **MODEL)
        with place.watcher("the model", budget.steps, None) as watch:
            settings = {"horizon": min(20, budget.horizon), "steps": budget.steps, "consistency_weight": 0.0}
            model = fit(model, data, seed=0, watch=watch, **settings).model
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(path)
    return load_model(path)


def _run_cell(planner: str, model: DynamicsModel, budget: SwingUpBudget) -> dict[str, Any]:
    load, env = load_average(), make(ENV)
    box = Box(*action_bounds(env))
    if planner in REGULATORS:
        horizon = None if planner == "lqr" else budget.horizon
        chosen = make_planner(planner, model, box, cost=GOAL, horizon=horizon)
    else:
        samples = max(1, budget.samples // 8) if planner == "gradient" else budget.samples
        chosen = make_planner(planner, model, box, horizon=budget.horizon, samples=samples)
    controller = Controller(model, chosen)
    returns, wall, processor = [], [], []
    for episode in range(budget.episodes):
        observation, _ = env.reset(seed=episode)
        controller.reset()
        total = 0.0
        for _ in range(budget.length):
            began, used = time.perf_counter(), time.process_time()
            action = controller.act(observation)
            processor.append(1e3 * (time.process_time() - used))
            wall.append(1e3 * (time.perf_counter() - began))
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        returns.append(total)
    env.close()
    used = {f"processor_{name}": value for name, value in latency(processor).items()}
    document = {"labels": {"planner": planner}, "returns": returns, "mean_return": float(np.mean(returns))}
    return {**document, **latency(wall), **used, "conditions": conditions(load), **provenance()}


def summarise(found: list[dict[str, Any]]) -> Summary:
    """A line per planner."""
    lines = [
        [
            cell["labels"]["planner"],
            f"{cell['mean_return']:.0f}",
            f"{min(cell['returns']):.0f}",
            f"{max(cell['returns']):.0f}",
            f"{cell['p50_ms']:.2f} / {cell['p99_ms']:.2f}",
            f"{cell['processor_p50_ms']:.2f} / {cell['processor_p99_ms']:.2f}",
            f"{cell['conditions']['load_end']}",
        ]
        for cell in found
    ]
    header = ["planner", "mean return", "lowest", "highest", "ms (p50 / p99)", "processor ms (p50 / p99)", "load"]
    kept = ("labels", "returns", "mean_return", "p50_ms", "p99_ms", "processor_p50_ms", "processor_p99_ms")
    document = [{name: cell[name] for name in kept} | {"load": cell["conditions"]["load_end"]} for cell in found]
    note = (
        "One environment at a time. Doing nothing returns about −1200, good controllers about −150. Milliseconds by "
        "the clock are stretched by whatever else the machine does (its load is beside them); processor time is not."
    )
    return Summary("Pendulum swing-up by every planner", [markdown(header, lines), note], {"rows": document})


def figure(found: list[dict[str, Any]]) -> Figure:
    """Return of every episode of each planner, with the processor time of a decision."""
    drawn = Figure(figsize=(5.2, 3.4), layout="constrained")
    panel = drawn.subplots()
    for x, cell in enumerate(found):
        panel.scatter([x] * len(cell["returns"]), cell["returns"], color=BLUE, s=10, alpha=0.5)
        panel.scatter([x], [cell["mean_return"]], color=INK, marker="_", s=160)
    told = [f"{cell['labels']['planner']}\n{cell['processor_p50_ms']:.2g} ms" for cell in found]
    panel.set_xticks(range(len(told)), told)
    panel.set(xlabel="planner, and processor time of a decision (median)", ylabel="return; the bar is the mean")
    tidy(panel)
    return drawn


EXPERIMENT = Experiment(name="swing-up", budgets=BUDGETS, run=run, summarise=summarise, figure=figure)
