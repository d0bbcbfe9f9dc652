"""A run's checkpoint: array leaves and a JSON header in one `.npz`, replaced atomically; no pickle."""

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from koopax._atomic import new_file
from koopax._errors import KoopaxError
from koopax.agents.sac.agent import TrainState

CHECKPOINT = "checkpoint.npz"


def save_checkpoint(folder: Path, state: TrainState, envs: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Write `folder/checkpoint.npz`; the replay's unused rows are left out."""
    filled = min(int(state.replay.inserted), state.replay.capacity)
    rows = jax.tree.map(lambda array: np.asarray(array)[:filled], state.replay.storage)
    state = state._replace(replay=state.replay._replace(storage=rows))
    arrays = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
    arrays |= {f"env_{name}": array for name, array in envs.items()}
    with new_file(folder / CHECKPOINT, overwrite=True) as temporary, open(temporary, "wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())


def load_checkpoint(folder: Path, like: TrainState) -> tuple[TrainState, dict[str, np.ndarray], dict[str, Any]]:
    """The state in the structure of `like`, the environments' arrays and the header."""
    header = read_header(folder)
    leaves, structure = jax.tree.flatten(like)
    try:
        with np.load(folder / CHECKPOINT, allow_pickle=False) as file:
            saved = [_grow(file[f"leaf_{i}"], leaf) for i, leaf in enumerate(leaves)]
            envs = {name.removeprefix("env_"): file[name] for name in file.files if name.startswith("env_")}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise KoopaxError(
            f"the checkpoint in {str(folder)!r} can't be read ({error}); train into a new folder."
        ) from None
    return jax.tree.unflatten(structure, saved), envs, header


def read_header(folder: Path) -> dict[str, Any]:
    """Config and counters of a run's checkpoint."""
    try:
        with np.load(folder / CHECKPOINT, allow_pickle=False) as file:
            return json.loads(str(file["header"]))
    except FileNotFoundError:
        raise KoopaxError(f"there is no checkpoint in {str(folder)!r}; start a run there without resume.") from None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise KoopaxError(
            f"the checkpoint in {str(folder)!r} can't be read ({error}); train into a new folder."
        ) from None


def _grow(saved: np.ndarray, like: jax.ShapeDtypeStruct) -> jax.Array:
    """The saved leaf, padded with zero rows to the shape it has in a fresh state."""
    if saved.shape == like.shape:
        return jnp.array(saved)
    if saved.shape[1:] != like.shape[1:] or len(saved) > len(like):
        raise ValueError(f"shape {saved.shape} where {like.shape} is expected")
    full = np.zeros(like.shape, like.dtype)
    full[: len(saved)] = saved
    return jnp.array(full)
