"""Checkpoints of a run: array leaves and a JSON header in one `.npz`; atomic, no pickle, the newest two kept.

The header lists the SHA-256 digest of every array, and the file holds the header's own, so that damage is found. Arrays
have names of their own, and what is not in a checkpoint is never asked for: an agent whose replay is too large to be
written each time can keep its rows in files beside the checkpoints and only name them here.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from koopax._atomic import new_file
from koopax._errors import KoopaxError, KoopaxWarning
from koopax._npz import read_npz
from koopax._untrusted import one_line

KEEP = 2
T = TypeVar("T")


class Checkpoint(NamedTuple):
    """What a run is resumed from."""

    header: dict[str, Any]
    """Counters and anything else that is JSON-able."""
    arrays: dict[str, np.ndarray]
    """Arrays by name."""


class Checkpoints:
    """The numbered checkpoints of one run, in a folder that is made with the first one."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.last = max(self.numbers(), default=0)
        """The number of the checkpoint that was written or loaded last."""

    def numbers(self) -> list[int]:
        """The numbers of the checkpoints that are kept, whole or damaged, the newest last."""
        found = (re.fullmatch(r"(\d+)\.npz", path.name) for path in self.folder.glob("*.npz") if path.is_file())
        return sorted(int(match[1]) for match in found if match)

    def save(self, checkpoint: Checkpoint, number: int | None = None) -> None:
        """Write the next one, or the one of that number, and remove all but it and the one before."""
        number = self.last + 1 if number is None else number
        digests = {name: _digest(array) for name, array in checkpoint.arrays.items()}
        header = json.dumps({**checkpoint.header, "arrays": digests})
        members = {"header": np.array(header), "digest": np.array(_text_digest(header))}
        with new_file(self._path(number), overwrite=True) as temporary, open(temporary, "wb") as file:
            np.savez(file, **members, **checkpoint.arrays)  # type: ignore[arg-type]
        self.last = number
        # Those of higher numbers are damaged: a whole one would have been gone on from.
        kept = [other for other in self.numbers() if other <= number][-KEEP:]
        for other in self.numbers():
            if other not in kept:
                self._path(other).unlink(missing_ok=True)

    def drop(self, number: int) -> list[int]:
        """Remove those from a number on; the numbers that are left."""
        for other in self.numbers():
            if other >= number:
                self._path(other).unlink(missing_ok=True)
        return self.numbers()

    def load(self, restore: Callable[[Checkpoint], None] | None = None) -> Checkpoint | None:
        """The newest one that is whole, with a warning where a newer one is damaged; None where there is none.

        It is whole if its digests are right and `restore`, which returns a run to it, takes it.
        """
        damaged = ""
        for number in reversed(self.numbers()):
            path = self._path(number)
            try:
                found = read_checkpoint(path)
                if restore is not None:
                    _restored(path, found, restore)
            except KoopaxError as error:
                damaged = damaged or str(error)
                continue
            if damaged:
                warnings.warn(f"{damaged} The one before it is used.", KoopaxWarning, stacklevel=2)
            self.last = number
            return found
        if damaged:
            raise KoopaxError(f"no checkpoint in {str(self.folder)!r} is whole: {damaged} Train into a new folder.")
        return None

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.npz"


def read_checkpoint(path: Path) -> Checkpoint:
    """Read one file and compare its digests; raises if it is not whole."""
    try:
        found = read_npz(path)
        text = str(found.pop("header"))
        if str(found.pop("digest")) != _text_digest(text):
            raise ValueError("its header differs from its digest")
        header = json.loads(text)
        digests = header.pop("arrays")
        if digests.keys() != found.keys():
            raise ValueError("its arrays are not those that its header lists")
        for name, array in found.items():
            if _digest(array) != digests[name]:
                raise ValueError(f"{name} differs from its digest")
    except Exception as error:  # whatever damage does to an archive
        raise KoopaxError(f"the checkpoint {str(path)!r} is damaged ({one_line(error)}).") from error
    return Checkpoint(header, found)


def _restored(path: Path, found: Checkpoint, restore: Callable[[Checkpoint], None]) -> None:
    """Restore a run; whatever a header with the right digest and the wrong content leads to is one sentence."""
    try:
        restore(found)
    except KoopaxError as error:
        raise KoopaxError(f"the checkpoint {str(path)!r} can't be used: {error}") from error
    except Exception as error:  # a run takes its state apart in many ways
        raise KoopaxError(f"the checkpoint {str(path)!r} is not of this run ({one_line(error)}).") from error


def tree_arrays(prefix: str, tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a pytree by number: `prefix/0`, `prefix/1`, …"""
    return {f"{prefix}/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def restore_tree(prefix: str, like: T, arrays: Mapping[str, np.ndarray]) -> T:
    """The pytree that `tree_arrays` took apart, in the structure of `like`; raises if its shapes are others."""
    leaves, structure = jax.tree.flatten(like)
    saved = [arrays.get(f"{prefix}/{i}") for i in range(len(leaves))]
    for i, (array, leaf) in enumerate(zip(saved, leaves, strict=True)):
        if array is None or array.shape != leaf.shape or array.dtype != leaf.dtype:
            found = "is missing" if array is None else f"has shape {array.shape} and type {array.dtype}"
            raise KoopaxError(
                f"the checkpoint's {prefix}/{i} {found} where {leaf.shape} of {leaf.dtype} is expected: "
                "it was written by another model, train into a new folder."
            )
    return jax.tree.unflatten(structure, [jnp.array(array) for array in saved])


def named_arrays(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those arrays of a checkpoint that are called `prefix/NAME`, by NAME."""
    return {name.removeprefix(f"{prefix}/"): a for name, a in arrays.items() if name.startswith(f"{prefix}/")}


def _digest(array: np.ndarray) -> str:
    array = np.ascontiguousarray(array)
    found = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    found.update(memoryview(array.reshape(-1).view(np.uint8)))  # type: ignore[arg-type]
    return found.hexdigest()


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
