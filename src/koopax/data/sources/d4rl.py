"""D4RL v2 HDF5 files: flat arrays of transitions with flags where episodes end."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from koopax._errors import KoopaxError
from koopax._untrusted import reading
from koopax.data.episodes import Episodes
from koopax.data.metadata import Metadata
from koopax.data.sources.hdf5 import open_hdf5
from koopax.data.statistics import episode_ranges
from koopax.data.validation import real_numbers

_PIECE_ROWS = 1 << 20


def read(path: Path) -> Iterator[Episodes]:
    """Episodes of a D4RL file, some at a time.

    `terminals` or `timeouts` end an episode, and an unflagged tail is an episode of its own. The last state comes from
    `next_observations`; in a file without them the last transition of every episode is dropped, because the state it
    leads to is not recorded (an episode of one step then vanishes, and no episode counts as terminated). In a file
    without `timeouts`, an episode also ends where `next_observations` and the observation after it differ.
    """
    import h5py

    with reading(path, "a readable HDF5 file", "copy or download it again"), open_hdf5(path) as file:
        if not any(isinstance(file.get(name), h5py.Dataset) for name in ("observations", "actions")):
            raise KoopaxError(
                f"{str(path)!r} holds {_listed(file)} and no D4RL arrays: it needs observations, actions, rewards "
                "and terminals."
            )
        yield from read_transitions(file, str(path))


def read_transitions(arrays: Mapping[str, Any], name: str) -> Iterator[Episodes]:
    """Episodes from D4RL's arrays by key; `name` is for messages. Works on anything that can be sliced by rows."""
    missing = [key for key in ("observations", "actions", "rewards", "terminals") if key not in arrays]
    if missing:
        raise KoopaxError(f"{name!r} has no {missing[0]!r}: it holds {_listed(arrays)}.")
    steps = len(arrays["observations"])
    keys = [key for key in ("actions", "rewards", "terminals", "timeouts", "next_observations") if key in arrays]
    for key in keys:
        if len(arrays[key]) != steps:
            raise KoopaxError(f"{name!r} has {steps} observations and {len(arrays[key])} {key}: they must be equal.")
    if steps == 0:
        raise KoopaxError(f"{name!r} is empty: it holds no transition.")
    if len(arrays["observations"].shape) != 2 or len(arrays["actions"].shape) != 2:
        raise KoopaxError(
            f"observations of {name!r} have shape {arrays['observations'].shape} and actions "
            f"{arrays['actions'].shape}: both need two axes (steps, columns)."
        )
    terminals = np.asarray(arrays["terminals"][:]).reshape(steps).astype(bool)
    done = terminals | _other_ends(arrays, steps)
    done[-1] = True
    ends = np.flatnonzero(done) + 1
    starts = np.concatenate([[0], ends])
    yielded = False
    for first, end in episode_ranges(starts, _PIECE_ROWS):
        piece = _piece(arrays, starts[first : end + 1], terminals)
        if piece is not None:
            yielded = True
            yield piece
    if not yielded:
        raise KoopaxError(f"{name!r} has neither next_observations nor an episode of two steps: nothing to learn from.")


def _other_ends(arrays: Mapping[str, Any], steps: int) -> np.ndarray:
    if "timeouts" in arrays:
        return np.asarray(arrays["timeouts"][:]).reshape(steps).astype(bool)
    ends = np.zeros(steps, bool)
    if "next_observations" in arrays:
        for first in range(0, steps - 1, _PIECE_ROWS):
            last = min(first + _PIECE_ROWS, steps - 1)
            jumps = arrays["next_observations"][first:last] != arrays["observations"][first + 1 : last + 1]
            ends[first:last] = np.any(jumps, axis=1)
    return ends


def _piece(arrays: Mapping[str, Any], starts: np.ndarray, terminals: np.ndarray) -> Episodes | None:
    """The episodes between consecutive `starts`."""
    rows = slice(int(starts[0]), int(starts[-1]))
    observations, actions, rewards = (real_numbers(arrays[k][rows], k) for k in ("observations", "actions", "rewards"))
    starts = starts - starts[0]
    rewards = rewards.reshape(len(actions))
    if "next_observations" in arrays:
        # Each episode gains a row after its last: the next state, and padding for action and reward.
        after = starts[1:]
        following = real_numbers(arrays["next_observations"][rows], "next_observations")[after - 1]
        observations = np.insert(observations, after, following, axis=0)
        actions = np.insert(actions, after, 0, axis=0)
        rewards = np.insert(rewards, after, 0)
        terminated = terminals[rows][after - 1]
        starts = starts + np.arange(len(starts))
    else:
        keep = np.repeat(np.diff(starts) > 1, np.diff(starts))
        observations, actions, rewards = observations[keep], actions[keep], rewards[keep]
        starts = np.concatenate([[0], np.cumsum(np.diff(starts)[np.diff(starts) > 1])])
        if len(starts) == 1:
            return None
        actions[starts[1:] - 1] = 0
        rewards[starts[1:] - 1] = 0
        terminated = np.zeros(len(starts) - 1, bool)
    return Episodes(
        observations=observations,
        actions=actions,
        rewards=rewards,
        starts=starts.astype(np.int64),
        terminated=terminated,
        sources=np.zeros(len(terminated), np.int64),
        metadata=Metadata(),
    )


def _listed(arrays: Mapping[str, Any]) -> str:
    return ", ".join(sorted(arrays)) or "nothing"
