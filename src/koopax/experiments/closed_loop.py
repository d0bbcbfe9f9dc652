"""A controller on a plant, decision by decision: where it led, what it cost, and how long it thought."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from koopax.data.episodes import Episodes
from koopax.envs.plants import PLANTS
from koopax.evaluation.prediction import prediction_error
from koopax.models.dynamics import DynamicsModel
from koopax.planning.controller import Controller
from koopax.training.fitting import fit

VALIDATION = 0.1


@dataclass(frozen=True)
class ClosedLoop:
    """What happened from each of several starts."""

    states: list[np.ndarray]
    """`[T+1, S]` of each; shorter where the plant fell."""
    actions: list[np.ndarray]
    """`[T, A]`."""
    milliseconds: np.ndarray
    """Of every decision, by the clock on the wall."""
    processor_milliseconds: np.ndarray
    """The same in processor time of all threads, which other processes don't lengthen."""

    def latency(self) -> dict[str, float]:
        """Median and 99th percentile of a decision, in milliseconds."""
        wall = latency(self.milliseconds)
        return {**wall, **{f"processor_{name}": value for name, value in latency(self.processor_milliseconds).items()}}


def latency(milliseconds: Sequence[float] | np.ndarray) -> dict[str, float]:
    """p50 and p99."""
    found = np.percentile(np.asarray(milliseconds, float), (50, 99))
    return {"p50_ms": float(found[0]), "p99_ms": float(found[1])}


def run_loop(controller: Controller, plant: str, starts: np.ndarray, steps: int) -> ClosedLoop:
    """Control a plant for so many steps from each of the starts, or until it falls."""
    equations = PLANTS[plant]
    all_states, all_actions, wall, processor = [], [], [], []
    controller.act(starts[0].astype(np.float32))  # whatever is done once is done
    for start in starts:
        controller.reset()
        states, actions = [np.asarray(start, float)], []
        for _ in range(steps):
            began, used = time.perf_counter(), time.process_time()
            action = controller.act(states[-1])
            processor.append(1e3 * (time.process_time() - used))
            wall.append(1e3 * (time.perf_counter() - began))
            actions.append(action)
            states.append(equations.advance(states[-1], np.float64(action[0])))
            if (np.abs(states[-1]) > equations.ends).any():
                break
        all_states.append(np.array(states))
        all_actions.append(np.array(actions))
    return ClosedLoop(all_states, all_actions, np.array(wall), np.array(processor))


def random_pushes(plant: str, steps: int, *, seed: int, longest: int = 100) -> Episodes:
    """Episodes of forces drawn evenly at every step, until the plant falls."""
    equations, rng = PLANTS[plant], np.random.default_rng(seed)
    observations, forces, left = [], [], steps
    while left > 0:
        states, actions = [rng.uniform(-1, 1, len(equations.start)) * equations.start], []
        while len(actions) < min(longest, left) and not (np.abs(states[-1]) > equations.ends).any():
            actions.append(rng.uniform(-equations.force, equations.force, 1))
            states.append(equations.advance(states[-1], actions[-1][0]))
        left -= len(actions)
        observations.append(np.array(states, np.float32))
        forces.append(np.array(actions, np.float32))
    return Episodes.from_arrays(observations, forces, step_seconds=equations.step)


def fitted(name: str, data: Episodes, *, steps: int, horizon: int, seed: int, **options: Any) -> DynamicsModel:
    """A model of the data: a regression, or a small Koopman model trained for so many steps.

    That begins at least squares. Where they predict the episodes that nobody was trained on better, as on a plant that
    is linear, they stay.
    """
    train, validation = data.split(1 - VALIDATION, seed=0)
    model = DynamicsModel.create(name, train, key=jax.random.key(seed), **options)
    settings = {"horizon": horizon, "seed": seed, "progress": False, "reencode_every": "never"}
    if name == "dmdc":
        return fit(model, train, validation=validation, **settings).model
    found = [fit(model, train, steps=count, **settings).model for count in dict.fromkeys((0, steps))]
    return min(found, key=lambda each: prediction_error(each, validation, horizon=horizon).state.normalised)
