"""What users pass to a model: arrays of one example, whose shapes are checked, and histories of some length."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError
from koopax._types import Array
from koopax.models.buckets import as_array, filled, is_traced, padded_steps
from koopax.models.config import ModelConfig


def as_states(config: ModelConfig, given: Any) -> Array:
    """Numbers that a user gives as states; frames as their pixels side by side, of `float32`."""
    states = as_array(given)
    if config.image_shape is None:
        return states
    if not is_traced(states):
        states = np.asarray(states)  # else every new number of frames is a program
    if states.shape[-3:] == config.image_shape:
        states = states.reshape(*states.shape[:-3], config.state_size)
    return as_array(states.astype(jnp.float32))


def check_shape(name: str, array: Any, expected: tuple[int | None, ...], *, empty: bool = False) -> None:
    """Raise unless an array has that shape, in which None stands for any number of steps."""
    shape = np.shape(array)
    fits = len(shape) == len(expected) and all(e in (None, s) for s, e in zip(shape, expected, strict=True))
    if not fits:
        wanted = ", ".join("steps" if e is None else str(e) for e in expected)
        one_more = len(shape) == len(expected) + 1 and shape[-1] == expected[-1]
        remedy = "use jax.vmap for a batch" if one_more else f"pass {name} of that shape"
        raise KoopaxError(f"{name} has shape {shape}, but this model takes one example of ({wanted}): {remedy}.")
    if shape and shape[0] == 0 and not empty:
        raise KoopaxError(f"{name} has a horizon of 0: a rollout needs at least one step.")


def check_start(config: ModelConfig, state: Any, past_actions: Any) -> None:
    """Raise unless a rollout can start there."""
    if config.history == 1 or np.ndim(state) == 1:
        check_shape("state", state, (config.state_size,))
    else:
        check_shape("states", state, (None, config.state_size))
        if np.shape(state)[0] > config.history and not takes_any_history(config):
            raise KoopaxError(
                f"{np.shape(state)[0]} observations are given to a model with a history of {config.history}: pass the "
                "latest ones, or train one with history_encoder='recurrent', which takes any number."
            )
    if past_actions is not None:
        check_shape("past_actions", past_actions, (None, config.action_size), empty=True)


def check_rollout(config: ModelConfig, state: Any, past_actions: Any, actions: Any, durations: Any) -> None:
    """Raise unless these are one rollout."""
    check_start(config, state, past_actions)
    check_shape("actions", actions, (None, config.action_size))
    if durations is not None:
        check_shape("durations", durations, (np.shape(actions)[0],))


def check_known(config: ModelConfig, state: Any, axis: int) -> None:
    """Raise where the newest observation of a history has gaps; the others may."""
    newest = np.take(np.asarray(state), -1, axis=axis) if np.ndim(state) > axis + 1 else np.asarray(state)
    if config.history > 1 and not np.isfinite(newest).all():
        raise KoopaxError(
            "the newest observation has gaps (NaN): a rollout starts at a whole one; only earlier ones may be unknown."
        )


def takes_any_history(config: ModelConfig) -> bool:
    """Whether the encoder takes more observations than it is trained with."""
    return config.history > 1 and config.encoder == "network" and config.history_encoder == "recurrent"


def whole_history(config: ModelConfig, state: Array, axis: int) -> Array:
    """Observations along an axis, filled up in front with NaN to one of few numbers of them; `[state]` is one."""
    if config.history == 1:
        return state
    rows = jnp.expand_dims(state, axis) if state.ndim == axis + 1 else state
    count = rows.shape[axis]
    return filled(
        rows, axis, config.history if count <= config.history else padded_steps(count), front=True, value=np.nan
    )
