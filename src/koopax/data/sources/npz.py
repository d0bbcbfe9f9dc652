"""NumPy `.npz` archives.

Three layouts are read, told apart by their keys and axes:

- ours: `observations [steps + E, S]`, `actions [steps, A]`, `rewards [steps]` with `lengths [E]`, the steps of each
  episode, and optionally `durations [steps]`, `terminated [E]`, `sources [E]` and `metadata` (JSON);
- episodes of equal length: `observations [E, T + 1, S]`, `actions [E, T, A]`, `rewards [E, T]`; without the axis E, one
  episode;
- D4RL's flat transitions with `terminals` and `timeouts`.

In the first two, uint8 frames with the axes `[height, width, channels]` may stand in the place of the axis S.

`rewards` may be missing where the reader is told that there are none.
"""

import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from koopax._errors import KoopaxError
from koopax._npz import read_npz
from koopax._untrusted import reading
from koopax.data.episodes import Episodes
from koopax.data.images import as_frames, looks_like_frames
from koopax.data.metadata import Metadata
from koopax.data.sources.d4rl import read_transitions
from koopax.data.statistics import iterate_chunks
from koopax.data.validation import real_numbers

_ARRAYS = ("observations", "actions", "rewards")


def read(path: Path, *, reward: str | None = None) -> Iterator[Episodes]:
    """Episodes of an archive.

    Args:
        path: an `.npz` file.
        reward: "none" for data without rewards; those in the archive, if any, don't count.
    """
    if reward not in (None, "none"):
        raise KoopaxError(f"rewards of an .npz are its array 'rewards', not {reward!r}: leave it out, or say `none`.")
    with reading(path, "a readable .npz of plain arrays", "write it again"):
        arrays = read_npz(path)
    if reward is None:
        yield from _read(arrays, str(path))
        return
    if "actions" in arrays:
        arrays["rewards"] = np.zeros(arrays["actions"].shape[:-1], np.float32)
    for episodes in _read(arrays, str(path)):
        yield replace(episodes, metadata=replace(episodes.metadata, has_rewards=False))


def _read(arrays: dict[str, np.ndarray], name: str) -> Iterator[Episodes]:
    if "terminals" in arrays and "lengths" not in arrays:
        yield from read_transitions(arrays, name)
        return
    missing = [key for key in _ARRAYS if key not in arrays]
    if missing:
        found = ", ".join(sorted(arrays)) or "nothing"
        remedy = " (if there are none, say reward=none or --reward none)" if missing == ["rewards"] else ""
        raise KoopaxError(f"{name!r} has no array {missing[0]!r}: it holds {found}{remedy}.")
    if "lengths" in arrays:
        yield _read_flat(arrays, name)
    elif arrays["observations"].ndim in (2, 3, 4, 5):
        one = arrays["observations"].ndim in (2, 4)
        lists = ([arrays[key]] if one else arrays[key] for key in _ARRAYS)
        yield Episodes.from_arrays(*lists, check=False)
    else:
        raise KoopaxError(
            f"observations in {name!r} have shape {arrays['observations'].shape}: give [episodes, steps + 1, "
            "states], or [rows, states] with the array 'lengths'; frames are [height, width, channels]."
        )


def _read_flat(arrays: dict[str, np.ndarray], name: str) -> Episodes:
    lengths = np.asarray(arrays["lengths"], np.int64)
    if lengths.ndim != 1 or (lengths < 1).any():
        raise KoopaxError(f"the lengths in {name!r} are not those of episodes: give one of 1 or more for each.")
    steps, rows = int(lengths.sum()), int(lengths.sum()) + len(lengths)
    expected = {"observations": rows, "actions": steps, "rewards": steps, "durations": steps}
    for key, count in expected.items():
        if key in arrays and len(arrays[key]) != count:
            raise KoopaxError(f"{name!r} has {len(arrays[key])} {key} where its lengths ask for {count}.")
    with reading(f"metadata of {name}", "JSON that koopax wrote", "write the archive again"):
        metadata = Metadata.from_json(json.loads(str(arrays["metadata"]))) if "metadata" in arrays else Metadata()
    ends = np.cumsum(lengths)
    padded = {
        key: np.insert(real_numbers(arrays[key], f"{key} in {name!r}"), ends, value, axis=0)
        for key, value in (("actions", 0), ("rewards", 0), ("durations", 1))
        if key in arrays
    }
    return Episodes(
        observations=_states(arrays["observations"], name),
        **padded,
        starts=np.concatenate([[0], np.cumsum(lengths + 1)]),
        terminated=np.asarray(arrays.get("terminated", np.zeros(len(lengths))), bool),
        sources=np.asarray(arrays.get("sources", np.zeros(len(lengths))), np.int64),
        metadata=metadata,
    )


def _states(array: np.ndarray, name: str) -> np.ndarray:
    if looks_like_frames(array):
        return as_frames(array, repr(name))
    return real_numbers(array, f"observations in {name!r}")


def write(episodes: Episodes, path: Path) -> None:
    """Write our layout, uncompressed and chunk by chunk."""
    steps = episodes.num_steps
    shapes = {
        "observations": (steps + episodes.num_episodes, *episodes.observations.shape[1:]),
        "actions": (steps, episodes.action_size),
        "rewards": (steps,),
    }
    if episodes.durations is not None:
        shapes["durations"] = (steps,)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, shape in shapes.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                dtype = np.dtype(np.uint8 if len(shape) == 4 else np.float32)
                header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
                np.lib.format.write_array_header_1_0(file, header | {"shape": shape})
                for chunk in iterate_chunks(episodes):
                    rows = getattr(chunk, name)
                    file.write(np.ascontiguousarray(rows if name == "observations" else rows[chunk.steps]).data)
        small = {
            "lengths": episodes.lengths,
            "terminated": episodes.terminated,
            "sources": episodes.sources,
            "metadata": np.array(json.dumps(episodes.metadata.to_json(), sort_keys=True)),
        }
        for name, array in small.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
