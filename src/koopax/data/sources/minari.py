"""Minari datasets: by id in Minari's own folder (downloaded by Minari where absent), or as a folder anywhere."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from koopax._errors import KoopaxError
from koopax._untrusted import read_json, reading
from koopax.data.episode import Episode
from koopax.data.episodes import Episodes
from koopax.data.metadata import Metadata
from koopax.data.sources.hdf5 import open_hdf5
from koopax.data.validation import real_numbers

_ID = re.compile(r"(?:[-_\w]+/)*[-_\w]+-v\d+")
_PIECE_EPISODES = 256
_PIECE_EPISODES_OF_IMAGES = 8
_SMALLEST_IMAGE = 16
"""Pixels to a side; a smaller array of uint8, such as a board, counts as numbers."""
_DURATION = "koopax_duration"
_STORED = "koopax"


def is_id(name: str) -> bool:
    """Whether the name has the form of a Minari id, like `mujoco/halfcheetah/expert-v0`."""
    return _ID.fullmatch(name) is not None


def root() -> Path:
    """Minari's folder of datasets."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


def data_folder(path: Path) -> Path | None:
    """The folder with Minari's `metadata.json` at or under `path`."""
    return next((p for p in (path, path / "data") if (p / "metadata.json").is_file()), None)


def _import() -> Any:
    try:
        import minari
    except ImportError as error:
        raise KoopaxError("Minari datasets need the package minari: pip install 'koopax[mujoco]'.") from error
    return minari


def read_id(identifier: str) -> Iterator[Episodes]:
    """Episodes of a dataset by its id."""
    minari = _import()
    folder = data_folder(root() / identifier)
    if folder is None:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                minari.download_dataset(identifier)
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise KoopaxError(
                f"there is no Minari dataset {identifier!r} in {str(root())!r}, and downloading it failed ({reason}): "
                "check the id, or give a file."
            ) from error
        folder = root() / identifier / "data"
    yield from read(folder)


def read(path: Path) -> Iterator[Episodes]:
    """Episodes of a Minari folder, some at a time; dict and tuple spaces are joined in the space's own order.

    An observation that is a picture stays one.
    """
    minari = _import()
    folder = data_folder(path) or path
    with reading(path, "a readable Minari dataset", "fetch or write it again"):
        for file in folder.glob("*.hdf5"):
            with open_hdf5(file):
                pass  # it is looked through before Minari, which would follow links to other files, opens it
        stored = read_json(folder / "metadata.json")
        dataset = minari.MinariDataset(folder)
        known = stored.get(_STORED, {})
        names = known.get("sources")
        metadata = Metadata.from_json(known["metadata"]) if known else Metadata(environment=_environment(dataset))
    at_a_time = _PIECE_EPISODES if _picture(dataset.observation_space) is None else _PIECE_EPISODES_OF_IMAGES
    for first in range(0, dataset.total_episodes, at_a_time):
        indices = range(first, min(first + at_a_time, dataset.total_episodes))
        with reading(path, "a whole Minari dataset", "fetch or write it again"):
            piece = _piece(dataset, indices)
            sources = np.asarray([names[i] for i in indices] if names else [0] * len(indices), np.int64)
        yield replace(piece, metadata=metadata, sources=sources)


def _environment(dataset: Any) -> str | None:
    return None if dataset.env_spec is None else dataset.env_spec.id


def _piece(dataset: Any, indices: range) -> Episodes:
    episodes = list(dataset.storage.get_episodes(indices))
    irregular = _DURATION in (episodes[0]["infos"] or {})
    return Episodes.from_arrays(
        observations=[_observations(dataset.observation_space, episode["observations"]) for episode in episodes],
        actions=[_flatten(dataset.action_space, episode["actions"]) for episode in episodes],
        rewards=[episode["rewards"] for episode in episodes],
        durations=[episode["infos"][_DURATION][:-1] for episode in episodes] if irregular else None,
        terminated=[bool(episode["terminations"][-1]) for episode in episodes],
        check=False,
    )


def _picture(space: Any) -> Any:
    """The space of pictures that observations are, also as the only entry of a dict; None where they are numbers.

    Pictures beside other numbers are refused: an episode holds either.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Dict) and len(space.spaces) == 1:
        return _picture(*space.spaces.values())
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        if pictures := [repr(name) for name, part in parts if _picture(part) is not None]:
            raise KoopaxError(
                f"the observations hold the picture {pictures[0]} beside other values: an episode holds either, so "
                "write a dataset of one of them."
            )
    shape = space.shape if isinstance(space, spaces.Box) and space.dtype == np.uint8 else ()
    return space if len(shape) == 3 and min(shape[:2]) >= _SMALLEST_IMAGE else None


def _observations(space: Any, value: Any) -> np.ndarray:
    from gymnasium import spaces

    if _picture(space) is None:
        return _flatten(space, value)
    while isinstance(space, spaces.Dict):
        ((name, space),) = space.spaces.items()
        value = value[name]
    return np.asarray(value, np.uint8)


def _flatten(space: Any, value: Any) -> np.ndarray:
    """Values of a space at every step as one array [rows, columns]."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return np.concatenate([_flatten(part, value[name]) for name, part in space.spaces.items()], axis=1)
    if isinstance(space, spaces.Tuple):
        return np.concatenate([_flatten(part, v) for part, v in zip(space.spaces, value, strict=True)], axis=1)
    array = np.asarray(value)
    if isinstance(space, spaces.Discrete):
        return np.eye(space.n, dtype=np.float32)[array.reshape(-1) - space.start]
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return real_numbers(array.reshape(len(array), -1), "values of the dataset")
    raise KoopaxError(f"a {type(space).__name__} space has no vector form here: choose a dataset of Box spaces.")


def write(episodes: Episodes, folder: Path, *, identifier: str) -> None:
    """Write a dataset into an existing empty folder, so that `minari.load_dataset` reads it; needs no environment.

    What Minari has no place for (names, units, sources) goes into a key of its own in `metadata.json`, and the
    durations into the infos.
    """
    minari = _import()
    from minari.dataset.minari_storage import MinariStorage

    data = folder.resolve() / "data"
    data.mkdir()
    storage = MinariStorage.new(data, *_spaces(episodes), _spec(episodes.metadata.environment), jpeg_encoding=False)
    known = {"metadata": episodes.metadata.to_json(), "sources": episodes.sources.tolist()}
    storage.update_metadata({"dataset_id": identifier, "minari_version": minari.__version__, _STORED: known})
    _write_hdf5(episodes, data / "main_data.hdf5")
    counts = {"total_episodes": episodes.num_episodes, "total_steps": episodes.num_steps}
    storage.update_metadata(counts | {"dataset_size": storage.get_size()})


class _Watched(io.FileIO):
    """A file that keeps the first failed write to itself.

    HDF5 flushes on closing, where h5py cannot raise and HDF5 may crash; on a full disk Minari's own writer would end
    that way. So HDF5 never learns of the failure, and the owner asks for it.
    """

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of the data, or note why not."""
        view = memoryview(data).cast("B")
        try:
            done = 0
            while done < len(view):
                done += super().write(view[done:])
        except OSError as error:
            self.failure = self.failure or error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Set the size, or note why not."""
        try:
            return super().truncate(size)
        except OSError as error:
            self.failure = self.failure or error
        return size or 0

    def check(self) -> None:
        """Raise if a write has failed."""
        if self.failure is not None:
            raise self.failure


def _write_hdf5(episodes: Episodes, path: Path) -> None:
    """Minari's layout: a group per episode, with its number of steps as an attribute."""
    import h5py

    lengths = episodes.lengths
    with _Watched(path, "w+") as raw:
        try:
            with h5py.File(raw, "w", track_order=True) as file:
                for i in range(episodes.num_episodes):
                    group = file.create_group(f"episode_{i}")
                    group.attrs.update(id=i, total_steps=int(lengths[i]))
                    for name, values in _stored_arrays(episodes.episode(i)).items():
                        group[name] = values
                    raw.check()
        except (OSError, RuntimeError, ValueError):
            raw.check()
            raise
        raw.check()


def _stored_arrays(episode: Episode) -> dict[str, np.ndarray]:
    ends = np.zeros(len(episode.rewards), bool)
    ends[-1] = True
    arrays = {
        "observations": episode.observations,
        "actions": episode.actions,
        "rewards": episode.rewards,
        "terminations": ends & episode.terminated,
        "truncations": ends & (not episode.terminated),
    }
    if episode.durations is not None:
        arrays[f"infos/{_DURATION}"] = np.append(episode.durations, np.float32(1))
    return arrays


def _spaces(episodes: Episodes) -> tuple[Any, Any]:
    from gymnasium.spaces import Box

    extra = episodes.metadata.extra
    low, high = (np.asarray(extra.get(key, bound), np.float32) for key, bound in _BOUNDS)
    shape = (episodes.action_size,)
    action = Box(np.broadcast_to(low, shape), np.broadcast_to(high, shape), shape, np.float32)
    if episodes.image_shape is not None:
        return Box(0, 255, episodes.image_shape, np.uint8), action
    return Box(-np.inf, np.inf, (episodes.state_size,), np.float32), action


_BOUNDS = (("action_low", -np.inf), ("action_high", np.inf))


def _spec(environment: str | None) -> Any:
    """Gymnasium's spec of the environment, if it is one of Gymnasium's; nothing is made."""
    import gymnasium

    return gymnasium.registry.get(environment or "")
