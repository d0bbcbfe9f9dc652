"""Constrained model-predictive control: every decision is a quadratic program with limits on states, actions and rates.

    min  Σ_{t=1}^{H} (s_t − g)ᵀ Q (s_t − g) + Σ_{t=0}^{H−1} a_tᵀ R a_t
    s.t. s_t within bounds,  a_t within bounds,  a_t − a_{t−1} within bounds.

Where predicted states are linear in the actions (see `koopax.planning.linearity`), s = o(s_0) + J a with the same J at
every decision: one program is the exact optimum, and its matrices stay. Elsewhere programs follow each
other (sequential quadratic programming): each linearises the model about the plan so far, and as much of the way to its
solution is gone as lowers the true cost most. Every decision begins at the last one's plan, shifted by a step.

`koopax.planning.convex` is the program and its solver, which runs on the host; all else is compiled.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._types import Array, Bool, Float, PRNGKeyArray
from koopax.models.dynamics import DynamicsModel, Reencoding
from koopax.planning.constraints import Limits
from koopax.planning.convex import DAQP, PENALTY, Program, Quadratic
from koopax.planning.learned import in_states
from koopax.planning.planner import Decision, Diagnostics, Planner
from koopax.planning.protocol import Box, PlanningModel, PlanStart, check_positive

# Shares of the way to a program's solution that are tried; 0 keeps the plan, so that the cost never rises.
SHARES = (1.0, 0.5, 0.25, 0.1, 0.03, 0.0)


@dataclass(frozen=True)
class QPConfig:
    """Settings of the constrained planner."""

    horizon: int = 20
    """H: steps of a plan."""
    iterations: int = 3
    """Programs for one decision, where the model is not linear; 1 where it is."""

    def __post_init__(self) -> None:
        check_positive(self, "horizon", "iterations")


class QPState(NamedTuple):
    """Warm start of the next decision, and how well this one keeps to the limits."""

    plan: Float[Array, "time action"]
    """In units of the cube."""
    dual: Float[Array, " rows"]
    """Multipliers of the program's constraints."""
    last_action: Float[Array, " action"]
    """What was decided, in raw units; NaN at an episode's start."""
    violation: Float[Array, ""]
    """How far the plan's states are outside their bounds, at most, in raw units."""
    feasible: Bool[Array, ""]
    """Whether there is a plan within hard bounds; always, where they are soft."""


class HostSolver:
    """Solves the programs of one planner; called from compiled code."""

    def __init__(self, program: Program, jacobian: np.ndarray | None):
        """`jacobian` is ∂s/∂v of a linear model, `[H, S, H·A]`."""
        self.program = program
        self.solver = DAQP(program.soft)
        self.jacobian = jacobian
        self.matrices = None if jacobian is None else program.matrices(jacobian)

    def __call__(self, jacobian: Any, offset: Any, plan: Any, dual: Any, last_action: Any) -> tuple[np.ndarray, ...]:
        """The best plan `[H, A]`, its multipliers, and whether there is one."""
        offset, plan, dual, last = (np.asarray(each, float) for each in (offset, plan, dual, last_action))
        if self.jacobian is not None and self.matrices is not None:
            slopes, matrices = self.jacobian, self.matrices
        else:
            slopes = np.asarray(jacobian, float).reshape(*offset.shape, -1)
            matrices = self.program.matrices(slopes)
        if not (np.isfinite(slopes).all() and np.isfinite(offset).all()):
            return self._answer(plan, np.zeros_like(dual), feasible=True)
        q, low, high = self.program.vectors(slopes, offset, last)
        found = self.solver.solve(Quadratic(matrices[0], q, matrices[1], low, high), dual)
        if not found.solved:
            return self._answer(plan, np.zeros_like(dual), feasible=not self.program.limits.hard)
        return self._answer(found.x.reshape(plan.shape), found.dual, feasible=True)

    @staticmethod
    def _answer(plan: np.ndarray, dual: np.ndarray, *, feasible: bool) -> tuple[np.ndarray, ...]:
        return plan.astype(np.float32), dual.astype(np.float32), np.asarray(feasible)


class QP(Planner):
    """The best plan within limits, of models whose latents are states; make one with `QP.for_cost`."""

    box: Box
    config: QPConfig = eqx.field(static=True)
    solver: HostSolver = eqx.field(static=True)
    reencode_every: Reencoding = eqx.field(static=True, default=None)

    @classmethod
    def for_cost(
        cls,
        model: PlanningModel,
        goal: Float[Array, " state"],
        state_cost: Float[Array, " state"],
        action_cost: Float[Array, " action"],
        limits: Limits,
        *,
        box: Box,
        config: QPConfig = QPConfig(),
        linear: bool = False,
        reencode_every: Reencoding = None,
    ) -> "QP":
        """The planner for one model.

        Args:
            model: whose latents are states in raw units: `in_states(model)` of a trained one, or a plant's equations.
            goal: the state to reach.
            state_cost: diagonal of Q.
            action_cost: diagonal of R.
            limits: see `koopax.planning.constraints`.
            box: bounds of the environment's actions.
            config: the settings.
            linear: whether the model's states are linear in its actions, with the same slopes everywhere.
            reencode_every: how a trained model is seen, see `seen`.
        """
        size = action_cost.shape[0]
        low, high = (np.broadcast_to(np.asarray(end, float), (size,)) for end in (box.low, box.high))
        wanted, of_states, of_actions = (np.asarray(each, float) for each in (goal, state_cost, action_cost))
        program = Program(config.horizon, wanted, of_states, of_actions, (low + high) / 2, (high - low) / 2, limits)
        slopes = None
        if linear:
            start = model.encode(jnp.asarray(goal, jnp.float32), horizon=config.horizon)
            nothing = jnp.zeros((config.horizon, size))
            found = eqx.filter_jit(linearised)(model, start, nothing, box)[0]
            slopes = np.asarray(found, float).reshape(config.horizon, len(goal), -1)
        return cls(box, config, HostSolver(program, slopes), reencode_every)

    def seen(self, model: DynamicsModel) -> PlanningModel:
        """With decoded states in the place of latents."""
        return in_states(model, self.reencode_every)

    @property
    def longest(self) -> int:
        """H."""
        return self.config.horizon

    @property
    def linear(self) -> bool:
        """Whether one program is the exact optimum."""
        return self.solver.jacobian is not None

    def init(self, action_size: int) -> QPState:
        """The middle of the bounds, after no action."""
        plan = jnp.zeros((self.config.horizon, action_size))
        unknown = jnp.full(action_size, jnp.nan)
        return QPState(plan, jnp.zeros(self.solver.program.rows), unknown, jnp.zeros(()), jnp.asarray(True))

    def search(
        self,
        model: PlanningModel,
        start: PlanStart,
        state: QPState,
        *,
        key: PRNGKeyArray,
        explore: bool | Array = False,
        horizon: int | Array | None = None,
    ) -> Decision:
        """As `Planner.search`; without noise, over the planner's own horizon."""
        del key, explore, horizon
        plan, dual = warm_start(self.solver.program, state, jnp)
        feasible = jnp.asarray(True)
        for _ in range(1 if self.linear else self.config.iterations):
            if self.linear:
                slopes = jnp.zeros(())  # the host has them
                offset = predicted(model, start, jnp.zeros_like(plan)[:, None], self.box)[:, 0]
            else:
                slopes, states = linearised(model, start, plan, self.box)
                offset = states - jnp.einsum("tsua,ua->ts", slopes, plan)
            found, dual, feasible = self._solve(slopes, offset, plan, dual, state.last_action)
            plan = found if self.linear else self.as_far_as_it_helps(model, start, plan, found)
        states = predicted(model, start, plan[:, None], self.box)
        action = within(self.solver.program, self.box.from_unit(plan[0]), state.last_action, jnp)
        cost = self._cost(states, plan[:, None])[0]
        decided = QPState(plan, dual, action, jnp.max(self._outside(states)), feasible)
        return Decision(action, decided, Diagnostics(-cost, jnp.zeros(()), 1.0 - jnp.isfinite(cost)))

    def _solve(
        self, slopes: Array, offset: Array, plan: Array, dual: Array, last_action: Array
    ) -> tuple[Array, Array, Array]:
        shapes = (
            jax.ShapeDtypeStruct(plan.shape, jnp.float32),
            jax.ShapeDtypeStruct(dual.shape, jnp.float32),
            jax.ShapeDtypeStruct((), jnp.bool_),
        )
        return jax.pure_callback(self.solver, shapes, slopes, offset, plan, dual, last_action, vmap_method="sequential")

    def as_far_as_it_helps(self, model: PlanningModel, start: PlanStart, plan: Array, found: Array) -> Array:
        """The plan on the way from one to the other whose cost and violations, by the model itself, are lowest."""
        shares = jnp.asarray(SHARES)[None, :, None]
        plans = plan[:, None] + shares * (found - plan)[:, None]
        states = predicted(model, start, plans, self.box)
        program = self.solver.program
        merit = self._cost(states, plans) + PENALTY * program.unit * jnp.sum(
            self._outside(states) / jnp.asarray(program.widths), axis=(0, 2)
        )
        # One that is not finite is never the best.
        return plans[:, jnp.argmin(jnp.where(jnp.isfinite(merit), merit, jnp.inf))]

    def _cost(
        self, states: Float[Array, "time candidate state"], plans: Float[Array, "time candidate action"]
    ) -> Float[Array, " candidate"]:
        program = self.solver.program
        actions = self.box.from_unit(plans)
        away = jnp.sum(jnp.asarray(program.state_cost) * (states - jnp.asarray(program.goal)) ** 2, axis=(0, 2))
        return away + jnp.sum(jnp.asarray(program.action_cost) * actions**2, axis=(0, 2))

    def _outside(self, states: Float[Array, "*batch state"]) -> Float[Array, "*batch state"]:
        limits = self.solver.program.limits
        beyond = jnp.maximum(jnp.asarray(limits.state_low) - states, states - jnp.asarray(limits.state_high))
        return jnp.maximum(beyond, 0.0)


def predicted(
    model: PlanningModel, start: PlanStart, plans: Float[Array, "time candidate action"], box: Box
) -> Float[Array, "time candidate state"]:
    """s_1 … s_H of plans in units of the cube. They are not clipped, so that slopes at the surface are not zero."""
    middle, half = (box.high + box.low) / 2, (box.high - box.low) / 2
    return model.rollout(start, middle + half * plans)[1:]


def linearised(
    model: PlanningModel, start: PlanStart, plan: Float[Array, "time action"], box: Box
) -> tuple[Float[Array, "time state time action"], Float[Array, "time state"]]:
    """∂s/∂v, and s, of a plan."""

    def states(plan: Array) -> tuple[Array, Array]:
        found = predicted(model, start, plan[:, None], box)[:, 0]
        return found, found

    return jax.jacfwd(states, has_aux=True)(plan)


def warm_start(program: Program, state: QPState, xp: Any) -> tuple[Any, Any]:
    """Plan and multipliers of the last decision, a step later; `xp` is numpy or jax.numpy, here and below."""
    moved = []
    for block in program.blocks:
        rows = state.dual[block].reshape(program.horizon, -1)
        moved += [rows[1:].ravel(), xp.zeros_like(rows[0])]
    return xp.concatenate([state.plan[1:], state.plan[-1:]]), xp.concatenate(moved)


def within(program: Program, action: Any, last: Any, xp: Any) -> Any:
    """The action without what rounding adds to it; and the nearest that may follow, where there was no solution."""
    limits = program.limits
    low = xp.fmax(limits.action_low, last + limits.rate_low)
    high = xp.fmin(limits.action_high, last + limits.rate_high)
    safe = xp.where(xp.isfinite(action), action, program.middle)
    return xp.clip(xp.clip(safe, low, high), limits.action_low, limits.action_high).astype(np.float32)
