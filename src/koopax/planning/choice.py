"""Planners by name, for the command line and comparisons."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import jax.numpy as jnp

from koopax._errors import KoopaxError, unknown_name
from koopax._types import Array
from koopax.models.dynamics import DynamicsModel, Reencoding
from koopax.planning.cem import CEM, CEMConfig
from koopax.planning.constraints import Constraints, limits_of
from koopax.planning.gradient import GradientConfig, GradientPlanner
from koopax.planning.icem import ICEM, ICEMConfig
from koopax.planning.learned import in_states
from koopax.planning.linearity import is_linear, sees_all
from koopax.planning.lqr import LQR, linearise, linearise_states
from koopax.planning.mppi import MPPI, MPPIConfig
from koopax.planning.planner import Planner
from koopax.planning.protocol import Box
from koopax.planning.qp import QP, QPConfig

# Planners that search through any model, with what a number of samples means for each.
SEARCHES: Mapping[str, tuple[type, type, str]] = {
    "mppi": (MPPI, MPPIConfig, "samples"),
    "cem": (CEM, CEMConfig, "samples"),
    "icem": (ICEM, ICEMConfig, "samples"),
    "gradient": (GradientPlanner, GradientConfig, "restarts"),
}
# Planners that know a quadratic cost about a goal, not a reward.
REGULATORS = ("lqr", "qp")
PLANNERS = (*SEARCHES, *REGULATORS)
LQR_HORIZON = 200


@dataclass(frozen=True)
class QuadraticCost:
    """(s − goal)ᵀ diag(q) (s − goal) + aᵀ diag(r) a, in raw units: what LQR and the convex program minimise."""

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
    _check_settings(name, config, given)
    if "elites" in known and "elites" not in given and given.get("samples", 0) > 0:
        given["elites"] = min(known["elites"], max(1, given["samples"] // 2))
    return planner(config(**given), box)


def make_planner(
    name: str,
    model: DynamicsModel,
    box: Box,
    *,
    cost: QuadraticCost = QuadraticCost(),
    constraints: Constraints = Constraints(),  # noqa: B008  (frozen)
    reencode_every: Reencoding = None,
    **settings: Any,
) -> Planner:
    """Any planner by name, for a trained model and these bounds of the actions.

    Args:
        name: one of `PLANNERS`.
        model: what is planned with.
        box: bounds of the environment's actions.
        cost: for `lqr` and `qp`.
        constraints: for `qp`.
        reencode_every: for `qp`, how the model is rolled out; as it does by itself by default.
        **settings: of the planner's config; those that are None are left at its own.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    if name == "lqr":
        return make_lqr(model, box, cost, horizon=given.get("horizon"))
    if name == "qp":
        return make_qp(model, box, cost, constraints, reencode_every=reencode_every, **given)
    return make_search(name, box, **given)


def make_lqr(model: DynamicsModel, box: Box, cost: QuadraticCost, *, horizon: int | None = None) -> LQR:
    """LQR on a trained model; its horizon is `LQR_HORIZON` steps by default."""
    steps = LQR_HORIZON if horizon is None else horizon
    if steps < 1:
        raise KoopaxError(f"horizon is {steps}: use a positive number.")
    goal, state_cost, action_cost = _costs("lqr", model, cost)
    middle = box.from_unit(jnp.zeros(model.config.action_size))
    from_state = not is_linear(model) and sees_all(model)
    system = linearise_states(model, goal, middle) if from_state else linearise(model, goal, middle)
    costs = jnp.diag(state_cost), jnp.diag(action_cost)
    return LQR.for_cost(system, goal, *costs, horizon=steps, box=box, in_states=from_state)


def make_qp(
    model: DynamicsModel,
    box: Box,
    cost: QuadraticCost,
    constraints: Constraints,
    *,
    reencode_every: Reencoding = None,
    **settings: Any,
) -> QP:
    """Constrained control with a trained model: one program a decision where it is linear, a sequence elsewhere."""
    goal, state_cost, action_cost = _costs("qp", model, cost)
    limits = limits_of(constraints, box, model.config.state_size, model.config.action_size, goal=cost.goal)
    _check_settings("qp", QPConfig, settings)
    return QP.for_cost(
        in_states(model, reencode_every),
        goal,
        state_cost,
        action_cost,
        limits,
        box=box,
        config=QPConfig(**settings),
        linear=is_linear(model, reencode_every),
        reencode_every=reencode_every,
    )


def _costs(name: str, model: DynamicsModel, cost: QuadraticCost) -> tuple[Array, Array, Array]:
    """Goal and weights of a quadratic cost, checked."""
    states, actions = model.config.state_size, model.config.action_size
    if cost.goal is None:
        raise KoopaxError(f"planner {name!r} needs a goal state: pass --goal with {states} numbers.")
    goal = _numbers("goal", cost.goal, states)
    state_cost = jnp.ones(states) if cost.state_cost is None else _numbers("state-cost", cost.state_cost, states)
    per_action = cost.action_cost * actions if len(cost.action_cost) == 1 else cost.action_cost
    action_cost = _numbers("action-cost", per_action, actions)
    if not (bool(jnp.all(state_cost >= 0)) and bool(jnp.all(action_cost > 0))):
        raise KoopaxError(
            f"the costs are {cost.state_cost or 1} for states and {cost.action_cost} for actions: "
            "use 0 or more for states and positive numbers for actions."
        )
    return goal, state_cost, action_cost


def _check_settings(name: str, config: type, given: Mapping[str, Any]) -> None:
    known = sorted(field.name for field in fields(config))
    for key in given:
        if key not in known:
            raise KoopaxError(f"planner {name!r} has no setting {key!r}: it takes {', '.join(known)}.")


def _numbers(name: str, values: tuple[float, ...], size: int) -> Array:
    if len(values) != size:
        raise KoopaxError(f"--{name} has {len(values)} numbers, but this model needs {size}: give one per component.")
    return jnp.asarray(values, float)
