"""The convex program of a constrained plan, and DAQP that solves it.

With the plan v_0 … v_{H−1} in units of the cube and predicted states s = o + J v,

    min  Σ_t (s_t − g)ᵀ Q (s_t − g) + a_tᵀ R a_t  +  Σ ρ ε + ε²
    s.t. a_t within its bounds, a_t − a_{t−1} within its own, low − ε ≤ s_t ≤ high + ε.

The penalty on ε ≥ 0 is exact: with ρ above the multipliers of the bounds, states leave them only where no plan keeps
them inside. Where bounds are hard there is no ε. The states were eliminated, and the solver keeps ε by itself, so that
the program has H·A variables, whatever the model's width and whatever is bounded.

DAQP is a dual active-set method for small dense programs such as these. It begins with the constraints that the last
decision had active, and mostly ends with them. `koopax bench qp` compares it with other solvers.
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
INFINITE = 1e30
# What DAQP calls a constraint: active at its upper end, at its lower end, and soft.
ACTIVE, AT_LOWER, SOFT = 1, 2, 8


class Quadratic(NamedTuple):
    """min ½ xᵀ P x + qᵀ x  s.t.  low ≤ [x; A x] ≤ high."""

    P: np.ndarray
    q: np.ndarray
    A: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Solution(NamedTuple):
    """What a solver found."""

    x: np.ndarray
    dual: np.ndarray
    """Multipliers: above 0 where the upper end holds x, below 0 where the lower one does."""
    solved: bool


@dataclass(frozen=True)
class Program:
    """All of the convex program but the prediction, in costs of `unit`. What stays the same is computed once."""

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
    def actions(self) -> int:
        """H·A."""
        return self.horizon * len(self.half)

    @cached_property
    def blocks(self) -> tuple[slice, slice, slice]:
        """Which of the bounds are of actions, of rates (none where these are free) and of states."""
        rated = np.isfinite([self.limits.rate_low, self.limits.rate_high]).any()
        sizes = (self.actions, self.actions if rated else 0, self.horizon * len(self.limits.bounded))
        ends = np.cumsum([0, *sizes]).tolist()
        actions, rates, states = (slice(*pair) for pair in pairwise(ends))
        return actions, rates, states

    @cached_property
    def rows(self) -> int:
        """How many bounds there are."""
        return self.blocks[-1].stop

    @cached_property
    def soft(self) -> np.ndarray:
        """Which of them may be left."""
        found = np.zeros(self.rows, bool)
        found[self.blocks[-1]] = not self.limits.hard
        return found

    @cached_property
    def scale(self) -> np.ndarray:
        """What ε = 1 is, for each bounded component: half the width of its bounds, or the one bound's size."""
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

    def matrices(self, jacobian: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P and A for ∂s_t/∂v, `[H, S, H·A]`."""
        actions, rated = self.actions, self.blocks[1].stop > self.actions
        weighted = (jacobian * self.state_cost[:, None]).reshape(-1, actions)
        P = 2 * (weighted.T @ jacobian.reshape(-1, actions)) / self.unit
        np.fill_diagonal(P, P.diagonal() + 2 * np.tile(self.action_cost * self.half**2, self.horizon) / self.unit)
        rates = [np.eye(actions) - np.eye(actions, k=-len(self.half))] if rated else []
        states = (jacobian[:, self.limits.bounded] / self.scale[:, None]).reshape(-1, actions)
        return P, np.concatenate([*rates, states])

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q, low and high without what depends on prediction and last action."""
        limits, horizon = self.limits, self.horizon
        q = 2 * np.tile(self.half * self.action_cost * self.middle, horizon) / self.unit
        ends = []
        for action, rate in ((limits.action_low, limits.rate_low), (limits.action_high, limits.rate_high)):
            end = np.empty(self.rows)
            end[self.blocks[0]] = np.tile((action - self.middle) / self.half, horizon)
            if self.blocks[1].stop > self.actions:
                end[self.blocks[1]] = np.tile(rate / self.half, horizon)
            ends.append(end)
        return q, *ends

    def vectors(
        self, jacobian: np.ndarray, offset: np.ndarray, last_action: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q, low and high for states o `[H, S]` of the plan v = 0, after an action `[A]`, NaN where there is none."""
        bounded, (_, rates, states) = self.limits.bounded, self.blocks
        q, low, high = (each.copy() for each in self._ends)
        away = (self.state_cost * (offset - self.goal)).ravel()
        q += 2 * (away @ jacobian.reshape(-1, self.actions)) / self.unit
        if rates.stop > rates.start:
            known, before = ~np.isnan(last_action), (last_action - self.middle) / self.half
            first = slice(rates.start, rates.start + len(self.half))
            low[first] = np.where(known, low[first] + before, -np.inf)
            high[first] = np.where(known, high[first] + before, np.inf)
        room = offset[:, bounded]
        high[states] = ((self.limits.state_high[bounded] - room) / self.scale).ravel()
        low[states] = ((self.limits.state_low[bounded] - room) / self.scale).ravel()
        return q, low, high


def daqp_module() -> Any:
    """DAQP, which comes with an extra."""
    try:
        return import_module("daqp")
    except ImportError as error:
        raise KoopaxError("planner 'qp' needs daqp; install it: pip install 'koopax[control]'.") from error


class DAQP:
    """One program after another of the same size; each is told which constraints are probably active."""

    def __init__(self, soft: np.ndarray) -> None:
        """`soft` says of each bound whether it may be left, at the cost of `PENALTY` and `ROUNDING_WEIGHT`."""
        self._new = daqp_module().Model
        self._kinds = np.where(soft, SOFT, 0).astype(np.int32)
        self._solver: Any = None
        self._kept: tuple[np.ndarray, np.ndarray] | None = None
        # A compiled program may call from any thread.
        self._lock = threading.Lock()

    def solve(self, program: Quadratic, dual: np.ndarray) -> Solution:
        """The solution; `dual` are multipliers like its own. Matrices that are the same objects as before are kept."""
        low, high = (np.clip(end, -INFINITE, INFINITE) for end in (program.low, program.high))
        guess = np.where(dual > 0, ACTIVE, np.where(dual < 0, ACTIVE | AT_LOWER, 0)).astype(np.int32)
        with self._lock:
            self._load(program, low, high, self._kinds | guess)
            x, _, status, told = self._solver.solve()
        return Solution(np.asarray(x), np.asarray(told["lam"]), status > 0)

    def _load(self, program: Quadratic, low: np.ndarray, high: np.ndarray, kinds: np.ndarray) -> None:
        if self._solver is None:
            self._solver = self._new()
            self._solver.setup(program.P, program.q, program.A, high, low, kinds)
            count = len(low)
            linear, quadratic = np.full(count, PENALTY), np.full(count, 1 / (2 * ROUNDING_WEIGHT))
            self._solver.soft_weights(rho_l=quadratic, rho_u=quadratic, w_l=linear, w_u=linear)
        elif self._kept is not None and self._kept[0] is program.P and self._kept[1] is program.A:
            self._solver.update(f=program.q, bupper=high, blower=low, sense=kinds)
        else:
            rows = program.A if len(program.A) else None  # of which DAQP updates one or more
            self._solver.update(H=program.P, f=program.q, A=rows, bupper=high, blower=low, sense=kinds)
        self._kept = program.P, program.A
