"""Rollouts of any length and number through a bounded number of compiled programs.

Every new shape is a new program: a second of compilation, and megabytes that stay. So a rollout that is not part of a
larger program is padded to the next of 1, 2, 3, 5, 10, 20, 30, 50, … steps and, where there are several, to a power of
two of them, and cut again: dynamics are causal, so what is added at the end changes nothing before. Of all these
programs the 64 that were used last are kept. Padding and cutting happen in the host's memory: on a device each new
shape would be a program as well, of those that JAX never forgets. What is inside `jax.jit` or `jax.vmap` is left as it
is: there the shapes are the caller's own.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from koopax._types import Array

MOST_PROGRAMS = 64
_STEPS = (1, 2, 3, 5)


def padded_steps(steps: int) -> int:
    """The next of 1, 2, 3, 5, 10, 20, 30, 50, …"""
    decade = 1
    while steps > 10 * decade:
        decade *= 10
    return next((decade * each for each in _STEPS if decade * each >= steps), 10 * decade)


def padded_number(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length()


class Programs:
    """Compiled programs by what they were compiled for; the ones that were not used for longest are forgotten."""

    def __init__(self, most: int = MOST_PROGRAMS):
        self.most = most
        self.made = 0
        """How many were ever made."""
        self._found: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._found)

    def find(self, key: Hashable, function: Callable[..., Any]) -> Callable[..., Any]:
        """The program for a key; where there is none, `function` becomes it."""
        with self._lock:
            if key not in self._found:
                # A function of its own, with which all that JAX keeps of it goes as well.
                self._found[key] = jax.jit(lambda *arguments: function(*arguments))
                self.made += 1
            self._found.move_to_end(key)
            program = self._found[key]
            while len(self._found) > self.most:
                self._found.popitem(last=False)[1].clear_cache()
        return program


PROGRAMS = Programs()


def is_traced(*values: Any) -> bool:
    """Whether any of these is inside a larger program."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def as_array(value: Any) -> Array:
    """Numbers as an array of JAX; `jnp.asarray` compiles a program for every new shape."""
    if isinstance(value, jax.Array):
        return value
    return jnp.asarray(value) if is_traced(value) else jax.device_put(np.asarray(value))


def on_host(function: Callable[..., Any], *given: Any) -> Any:
    """`function` of arrays in the host's memory, with JAX's arrays for its results; of traced ones, as it is."""
    if is_traced(given):
        return function(*given)
    return jax.tree.map(as_array, function(*jax.tree.map(np.asarray, given)))


def filled(array: Array, axis: int, size: int, *, front: bool = False, value: float = 0.0) -> Array:
    """An array with so many rows along an axis, those that are new having one value."""
    missing = size - array.shape[axis]
    if not missing:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (missing, 0) if front else (0, missing)
    if is_traced(array):
        return jnp.pad(array, widths, constant_values=value)
    return _on_host(lambda own: np.pad(own, widths, constant_values=value), array)


def cut(array: Array, *kept: slice) -> Array:
    """The first axes of an array, cut."""
    if all(part.indices(size) == (0, size, 1) for part, size in zip(kept, array.shape, strict=False)):
        return array
    return array[kept] if is_traced(array) else _on_host(lambda own: own[kept], array)


def _on_host(change: Callable[[np.ndarray], np.ndarray], array: Array) -> Array:
    """An array as it becomes in the host's memory, put back where it was."""
    placed = array.sharding if array.committed and len(array.devices()) == 1 else None
    return jax.device_put(change(np.asarray(array)), placed)


def _past_actions(model: Any, state: Array, axis: int) -> int:
    """How many past actions count: those that the core remembers, and those between the observations of a history."""
    between = state.shape[axis] - 1 if state.ndim == axis + 2 else 0
    return max(model.core.remembered_actions, model.past_steps, between)


def in_buckets(
    function: Callable[..., Any],
    model: eqx.Module,
    state: Array,
    past_actions: Array | None,
    actions: Array,
    durations: Array | None,
    *options: Hashable,
) -> Any:
    """`function(model, state, past_actions, actions, durations, *options)`, of one rollout or a batch, in a bucket.

    Its results have the steps on the axis on which the actions have them.
    """
    axis = actions.ndim - 2
    steps, wanted = actions.shape[axis], padded_steps(actions.shape[axis])
    number = wide = None
    if axis:
        number, wide = actions.shape[0], padded_number(actions.shape[0])
    history: int = _past_actions(model, state, axis)

    def fill(array: Array | None, along: int, size: int, **how: Any) -> Array | None:
        return None if array is None else filled(array, along, size, **how)

    if past_actions is not None:
        # Those that are not remembered don't count, and NaN stands for one that is not known.
        kept = min(history, past_actions.shape[axis])
        past_actions = cut(past_actions, *[slice(None)] * axis, slice(past_actions.shape[axis] - kept, None))
        past_actions = fill(past_actions, axis, history, front=True, value=jnp.nan)
    actions = fill(actions, axis, wanted)  # type: ignore[assignment]
    durations = fill(durations, axis, wanted, value=1.0)
    arguments = (state, past_actions, actions, durations)
    if wide is not None:
        arguments = tuple(fill(array, 0, wide) for array in arguments)
    arrays, rest = eqx.partition(model, eqx.is_array)
    shapes = tuple(None if array is None else (array.shape, array.dtype) for array in arguments)
    key = (function, jax.tree.structure(model), tuple(jax.tree.leaves(rest)), shapes, options)
    program = PROGRAMS.find(key, lambda arrays, *given: function(eqx.combine(arrays, rest), *given, *options))
    found = program(arrays, *arguments)
    kept = (*([] if number is None else [slice(0, number)]), slice(0, steps))
    return jax.tree.map(lambda array: cut(array, *kept), found)
