"""Limits on states, actions and rates of actions, and whether they can be kept at all."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from koopax._errors import KoopaxError
from koopax.planning.protocol import Box

# Pairs of numbers, lowest and highest, in a row: one pair for each component.
Pairs = Sequence[float]


@dataclass(frozen=True)
class Constraints:
    """What a controller has to keep to, in raw units: pairs LOW HIGH in a row, ±inf for none."""

    state_bounds: tuple[float, ...] | None = None
    """A pair for each component of a state."""
    action_bounds: tuple[float, ...] | None = None
    """A pair for each component of an action, or one for all; besides the environment's own."""
    rate_bounds: tuple[float, ...] | None = None
    """Of a_t − a_{t−1}: a pair for each component, one for all, or a single number for ± it."""
    hard: bool = False
    """Whether a decision fails where the states can't be kept within bounds; else they are left as little as can be."""


@dataclass(frozen=True)
class Limits:
    """Constraints as arrays, checked: actions and rates are always kept, states as `hard` says."""

    state_low: np.ndarray
    state_high: np.ndarray
    action_low: np.ndarray
    action_high: np.ndarray
    rate_low: np.ndarray
    rate_high: np.ndarray
    hard: bool

    @cached_property
    def bounded(self) -> np.ndarray:
        """Which components of a state have a bound, as indices."""
        return np.flatnonzero(np.isfinite(self.state_low) | np.isfinite(self.state_high))

    def violation(self, states: np.ndarray) -> np.ndarray:
        """How far states `[..., S]` are outside their bounds, in the component that is farthest."""
        outside = np.maximum(self.state_low - states, states - self.state_high)
        return np.maximum(outside, 0.0).max(axis=-1)


def limits_of(
    constraints: Constraints, box: Box, state_size: int, action_size: int, goal: Sequence[float] | None = None
) -> Limits:
    """The limits of a controller with these bounds of the environment's actions; bad ones are refused."""
    lowest, highest = (np.broadcast_to(np.asarray(end, float), (action_size,)) for end in (box.low, box.high))
    state_low, state_high = _pairs("state-bounds", constraints.state_bounds, state_size, alike=False)
    action_low, action_high = _pairs("action-bounds", constraints.action_bounds, action_size)
    rates = constraints.rate_bounds
    if rates is not None and len(rates) == 1:
        rates = (-abs(rates[0]), abs(rates[0]))
    rate_low, rate_high = _pairs("rate-bounds", rates, action_size)
    for number in np.flatnonzero((action_low > highest) | (action_high < lowest)):
        raise KoopaxError(
            f"--action-bounds {action_low[number]:g} … {action_high[number]:g} of component {number} has nothing in "
            f"common with the environment's {lowest[number]:g} … {highest[number]:g}: choose bounds within those."
        )
    for number in np.flatnonzero((rate_low > 0) | (rate_high < 0)):
        raise KoopaxError(
            f"--rate-bounds {rate_low[number]:g} … {rate_high[number]:g} of component {number} leave out 0, so that no "
            "action could be held: use a lower bound of 0 or less and an upper one of 0 or more."
        )
    if goal is not None:
        wanted = np.asarray(goal, float)
        for number in np.flatnonzero((wanted < state_low) | (wanted > state_high)):
            raise KoopaxError(
                f"--goal has {wanted[number]:g} as component {number}, which is outside of its --state-bounds "
                f"{state_low[number]:g} … {state_high[number]:g}: choose a goal within them."
            )
    return Limits(
        state_low,
        state_high,
        np.maximum(action_low, lowest),
        np.minimum(action_high, highest),
        rate_low,
        rate_high,
        constraints.hard,
    )


def _pairs(
    name: str, values: tuple[float, ...] | None, size: int, *, alike: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest of each component; infinite where nothing is said."""
    if values is None:
        return np.full(size, -np.inf), np.full(size, np.inf)
    if len(values) == 2 and alike:
        values = tuple(values) * size
    if len(values) != 2 * size:
        one = ", or one pair for all" if alike and size > 1 else ""
        raise KoopaxError(
            f"--{name} has {len(values)} numbers, but this model needs {2 * size}: give a pair LOW HIGH for each of "
            f"{size} component{'s' if size > 1 else ''}{one}, with -inf and inf for none."
        )
    low, high = np.asarray(values, float).reshape(size, 2).T
    for number in np.flatnonzero(~(low <= high)):
        raise KoopaxError(
            f"--{name} are {low[number]:g} … {high[number]:g} for component {number}, which contradict each other: "
            "give the lower one first."
        )
    return low, high
