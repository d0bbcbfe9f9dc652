"""How long a control loop waits for a decision: every planner, one environment, compiled ahead.

Each controller holds a cart-pole of its own near its upright point, decision by decision, in turns with all others, so
that whatever else the machine does meets all of them. Times are of `Controller.act`, from an observation to an action
in NumPy. The searches and LQR have a small Koopman model. The convex program has that one, for which it is a sequence
of programs, the same with a linear action input and read-out, and DMDc, for which it is one.
"""

import os
import time
from typing import Any

import jax
import numpy as np

from koopax._errors import KoopaxError
from koopax.bench.clock import Watch
from koopax.data.episodes import Episodes
from koopax.envs.plants import PLANTS
from koopax.models.dynamics import DynamicsModel
from koopax.planning.choice import PLANNERS, REGULATORS, QuadraticCost, make_planner
from koopax.planning.constraints import Constraints
from koopax.planning.controller import Controller
from koopax.planning.learned import LearnedModel
from koopax.planning.protocol import Box
from koopax.training.linear_start import linear_start
from koopax.training.regression import dmdc_reference

PLANT = "cart-pole"
BOUNDS = (-1.0, 1.0, -0.4, 0.4, float("-inf"), float("inf"), float("-inf"), float("inf"))
# Decisions that are not counted.
FIRST = 5


def measure_decisions(
    *, horizon: int, samples: int, decisions: int, watch: Watch = lambda done, total: None
) -> list[dict[str, Any]]:
    """A row for each planner and model: p50 and p99 by the clock and in processor time of all threads.

    Args:
        horizon: steps of a plan.
        samples: candidates of a search; restarts of `gradient` are an eighth.
        decisions: that are timed, of each.
        watch: told how many decisions are done, and of how many.
    """
    if min(horizon, samples, decisions) < 1:
        raise KoopaxError(f"{decisions} decisions of {samples} samples and {horizon} steps: give one or more of each.")
    controllers = _controllers(horizon, samples)
    plant, rng = PLANTS[PLANT], np.random.default_rng(0)
    states = {name: np.zeros(len(plant.start)) for name in controllers}
    wall: dict[Any, list[float]] = {name: [] for name in controllers}
    processor: dict[Any, list[float]] = {name: [] for name in controllers}
    for number in range(FIRST + decisions):
        for name, controller in controllers.items():
            if number % 50 == 0 or (np.abs(states[name]) > plant.ends).any():
                states[name] = rng.uniform(-1, 1, len(plant.start)) * plant.start
                controller.reset()
            began, used = time.perf_counter(), time.process_time()
            action = controller.act(states[name])
            if number >= FIRST:
                processor[name].append(1e3 * (time.process_time() - used))
                wall[name].append(1e3 * (time.perf_counter() - began))
            states[name] = plant.advance(states[name], np.float64(action[0]))
        watch(number + 1, FIRST + decisions)
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return [
        {
            "planner": planner,
            "model": model,
            "horizon": horizon if planner != "lqr" else None,
            "samples": samples if planner not in REGULATORS else None,
            "decisions": decisions,
            **_percentiles("", wall[planner, model]),
            **_percentiles("processor_", processor[planner, model]),
            "load": load,
        }
        for planner, model in controllers
    ]


def _percentiles(prefix: str, milliseconds: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(milliseconds, (50, 99))
    return {f"{prefix}p50_ms": float(p50), f"{prefix}p99_ms": float(p99)}


def _controllers(horizon: int, samples: int) -> dict[tuple[str, str], Controller]:
    plant = PLANTS[PLANT]
    data = _pushes()
    models = {"dmdc": dmdc_reference(data)}
    for name, options in (("koopman", {}), ("koopman-linear", {"decoder_hidden": (), "action_hidden": ()})):
        learned = DynamicsModel.create("koopman-small", data, key=jax.random.key(0), growth=0.3, **options)
        models[name] = linear_start(learned, data)
    box = Box([-plant.force], [plant.force])
    cost = QuadraticCost((0.0,) * len(plant.start), plant.state_cost, (plant.action_cost,))
    found = {}
    for planner in PLANNERS:
        model = models["koopman"]
        if planner not in REGULATORS:
            count = max(1, samples // 8) if planner == "gradient" else samples
            chosen = make_planner(planner, model, box, horizon=horizon, samples=count)
            sizes = model.config.state_size, model.config.action_size
            found[planner, "koopman"] = Controller(LearnedModel(model), chosen, sizes=sizes)
            continue
        for name in ("dmdc", "koopman-linear", "koopman") if planner == "qp" else ("koopman",):
            limits = Constraints(BOUNDS) if planner == "qp" else Constraints()
            steps = horizon if planner == "qp" else None
            chosen = make_planner(planner, models[name], box, cost=cost, constraints=limits, horizon=steps)
            found[planner, name] = Controller(models[name], chosen)
    return found


def _pushes() -> Episodes:
    """Random pushes, with the cost as a reward."""
    plant, rng = PLANTS[PLANT], np.random.default_rng(0)
    states = [rng.uniform(-1, 1, (40, len(plant.start))) * plant.start]
    forces = rng.uniform(-plant.force, plant.force, (20, 40))
    for force in forces:
        states.append(plant.advance(states[-1], force))
    observed = np.stack(states, 1)
    costs = (observed[:, 1:] ** 2) @ np.asarray(plant.state_cost) + plant.action_cost * forces.T**2
    return Episodes.from_arrays(
        observed.astype(np.float32), forces.T[..., None].astype(np.float32), -costs.astype(np.float32)
    )
