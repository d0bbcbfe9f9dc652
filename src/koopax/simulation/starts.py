"""Where simulated episodes start: at states of a dataset, or at given ones."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from koopax._errors import KoopaxError
from koopax.data.episodes import Episodes

StartAt = Literal["first", "any"]


def make_starts(
    given: Episodes | ArrayLike, *, state_size: int, action_size: int, start_at: StartAt = "first"
) -> np.ndarray:
    """States `[starts, state]`: the first of episodes, any of them that an action was taken in, or those given."""
    if isinstance(given, Episodes):
        return _from_episodes(given, state_size, action_size, start_at)
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
    return states


def _from_episodes(given: Episodes, state_size: int, action_size: int, start_at: StartAt) -> np.ndarray:
    if start_at not in ("first", "any"):
        raise KoopaxError(f"start_at is {start_at!r}: use 'first' or 'any'.")
    if (given.state_size, given.action_size) != (state_size, action_size):
        raise KoopaxError(
            f"the episodes have {given.state_size} state and {given.action_size} action components, but the model has "
            f"{state_size} and {action_size}: give data of the system that it was trained on."
        )
    rows = [
        np.arange(begin, begin + 1 if start_at == "first" else end - 1)
        for begin, end in zip(given.starts[:-1], given.starts[1:], strict=True)
    ]
    return np.asarray(given.observations)[np.concatenate(rows)].astype(np.float32).reshape(-1, state_size)
