"""Where simulated episodes start: at states of a dataset, or at given ones."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from koopax._errors import KoopaxError
from koopax._types import Array
from koopax.data.episodes import Episodes

StartAt = Literal["first", "any"]


class Starts(NamedTuple):
    """States to start from, and the actions just taken there, oldest first and NaN where there were none."""

    states: np.ndarray | Array
    """[starts, state]."""
    past_actions: np.ndarray | Array
    """[starts, past, action]."""


def make_starts(
    given: Episodes | ArrayLike, *, state_size: int, action_size: int, past: int, start_at: StartAt = "first"
) -> Starts:
    """The first states of episodes, or any of them that an action was taken in; or an array of states."""
    if isinstance(given, Episodes):
        return _from_episodes(given, state_size, action_size, past, start_at)
    try:
        states = np.atleast_2d(np.asarray(given, np.float32))
    except (TypeError, ValueError) as error:
        raise KoopaxError(f"starts can't be read as numbers ({error}): give episodes or an array of states.") from error
    if states.ndim != 2 or states.shape[1] != state_size or not len(states):
        raise KoopaxError(
            f"starts have shape {states.shape}, but the model's states have {state_size} components: "
            f"give an array [starts, {state_size}], or episodes."
        )
    if not np.isfinite(states).all():
        raise KoopaxError("starts hold NaN or infinite values: leave those states out.")
    return Starts(states, np.full((len(states), past, action_size), np.nan, np.float32))


def _from_episodes(given: Episodes, state_size: int, action_size: int, past: int, start_at: StartAt) -> Starts:
    if start_at not in ("first", "any"):
        raise KoopaxError(f"start_at is {start_at!r}: use 'first' or 'any'.")
    if (given.state_size, given.action_size) != (state_size, action_size):
        raise KoopaxError(
            f"the episodes have {given.state_size} state and {given.action_size} action components, but the model has "
            f"{state_size} and {action_size}: give data of the system that it was trained on."
        )
    observations, actions = np.asarray(given.observations), np.asarray(given.actions)
    rows, first = [], []
    for begin, end in zip(given.starts[:-1], given.starts[1:], strict=True):
        taken = np.arange(begin, begin + 1 if start_at == "first" else end - 1)
        rows.append(taken)
        first.append(np.full(len(taken), begin))
    chosen, began = np.concatenate(rows), np.concatenate(first)
    before = chosen[:, None] + np.arange(-past, 0)
    known = actions[np.maximum(before, 0)]
    known = np.where((before >= began[:, None])[..., None], known, np.nan).astype(np.float32)
    states = observations[chosen].astype(np.float32).reshape(len(chosen), state_size)
    return Starts(states, known.reshape(len(chosen), past, action_size))
