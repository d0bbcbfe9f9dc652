"""Checks that turn bad arrays into one sentence."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from koopax._errors import KoopaxError
from koopax.data.images import as_frames, frame_text, looks_like_frames
from koopax.data.statistics import iterate_chunks

if TYPE_CHECKING:
    from koopax.data.episodes import Episodes


def real_numbers(array: ArrayLike, what: str) -> np.ndarray:
    """An array as float32; `what` is for the message where it is not made of real numbers."""
    try:
        values = np.asarray(array)
        if np.iscomplexobj(values):
            raise KoopaxError(f"{what} are complex: give their real and imaginary parts as two columns.")
        with np.errstate(over="ignore"):
            return values.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise KoopaxError(f"{what} are not numbers ({error}): give a float array.") from error


def as_episode_array(array: ArrayLike, name: str, episode: int) -> np.ndarray:
    """One episode's array as float32, or frames as uint8, with the axes that its name asks for."""
    if name == "observations" and looks_like_frames(array):
        return as_frames(array, f"episode {episode}")
    out = real_numbers(array, f"{name} of episode {episode}")
    axes = 2 if name in ("observations", "actions") else 1
    if name in ("rewards", "durations") and out.ndim == 2 and out.shape[1] == 1:
        out = out[:, 0]
    if out.ndim != axes:
        wanted = "[steps, columns]" if axes == 2 else "[steps]"
        raise KoopaxError(f"{name} of episode {episode} have shape {out.shape}: give {wanted}.")
    return out


def check_lists(columns: Mapping[str, list[np.ndarray]]) -> np.ndarray:
    """Steps of each episode [E]; raise unless the arrays of every episode fit together."""
    lengths = np.asarray([len(a) for a in columns["actions"]], np.int64)
    for name, arrays in columns.items():
        for i, array in enumerate(arrays):
            expected = lengths[i] + (name == "observations")
            if len(array) != expected:
                raise KoopaxError(
                    f"episode {i} has {lengths[i]} actions and {len(array)} {name}: "
                    f"{name} need {expected} rows (observations have one row more than actions and rewards)."
                )
            if array.shape[1:] != arrays[0].shape[1:] and 4 in (array.ndim, arrays[0].ndim):
                this, first = (
                    "vectors" if each.ndim == 2 else f"frames of {frame_text(each.shape[1:])}"
                    for each in (array, arrays[0])
                )
                raise KoopaxError(
                    f"the states of episode {i} are {this}, those of episode 0 {first}: every episode needs the same."
                )
            if array.shape[1:] != arrays[0].shape[1:]:
                raise KoopaxError(
                    f"{name} of episode {i} have {array.shape[1]} columns, those of episode 0 {arrays[0].shape[1]}: "
                    "every episode needs the same."
                )
    if (empty := np.flatnonzero(lengths == 0)).size:
        raise KoopaxError(f"episode {empty[0]} has no step: remove it.")
    return lengths


def check_sizes(episodes: "Episodes") -> None:
    """Raise unless the arrays have the axes and rows that the episodes' boundaries ask for."""
    rows = int(episodes.starts[-1])
    if episodes.starts.ndim != 1 or episodes.starts[0] != 0:
        raise KoopaxError(f"the first episode begins at row {episodes.starts[0]}: it must be row 0.")
    if episodes.num_episodes == 0 or episodes.num_steps == 0:
        raise KoopaxError("the set is empty: give at least one episode of one step.")
    if episodes.observations.ndim not in (2, 4) or episodes.actions.ndim != 2 or episodes.rewards.ndim != 1:
        raise KoopaxError(
            "observations need two axes (rows, columns), or four of images (rows, height, width, channels), actions "
            "two and rewards one."
        )
    if (episodes.image_shape is None) == (episodes.observations.dtype == np.uint8):
        raise KoopaxError(
            f"observations with {episodes.observations.ndim} axes are {episodes.observations.dtype}: images are uint8 "
            "with four axes, vectors float32 with two."
        )
    if episodes.durations is not None and episodes.durations.ndim != 1:
        raise KoopaxError(f"durations have {episodes.durations.ndim} axes: give one for each step.")
    for name in ("observations", "actions", "rewards", "durations"):
        array = getattr(episodes, name)
        if array is not None and len(array) != rows:
            raise KoopaxError(f"{name} has {len(array)} rows where the episodes take {rows}: they must be equal.")
    for name in ("terminated", "sources"):
        shape = np.shape(getattr(episodes, name))
        if shape != (episodes.num_episodes,):
            raise KoopaxError(f"{name} has the shape {shape} for {episodes.num_episodes} episodes: give one for each.")
    known = len(episodes.metadata.source_names)
    if (strange := np.flatnonzero((episodes.sources < 0) | (episodes.sources >= known))).size:
        number = episodes.sources[strange[0]]
        raise KoopaxError(f"episode {strange[0]} is of source {number}, but {known} are named: name every source.")
    if (short := np.flatnonzero(episodes.lengths < 1)).size:
        raise KoopaxError(f"episode {short[0]} has no step: remove it.")
    episodes.metadata.check(episodes.state_size, episodes.action_size)


def check_finite(episodes: "Episodes") -> None:
    """Raise on the first NaN or infinite value, and on a step that takes no time."""
    for chunk in iterate_chunks(episodes):
        for name in ("observations", "actions", "rewards", "durations"):
            array = getattr(chunk, name)
            if array is None or array.dtype == np.uint8:
                continue
            bad = ~np.isfinite(array)
            if bad.any():
                where = np.argwhere(bad)[0]
                episode = int(np.searchsorted(chunk.starts, where[0], side="right")) - 1
                column = f", column {where[1]}" if len(where) > 1 else ""
                raise KoopaxError(
                    f"{name} of episode {chunk.first_episode + episode} hold {array[tuple(where)]} "
                    f"(row {where[0] - chunk.starts[episode]}{column}): remove or repair the episode."
                )
            if name == "durations" and (array <= 0).any():
                row = int(np.flatnonzero(array <= 0)[0])
                episode = int(np.searchsorted(chunk.starts, row, side="right")) - 1
                raise KoopaxError(
                    f"episode {chunk.first_episode + episode} has a step of duration {array[row]}: "
                    "times must increase within an episode."
                )
