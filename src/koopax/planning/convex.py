"""The convex program of a constrained plan, and OSQP that solves it.

With the plan v_0 … v_{H−1} in units of the cube, slacks ε ≥ 0 and predicted states s = o + J v,

    min  Σ_t (s_t − g)ᵀ Q (s_t − g) + a_tᵀ R a_t  +  Σ ρ ε + ε²
    s.t. a_t within its bounds, a_t − a_{t−1} within its own, low − ε ≤ s_t ≤ high + ε.

The penalty on ε is exact: with ρ above the multipliers of the bounds, states leave them only where no plan keeps them
inside. Where bounds are hard there are no slacks. Variables are [v; ε], time-major; the states were eliminated, so that
the program has H·A variables and what is bounded, whatever the model's width.

An exact penalty means that the program without slacks has the same solution where it has one. It is the smaller and
better conditioned one, and is tried first, by OSQP, which begins at the last solution. Only where OSQP finds none soon
enough the whole program is solved, by Clarabel, whose interior point takes about as long whatever the conditioning:
OSQP on the program with slacks needs thousands of iterations where bounds are active. `koopax bench qp` compares them.
"""

import threading
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from koopax._errors import KoopaxError
from koopax.planning.constraints import Limits

# ρ, and the weight of ε², in costs of a state that is a bound's width away from the goal.
PENALTY = 1e3
ROUNDING_WEIGHT = 1.0
ACCURACY = 1e-6
# Of OSQP; then Clarabel is faster.
MOST_ITERATIONS = 500
INFINITE = 1e30


class Quadratic(NamedTuple):
    """min ½ xᵀ P x + qᵀ x  s.t.  low ≤ A x ≤ high."""

    P: np.ndarray
    q: np.ndarray
    A: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Solution(NamedTuple):
    """What a solver found."""

    x: np.ndarray
    dual: np.ndarray
    solved: bool


@dataclass(frozen=True)
class Program:
    """All of the convex program but the prediction. What is the same at every decision is computed once."""

    horizon: int
    goal: np.ndarray
    state_cost: np.ndarray
    """Diagonal of Q."""
    action_cost: np.ndarray
    """Diagonal of R."""
    middle: np.ndarray
    """Of the box: a = middle + half v."""
    half: np.ndarray
    limits: Limits

    @cached_property
    def slacks(self) -> int:
        """How many slacks there are: one for each bounded component at each step, none for hard bounds."""
        return 0 if self.limits.hard else self.rows_of_states

    @cached_property
    def actions(self) -> int:
        """H·A."""
        return self.horizon * len(self.half)

    @cached_property
    def rows_of_rates(self) -> int:
        """Rows of the bounds of the rates; none where there are no bounds."""
        return self.actions if np.isfinite([self.limits.rate_low, self.limits.rate_high]).any() else 0

    @cached_property
    def rows_of_states(self) -> int:
        """Rows of the bounds of the states: both ends in one where they are hard, else from above or from below."""
        return self.horizon * len(self.limits.bounded)

    @cached_property
    def blocks(self) -> tuple[slice, slice, slice, slice, slice]:
        """Which rows of the constraints are of actions, rates, states from above, from below, and slacks."""
        below = 0 if self.limits.hard else self.rows_of_states
        sizes = (self.actions, self.rows_of_rates, self.rows_of_states, below, self.slacks)
        ends = np.cumsum([0, *sizes]).tolist()
        actions, rates, above, low, slacks = (slice(*pair) for pair in pairwise(ends))
        return actions, rates, above, above if self.limits.hard else low, slacks

    @cached_property
    def rows(self) -> int:
        """Of the constraints."""
        return self.blocks[-1].stop

    @cached_property
    def scale(self) -> np.ndarray:
        """What a slack of 1 is, for each bounded component: half the width of its bounds, or the one bound's size."""
        low, high = self.limits.state_low[self.limits.bounded], self.limits.state_high[self.limits.bounded]
        both = np.isfinite(low) & np.isfinite(high)
        with np.errstate(invalid="ignore"):
            width = np.where(both, (high - low) / 2, np.maximum(np.abs(np.where(np.isfinite(low), low, high)), 1.0))
        return np.maximum(width, 1e-6)

    @cached_property
    def widths(self) -> np.ndarray:
        """`scale` of every component of a state; 1 where it has no bound."""
        found = np.ones(len(self.goal))
        found[self.limits.bounded] = self.scale
        return found

    @cached_property
    def unit(self) -> float:
        """A cost to measure penalties in: that of all bounded components a bound's width away, or of actions."""
        bounded = self.limits.bounded
        of_states = float(np.max(self.state_cost[bounded] * self.scale**2, initial=0.0))
        return max(of_states, float(np.max(self.action_cost * self.half**2)))

    @cached_property
    def _plain(self) -> tuple[np.ndarray, np.ndarray]:
        """P and A without what the Jacobian adds to them."""
        actions, slacks = self.actions, self.slacks
        of_actions, of_rates, above, below, of_slacks = self.blocks
        P = np.zeros((actions + slacks,) * 2)
        P[:actions, :actions] = 2 * np.diag(np.tile(self.action_cost * self.half**2, self.horizon))
        P[actions:, actions:] = 2 * ROUNDING_WEIGHT * self.unit * np.eye(slacks)
        A = np.zeros((self.rows, actions + slacks))
        A[of_actions, :actions] = np.eye(actions)
        if self.rows_of_rates:
            A[of_rates, :actions] = np.eye(actions) - np.eye(actions, k=-len(self.half))
        if slacks:
            A[above, actions:] = -np.eye(slacks)
            A[below, actions:] = A[of_slacks, actions:] = np.eye(slacks)
        return P, A

    def matrices(self, jacobian: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P and A for ∂s_t/∂v, `[H, S, H·A]`."""
        actions, (_, _, above, below, _) = self.actions, self.blocks
        P, A = (each.copy() for each in self._plain)
        weighted = (jacobian * self.state_cost[:, None]).reshape(-1, actions)
        P[:actions, :actions] += 2 * weighted.T @ jacobian.reshape(-1, actions)
        seen = (jacobian[:, self.limits.bounded] / self.scale[:, None]).reshape(-1, actions)
        A[above, :actions] = A[below, :actions] = seen
        return P, A

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q, low and high without what depends on prediction and last action."""
        limits, horizon = self.limits, self.horizon
        of_actions = 2 * np.tile(self.half * self.action_cost * self.middle, horizon)
        q = np.concatenate([of_actions, np.full(self.slacks, PENALTY * self.unit)])
        ends = []
        for action, rate, free in (
            (limits.action_low, limits.rate_low, -np.inf),
            (limits.action_high, limits.rate_high, np.inf),
        ):
            end = np.full(self.rows, free)
            end[self.blocks[0]] = np.tile((action - self.middle) / self.half, horizon)
            if self.rows_of_rates:
                end[self.blocks[1]] = np.tile(rate / self.half, horizon)
            ends.append(end)
        ends[0][self.blocks[-1]] = 0.0
        return q, *ends

    def vectors(
        self, jacobian: np.ndarray, offset: np.ndarray, last_action: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q, low and high for states o `[H, S]` of the plan v = 0, after an action `[A]`, NaN where there is none."""
        actions, bounded, (_, rates, above, below, _) = self.actions, self.limits.bounded, self.blocks
        q, low, high = (each.copy() for each in self._ends)
        q[:actions] += 2 * (self.state_cost * (offset - self.goal)).ravel() @ jacobian.reshape(-1, actions)
        if self.rows_of_rates:
            known, before = ~np.isnan(last_action), (last_action - self.middle) / self.half
            first = slice(rates.start, rates.start + len(self.half))
            low[first] = np.where(known, low[first] + before, -np.inf)
            high[first] = np.where(known, high[first] + before, np.inf)
        room = offset[:, bounded]
        high[above] = ((self.limits.state_high[bounded] - room) / self.scale).ravel()
        low[below] = ((self.limits.state_low[bounded] - room) / self.scale).ravel()
        return q, low, high


def solver_module(name: str) -> Any:
    """OSQP or Clarabel, which come with an extra."""
    try:
        return import_module(name)
    except ImportError as error:
        raise KoopaxError(f"planner 'qp' needs {name}; install it: pip install 'koopax[control]'.") from error


class Clarabel:
    """One program by an interior-point method, whatever its conditioning; without a warm start."""

    def __init__(self) -> None:
        self._module = solver_module("clarabel")

    def solve(self, program: Quadratic) -> Solution:
        """The solution, without multipliers."""
        from scipy import sparse

        above, below = np.isfinite(program.high), np.isfinite(program.low)
        rows = np.concatenate([program.A[above], -program.A[below]])
        ends = np.concatenate([program.high[above], -program.low[below]])
        options = self._module.DefaultSettings()
        options.verbose = False
        cones = [self._module.NonnegativeConeT(len(ends))]
        matrices = sparse.csc_matrix(np.triu(program.P)), program.q, sparse.csc_matrix(rows)
        found = self._module.DefaultSolver(*matrices, ends, cones, options).solve()
        solved = str(found.status) in ("Solved", "AlmostSolved")
        return Solution(np.asarray(found.x, float), np.zeros(len(program.low)), solved)


class OSQP:
    """One program after another of the same size, each from where the last one ended or from where it is told."""

    def __init__(self, most_iterations: int = MOST_ITERATIONS) -> None:
        osqp = solver_module("osqp")
        self._most = most_iterations
        self._new = osqp.OSQP
        self._solver: Any = None
        self._kept: tuple[np.ndarray, np.ndarray] | None = None
        # A compiled program may call from any thread.
        self._lock = threading.Lock()

    def solve(self, program: Quadratic, x: np.ndarray | None = None, dual: np.ndarray | None = None) -> Solution:
        """The solution; `x` and `dual` are where to begin. Matrices that are the same objects as before are kept."""
        with self._lock:
            self._load(program)
            if x is not None and dual is not None:
                self._solver.warm_start(x=x, y=dual)
            found = self._solver.solve(raise_error=False)
        # Inaccurate is within ten times the accuracy after the last iteration: still far less than a bound's tolerance.
        solved = found.info.status in ("solved", "solved inaccurate")
        return Solution(np.asarray(found.x, float), np.asarray(found.y, float), solved)

    def _load(self, program: Quadratic) -> None:
        low, high = (np.clip(end, -INFINITE, INFINITE) for end in (program.low, program.high))
        if self._solver is None:
            self._set_up(program, low, high)
            return
        changes: dict[str, Any] = {"q": program.q, "l": low, "u": high}
        if self._kept is None or self._kept[0] is not program.P or self._kept[1] is not program.A:
            changes |= {"Px": program.P[self._upper], "Ax": program.A.T[self._filled]}
            self._kept = program.P, program.A
        self._solver.update(**changes)

    def _set_up(self, program: Quadratic, low: np.ndarray, high: np.ndarray) -> None:
        from scipy import sparse

        # Where a linearisation happens to have a zero there may be a number later, so zeros are kept: all of P's upper
        # half, and every entry of A in rows that hold a Jacobian.
        size = len(program.q)
        columns, rows = np.tril_indices(size)  # of P's upper half, column by column
        self._upper = rows, columns
        dense = (program.A != 0).sum(axis=1, keepdims=True) > 2
        self._filled = ((program.A != 0) | dense).T
        P = sparse.csc_matrix((program.P[self._upper], rows, np.append(0, np.cumsum(np.arange(1, size + 1)))))
        held = np.nonzero(self._filled)
        pointers = np.append(0, np.cumsum(self._filled.sum(axis=1)))
        A = sparse.csc_matrix((program.A.T[self._filled], held[1], pointers), shape=program.A.shape)
        self._solver = self._new()
        self._solver.setup(
            P, program.q, A, low, high, verbose=False, eps_abs=ACCURACY, eps_rel=ACCURACY, max_iter=self._most
        )
        self._kept = program.P, program.A
