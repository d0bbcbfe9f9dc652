"""Training checkpoints through Orbax: atomic, without pickled code, the newest two kept."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import orbax.checkpoint as ocp

from koopax._errors import KoopaxError
from koopax.training.state import TrainState

KEEP = 2


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path):
        """`folder` is made when the first checkpoint is written."""
        self._folder = folder.absolute()
        self._manager: ocp.CheckpointManager | None = None

    def save(self, state: TrainState, progress: dict[str, Any]) -> None:
        """Write the state and what the loop remembers; a step that is there already is left as it is."""
        step = int(state.step)
        manager = self._open()
        if step in manager.all_steps():
            return
        leaves = jax.tree.leaves(eqx.filter(state, eqx.is_array))
        named = {str(index): array for index, array in enumerate(leaves) if array.size}
        try:
            manager.save(
                step, args=ocp.args.Composite(state=ocp.args.StandardSave(named), progress=ocp.args.JsonSave(progress))
            )
            manager.wait_until_finished()
        except OSError as error:
            raise KoopaxError(f"can't write a checkpoint to {self._folder} ({error}): free some space.") from error

    def steps(self) -> list[int]:
        """The steps of the checkpoints that are kept, the newest last."""
        return sorted(self._open().all_steps()) if self._folder.is_dir() else []

    def restore(self, like: TrainState, step: int | None = None) -> tuple[TrainState, dict[str, Any]]:
        """The checkpoint of a step, the newest by default, in the structure of `like`."""
        steps = self.steps()
        if not steps:
            raise KoopaxError(f"there is no checkpoint in {self._folder} to resume from: train without --resume.")
        step = steps[-1] if step is None else step
        arrays, rest = eqx.partition(like, eqx.is_array)
        leaves, structure = jax.tree.flatten(arrays)
        # Orbax refuses arrays without elements.
        target = {str(i): jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for i, leaf in enumerate(leaves) if leaf.size}
        restored = self._open().restore(
            step, args=ocp.args.Composite(state=ocp.args.StandardRestore(target), progress=ocp.args.JsonRestore())
        )
        loaded = [restored["state"][str(i)] if leaf.size else leaf for i, leaf in enumerate(leaves)]
        return eqx.combine(jax.tree.unflatten(structure, loaded), rest), restored["progress"]

    def close(self) -> None:
        """Release the manager's threads."""
        if self._manager is not None:
            self._manager.close()
            self._manager = None

    def _open(self) -> ocp.CheckpointManager:
        if self._manager is None:
            options = ocp.CheckpointManagerOptions(max_to_keep=KEEP, create=True, enable_async_checkpointing=False)
            self._manager = ocp.CheckpointManager(self._folder, options=options)
        return self._manager
