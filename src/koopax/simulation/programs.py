"""The compiled programs of simulators: made once for all of the same structure, and called with their arrays alone.

A simulator as an argument would have its settings compared at every call.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from koopax._types import Array
from koopax.simulation.simulator import Outcome, Simulated, Simulator, draw, restart


class Programs(NamedTuple):
    """What an environment and many copies of it do; all take the simulator's arrays first."""

    start: Callable[..., Simulated]
    """(states)."""
    step: Callable[..., tuple[Simulated, Outcome]]
    """(where the copies are, actions)."""
    draw: Callable[..., Simulated]
    """(starts, key, count)."""
    step_again: Callable[..., tuple[Simulated, Outcome, Array]]
    """(where the copies are, actions, starts, key, longest episode): those that end start again."""


def programs_of(simulator: Simulator) -> tuple[Programs, list[Array]]:
    """The programs of a simulator and the arrays to call them with."""
    arrays, structure = jax.tree.flatten(simulator)
    return _programs(structure), arrays


@functools.lru_cache(maxsize=32)
def _programs(structure: Any) -> Programs:
    def whole(arrays: list[Array]) -> Simulator:
        return jax.tree.unflatten(structure, arrays)

    def step_again(
        arrays: list[Array], now: Simulated, actions: Array, starts: Array, key: Array, max_steps: Any
    ) -> tuple[Simulated, Outcome, Array]:
        simulator = whole(arrays)
        moved, outcome = simulator.step(now, actions)
        truncated = moved.steps >= max_steps
        return restart(simulator, moved, outcome.terminated | truncated, starts, key), outcome, truncated

    return Programs(
        start=jax.jit(lambda arrays, states: whole(arrays).start(states)),
        step=jax.jit(lambda arrays, now, actions: whole(arrays).step(now, actions)),
        draw=jax.jit(lambda arrays, starts, key, count: draw(whole(arrays), starts, key, count), static_argnums=3),
        step_again=jax.jit(step_again),
    )
