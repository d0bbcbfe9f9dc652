"""Decisions of a control loop: all that is compiled is compiled beforehand, and the solver is called in between.

A compiled program that calls the solver itself, as `QP.search` does, waits for the call to be handed to Python and its
answer to be handed back, which takes longer than a small program to be solved. A loop for one environment has no need
of that: it calls compiled code, the solver, and compiled code again.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._types import Array
from koopax.planning.planner import Planner
from koopax.planning.protocol import PlanningModel, PlanStart, PlanState
from koopax.planning.qp import QP, QPState, linearised, predicted, warm_start, within

# (observation, state, past actions, number of the decision) → action, state.
Decide: TypeAlias = Callable[[np.ndarray, Any, np.ndarray, int], tuple[np.ndarray, PlanState]]


def compile_decisions(
    planner: Planner, seen: PlanningModel, observation: np.ndarray, past: np.ndarray, initial: PlanState, *, seed: int
) -> Decide:
    """What decides for observations and past actions like these."""
    if isinstance(planner, QP):
        return (_linear_programs if planner.linear else _programs)(planner, seen, observation, past)
    key = jax.random.key(seed)

    def decide(
        whole: tuple[Planner, PlanningModel], observed: Any, state: PlanState, taken: Any, number: Any
    ) -> tuple[Array, PlanState]:
        planner, seen = whole
        told = taken if len(past) else None
        decision = planner.plan(seen, observed, state, key=jax.random.fold_in(key, number), past_actions=told)
        return decision.action, decision.state

    run = _compiled(decide, (planner, seen), observation, initial, past, np.uint32(0))

    def call(observed: np.ndarray, state: PlanState, taken: np.ndarray, number: int) -> tuple[np.ndarray, PlanState]:
        action, state = run(observed, state, taken, np.uint32(number))
        return np.asarray(action), state

    return call


def _linear_programs(planner: QP, seen: PlanningModel, observation: np.ndarray, past: np.ndarray) -> Decide:
    """States are o + J v with the same J everywhere: o is compiled, and all else is a few products on the host."""
    size = len(planner.solver.program.half)
    nothing = jnp.zeros((planner.longest, 1, size))

    def offsets(seen: PlanningModel, observed: Any, taken: Any) -> Array:
        return predicted(seen, planner.start(seen, observed, taken), nothing, planner.box)[:, 0]

    run = _compiled(offsets, seen, observation, past)
    slopes = planner.solver.jacobian
    assert slopes is not None

    def call(observed: np.ndarray, state: QPState, taken: np.ndarray, number: int) -> tuple[np.ndarray, PlanState]:
        del number
        offset = np.asarray(run(observed, taken))
        plan, dual = warm_start(planner.solver.program, state, np)
        plan, dual, feasible = planner.solver(None, offset, plan, dual, state.last_action)
        return _decided(planner, plan, dual, state, offset + slopes @ plan.ravel(), feasible)

    return call


def _programs(planner: QP, seen: PlanningModel, observation: np.ndarray, past: np.ndarray) -> Decide:
    """Programs about the plan so far, one after the other; between two of them, one compiled call."""
    size = len(planner.solver.program.half)
    plan = np.zeros((planner.longest, size), np.float32)

    def begin(seen: PlanningModel, observed: Any, taken: Any, plan: Any) -> tuple[PlanStart, Array, Array]:
        start = planner.start(seen, observed, taken)
        return start, *linearised(seen, start, plan, planner.box)

    def advance(seen: PlanningModel, start: PlanStart, plan: Any, found: Any) -> tuple[Array, Array, Array]:
        plan = planner.as_far_as_it_helps(seen, start, plan, found)
        return plan, *linearised(seen, start, plan, planner.box)

    def finish(seen: PlanningModel, start: PlanStart, plan: Any, found: Any) -> tuple[Array, Array]:
        plan = planner.as_far_as_it_helps(seen, start, plan, found)
        return plan, predicted(seen, start, plan[:, None], planner.box)[:, 0]

    first = _compiled(begin, seen, observation, past, plan)
    example = first(observation, past, plan)[0]
    middle, last = (_compiled(each, seen, example, plan, plan) for each in (advance, finish))

    def call(observed: np.ndarray, state: QPState, taken: np.ndarray, number: int) -> tuple[np.ndarray, PlanState]:
        del number
        plan, dual = warm_start(planner.solver.program, state, np)
        start, *about = first(observed, taken, plan)
        feasible, states = np.asarray(True), plan
        for left in reversed(range(planner.config.iterations)):
            slopes, states = (np.asarray(each) for each in about)
            offset = states - np.tensordot(slopes, plan, axes=2)
            found, dual, feasible = planner.solver(slopes, offset, plan, dual, state.last_action)
            plan, *about = (middle if left else last)(start, plan, found)
            plan = np.asarray(plan)
        return _decided(planner, plan, dual, state, np.asarray(about[0]), feasible)

    return call


def _decided(
    planner: QP, plan: np.ndarray, dual: np.ndarray, before: QPState, states: np.ndarray, feasible: np.ndarray
) -> tuple[np.ndarray, QPState]:
    program = planner.solver.program
    action = within(program, program.middle + program.half * plan[0], before.last_action, np)
    violation = np.asarray(program.limits.violation(states).max())
    return action, QPState(plan, dual, action, violation, feasible)  # type: ignore[arg-type]  (on the host)


def _compiled(function: Callable, whole: Any, *example: Any) -> Callable:
    """`function(whole, …)` for arguments like these; the arrays of `whole` are handed over once."""
    arrays, rest = eqx.partition(whole, eqx.is_array)
    # As a list: to take a model apart at every decision takes longer than to run a small one.
    leaves, structure = jax.tree.flatten(arrays)

    def run(leaves: list[Array], *given: Any) -> Any:
        return function(eqx.combine(jax.tree.unflatten(structure, leaves), rest), *given)

    compiled = jax.jit(run).lower(leaves, *example).compile()
    return lambda *given: compiled(leaves, *given)
