"""Planners by name, for the command line and comparisons."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import jax.numpy as jnp

from koopax._errors import KoopaxError, unknown_name
from koopax._types import Array
from koopax.models.dynamics import DynamicsModel
from koopax.planning.cem import CEM, CEMConfig
from koopax.planning.gradient import GradientConfig, GradientPlanner
from koopax.planning.icem import ICEM, ICEMConfig
from koopax.planning.linearity import is_linear, sees_all
from koopax.planning.lqr import LQR, linearise, linearise_states
from koopax.planning.mppi import MPPI, MPPIConfig
from koopax.planning.protocol import Box

# Planners that search through any model, with what a number of samples means for each.
SEARCHES: Mapping[str, tuple[type, type, str]] = {
    "mppi": (MPPI, MPPIConfig, "samples"),
    "cem": (CEM, CEMConfig, "samples"),
    "icem": (ICEM, ICEMConfig, "samples"),
    "gradient": (GradientPlanner, GradientConfig, "restarts"),
}
PLANNERS = (*SEARCHES, "lqr")
LQR_HORIZON = 200


@dataclass(frozen=True)
class QuadraticCost:
    """(s − goal)ᵀ diag(q) (s − goal) + aᵀ diag(r) a, in raw units: what LQR minimises."""

    goal: tuple[float, ...] | None = None
    """The state to reach."""
    state_cost: tuple[float, ...] | None = None
    """Weight of each component of a state; 1 by default."""
    action_cost: tuple[float, ...] = (0.01,)
    """Weight of each component of an action, or one for all."""


def make_search(name: str, box: Box, **settings: Any) -> MPPI | CEM | ICEM | GradientPlanner:
    """A searching planner; `settings` are fields of its config, `samples` and those that are None aside.

    `samples` is the number of candidates, whatever the planner calls it; its elites never outnumber them.
    """
    if name not in SEARCHES:
        raise unknown_name("planner", name, list(PLANNERS))
    planner, config, samples_name = SEARCHES[name]
    given = {key: value for key, value in settings.items() if value is not None}
    if "samples" in given:
        given[samples_name] = given.pop("samples")
    known: dict[str, Any] = {f.name: f.default for f in fields(config)}
    for key in given:
        if key not in known:
            raise KoopaxError(f"planner {name!r} has no setting {key!r}: it takes {', '.join(sorted(known))}.")
    if "elites" in known and "elites" not in given and given.get("samples", 0) > 0:
        given["elites"] = min(known["elites"], max(1, given["samples"] // 2))
    return planner(config(**given), box)


def make_lqr(model: DynamicsModel, box: Box, cost: QuadraticCost, *, horizon: int | None = None) -> LQR:
    """LQR on a trained model's latent system; its horizon is `LQR_HORIZON` steps by default."""
    states, actions = model.config.state_size, model.config.action_size
    if cost.goal is None:
        raise KoopaxError(f"planner 'lqr' needs a goal state: pass --goal with {states} numbers.")
    steps = LQR_HORIZON if horizon is None else horizon
    if steps < 1:
        raise KoopaxError(f"horizon is {steps}: use a positive number.")
    goal = _numbers("goal", cost.goal, states)
    state_cost = jnp.ones(states) if cost.state_cost is None else _numbers("state-cost", cost.state_cost, states)
    per_action = cost.action_cost * actions if len(cost.action_cost) == 1 else cost.action_cost
    action_cost = _numbers("action-cost", per_action, actions)
    if not (bool(jnp.all(state_cost >= 0)) and bool(jnp.all(action_cost > 0))):
        raise KoopaxError(
            f"LQR's costs are {cost.state_cost or 1} for states and {cost.action_cost} for actions: "
            "use 0 or more for states and positive numbers for actions."
        )
    middle = box.from_unit(jnp.zeros(actions))
    in_states = not is_linear(model) and sees_all(model)
    system = linearise_states(model, goal, middle) if in_states else linearise(model, goal, middle)
    costs = jnp.diag(state_cost), jnp.diag(action_cost)
    return LQR.for_cost(system, goal, *costs, horizon=steps, box=box, in_states=in_states)


def _numbers(name: str, values: tuple[float, ...], size: int) -> Array:
    if len(values) != size:
        raise KoopaxError(f"--{name} has {len(values)} numbers, but this model needs {size}: give one per component.")
    return jnp.asarray(values, float)
