"""Training in imagination, which the paper leaves for the future: SAC in the learned simulator, from a fixed dataset.

A cell is a dataset, an arm and a seed. Its models, Koopman models of several seeds, are trained on the data; the policy
is cloned from the data's actions and then learns in the models. It is judged in the environment, of which it has never
seen a step, against what the data returns and against the cloned policy. The arms:

- `imagination`: half of every batch is imagined, and disagreement of the models costs reward;
- `data only`: the same learner without imagination, which is what the models have to be worth more than.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from koopax._plots import BLUE, INK, ORANGE, tidy
from koopax._provenance import provenance
from koopax.agents import ImaginationConfig, train_imagination
from koopax.agents.imagination.train import Given
from koopax.agents.run import holds_run
from koopax.data.episodes import Episodes
from koopax.envs import episode_returns
from koopax.evaluation.prediction import prediction_error
from koopax.experiments.experiment import Experiment, Place
from koopax.experiments.grid import Interrupted, Job, conditions, load_average, run_missing
from koopax.experiments.returns import names, returns_of
from koopax.experiments.summaries import Summary, interval, markdown
from koopax.models.dynamics import DynamicsModel
from koopax.models.presets import ONE_MEMBER, PLAIN_TRAINING
from koopax.training.config import TrainConfig
from koopax.training.tasks import TrainTask, run_task_seeds, splits

ARMS: dict[str, dict[str, Any]] = {"imagination": {}, "data only": {"imagined_share": 0.0}}
ENVIRONMENTS = {"halfcheetah": "HalfCheetah-v5", "hopper": "Hopper-v5"}
COLOURS = {"imagination": BLUE, "data only": ORANGE}


@dataclass(frozen=True)
class ImaginationBudget:
    """The size of the experiment."""

    robots: tuple[str, ...]
    """Whose medium-expert data is learned from."""
    data_steps: int
    """Steps of the data."""
    models: int
    """Models that may disagree."""
    model_steps: int
    """Gradient steps of each model."""
    seeds: int
    """Trainings of the agent."""
    agent: dict[str, Any]
    """Settings of the agent."""
    horizon: int = 10
    """Steps of a window that models are trained on."""
    latent_size: int = 256
    """Width of a latent."""


TINY = {
    "steps": 80,
    "rollouts": 8,
    "rollout_length": 2,
    "updates_per_step": 0.25,
    "hidden_sizes": (8, 8),
    "batch_size": 8,
    "clone_updates": 5,
    "evaluate_every": 40,
    "evaluate_episodes": 1,
}
BUDGETS = {
    "smoke": ImaginationBudget(("halfcheetah",), 4_000, 2, 10, 1, TINY, latent_size=16),
    "cpu": ImaginationBudget(
        ("halfcheetah",),
        50_000,
        3,
        400,
        1,
        {"steps": 60_000, "evaluate_every": 20_000, "clone_updates": 4_000, "evaluate_episodes": 3},
        latent_size=128,
    ),
    "paper": ImaginationBudget(
        ("halfcheetah", "hopper"), 1_000_000, 7, 50_000, 5, {"steps": 10_000_000, "evaluate_every": 500_000}
    ),
}


def run(budget: ImaginationBudget, place: Place) -> list[dict[str, Any]]:
    """Run what is not finished yet and return every cell's document."""
    cells = [
        {"task": robot, "arm": arm, "seed": seed}
        for robot in budget.robots
        for seed in range(budget.seeds)
        for arm in ARMS
    ]
    shared = {name: value for name, value in asdict(budget).items() if name not in ("robots", "seeds")}
    jobs = [
        Job(
            f"{cell['task']}-{cell['arm'].replace(' ', '-')}-seed{cell['seed']}",
            json.loads(json.dumps({**cell, **shared, "arm_settings": ARMS[cell["arm"]]})),
        )
        for cell in cells
    ]

    def run_cells(numbers: Sequence[int], place: Place) -> Iterator[tuple[int, dict[str, Any]]]:
        for number in numbers:
            found = _run_cell(cells[number], jobs[number].name, budget, place)
            yield number, {"cell": jobs[number].name, "labels": cells[number], "made_of": jobs[number].made_of, **found}

    return run_missing(jobs, run_cells, place)


def _run_cell(cell: dict[str, Any], name: str, budget: ImaginationBudget, place: Place) -> dict[str, Any]:
    load, robot = load_average(), cell["task"]
    given, test = _models(robot, budget, place)
    config = ImaginationConfig(env=ENVIRONMENTS[robot], seed=cell["seed"], **{**budget.agent, **ARMS[cell["arm"]]})
    folder = place.work / name
    with place.watcher(name, config.steps, None) as watch:
        result = train_imagination(config, folder, given=given, resume=holds_run(folder), watch=watch)
    if result.interrupted:
        raise Interrupted
    policy, final = result.policy.with_deterministic(True), 2 * config.evaluate_episodes
    returns = episode_returns(config.env, policy, final, seed=10_000 + cell["seed"])
    curve = [
        {
            key: line[key]
            for key in ("decisions", "updates", "seconds", "evaluation_return", "disagreement")
            if key in line
        }
        for line in result.metrics
    ]
    errors = [prediction_error(model, test, horizon=budget.horizon, windows=500) for model in given.models]
    return {
        "return": float(np.mean(returns)),
        "returns": returns.tolist(),
        "clone_return": curve[0]["evaluation_return"],
        "data": _data_returns(given.episodes),
        "model_errors": [error.state.normalised for error in errors],
        "curve": curve,
        "conditions": conditions(load),
        **provenance(),
    }


def _models(robot: str, budget: ImaginationBudget, place: Place) -> tuple[Given, Episodes]:
    """The models of a robot's data, trained once for all arms, and the episodes that they are tested on."""
    options = {**ONE_MEMBER, "latent_size": budget.latent_size}
    task = TrainTask(
        source=f"koopax/{robot}/medium-expert-v0",
        model="koopman",
        train=TrainConfig(horizon=budget.horizon, steps=budget.model_steps, seed=0, **PLAIN_TRAINING),
        source_options={"steps": budget.data_steps},
        model_options=options,
    )
    folder = place.work / f"{robot}-models"
    with place.watcher(f"{robot} models", budget.models * budget.model_steps, None) as watch:
        runs = run_task_seeds(task, budget.models, folder, resume=folder.exists(), watch=watch)
    if any(each.stopped == "interrupted" for each in runs):
        raise Interrupted
    episodes = splits(task)
    models: list[DynamicsModel] = [each.model for each in runs]
    return Given(models, episodes.train), episodes.test


def _data_returns(episodes: Episodes) -> dict[str, Any]:
    """Mean return of the whole episodes in the data, and of each source."""
    by_source: dict[str, list[float]] = {}
    longest = max(len(episode.actions) for episode in episodes)
    for number, episode in enumerate(episodes):
        if len(episode.actions) == longest or episodes.terminated[number]:
            source = episodes.metadata.source_names[episodes.sources[number]]
            by_source.setdefault(source, []).append(float(np.sum(episode.rewards)))
    everything = [value for values in by_source.values() for value in values]
    means = {source: float(np.mean(values)) for source, values in by_source.items()}
    return {"mean": float(np.mean(everything)), "best": float(np.max(everything)), "sources": means}


def summarise(found: list[dict[str, Any]]) -> Summary:
    """Returns of each arm beside the data's and the cloned policy's."""
    arms, table, rows = names(found, "arm"), {}, []
    for task in names(found, "task"):
        cells = [cell for cell in found if cell["labels"]["task"] == task]
        learned = {arm: interval(returns_of(found, task, arm)) for arm in arms if returns_of(found, task, arm)}
        cloned, data = interval([cell["clone_return"] for cell in cells]), cells[0]["data"]
        table[task] = {"data": data, "behaviour cloning": cloned, **learned}
        told = [f"{source} {value:.0f}" for source, value in data["sources"].items()]
        mean = f"{data['mean']:.0f} ({', '.join(told)})"
        counts = "/".join(str(len(returns_of(found, task, arm))) for arm in arms)
        rows.append([task, mean, cloned["text"], *(learned[a]["text"] if a in learned else "–" for a in arms), counts])
    header = ["medium-expert data of", "data, mean return", "behaviour cloning", *arms, "seeds"]
    note = (
        "Returns in the environment, which no arm has learned from: of whole episodes of the data, of the policy "
        "cloned from its actions, and after learning; deterministic episodes."
    )
    return Summary("SAC in imagination from a fixed dataset", [markdown(header, rows), note], {"returns": table})


def figure(found: list[dict[str, Any]]) -> Figure:
    """Returns in the environment against imagined steps; the dashed line is what the data returns on average."""
    tasks = names(found, "task")
    drawn = Figure(figsize=(4.6 * len(tasks), 3.6), layout="constrained")
    panels = np.atleast_1d(drawn.subplots(1, len(tasks)))
    for panel, task in zip(panels, tasks, strict=True):
        cells = [cell for cell in found if cell["labels"]["task"] == task]
        for number, cell in enumerate(cells):
            arm = cell["labels"]["arm"]
            first = arm not in [other["labels"]["arm"] for other in cells[:number]]
            evaluated = [point for point in cell["curve"] if "evaluation_return" in point]
            xs, ys = [p["decisions"] for p in evaluated], [p["evaluation_return"] for p in evaluated]
            panel.plot(xs, ys, color=COLOURS[arm], marker="o", markersize=3, label=arm if first else None)
        data = cells[0]["data"]
        panel.axhline(data["mean"], color=INK, linestyle="--", linewidth=1, label="data, mean")
        panel.axhline(data["best"], color=INK, linestyle=":", linewidth=1, label="data, best episode")
        panel.set(title=f"{task}, medium-expert", xlabel="imagined steps (0: behaviour cloning)", ylim=(0, None))
        tidy(panel)
    panels[0].set_ylabel("return in the environment")
    panels[0].legend(frameon=False, fontsize=8)
    return drawn


EXPERIMENT = Experiment(name="imagination", budgets=BUDGETS, run=run, summarise=summarise, figure=figure)
