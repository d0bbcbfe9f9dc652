"""A run's checkpoint: the learner's leaves, the replay's rows and a JSON header in one `.npz`, replaced atomically."""

import json
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from koopax._atomic import new_file
from koopax._errors import KoopaxError
from koopax.agents.sac.checkpoint import CHECKPOINT, read_header
from koopax.agents.tdmpc.agent import Learner
from koopax.agents.tdmpc.replay import Replay

__all__ = ["CHECKPOINT", "load_checkpoint", "read_header", "save_checkpoint"]


def save_checkpoint(folder: Path, learner: Learner, replay: Replay, header: dict[str, Any]) -> None:
    """Write `folder/checkpoint.npz`. Generators need no state: all randomness comes from the seed and counters."""
    arrays = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(learner))}
    arrays |= {f"replay_{name}": array for name, array in replay.save().items()}
    with new_file(folder / CHECKPOINT, overwrite=True) as temporary, open(temporary, "wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]


def load_checkpoint(folder: Path, like: Learner, replay: Replay) -> tuple[Learner, dict[str, Any]]:
    """The learner in the structure of `like`, and the header; the replay is filled in place."""
    header = read_header(folder)
    leaves, structure = jax.tree.flatten(like)
    try:
        with np.load(folder / CHECKPOINT, allow_pickle=False) as file:
            saved = [jnp.array(file[f"leaf_{i}"]) for i in range(len(leaves))]
            replay.restore({name.removeprefix("replay_"): file[name] for name in file.files if name[:7] == "replay_"})
        if any(a.shape != b.shape for a, b in zip(saved, leaves, strict=True)):
            raise ValueError("its shapes are those of another model")
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise KoopaxError(
            f"the checkpoint in {str(folder)!r} can't be read ({error}); train into a new folder."
        ) from None
    return jax.tree.unflatten(structure, saved), header
