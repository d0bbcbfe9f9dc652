"""The devices of a training: each has a part of every batch, and all have the same parameters.

    g = 1/n Σ_d g_d,    g_d the mean gradient of the B/n windows of device d

is the gradient of the whole batch, so that n devices take the steps of one, up to the order of sums. It is one program
(`jax.shard_map`) with one mean over devices in each step. With several processes, the devices are those of all of them;
every process runs the same program, and the first one decides when to log, to save and to stop.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from koopax._errors import KoopaxError
from koopax.training import hosts
from koopax.training.resources import DeviceCount

T = TypeVar("T")

AXIS = "batch"
REPLICATED = PartitionSpec()
OF_BLOCKS = PartitionSpec(None, None, AXIS)
"""Batches of several steps [steps, time, batch, …]."""


@dataclass(frozen=True)
class Devices:
    """One device, which JAX has chosen, or a mesh of several."""

    mesh: Mesh | None = None

    @classmethod
    def choose(cls, count: DeviceCount | None) -> "Devices":
        """So many devices of this process, or all; of each process, where there are several. None is one."""
        here = jax.local_devices()
        if count is not None and count != "all" and not 1 <= count <= len(here):
            raise KoopaxError(
                f"{count} devices are asked for, and JAX has {len(here)} ({here[0].platform}): ask for up to "
                f"{len(here)}, or have it make more of the processor by "
                f"XLA_FLAGS=--xla_force_host_platform_device_count={max(count, 2)}."
            )
        wanted = len(here) if count == "all" else count or 1
        chosen = [[d for d in jax.devices() if d.process_index == p][:wanted] for p in range(jax.process_count())]
        flat = [device for devices in chosen for device in devices]
        if len(flat) == 1:
            return cls()
        if len({len(devices) for devices in chosen}) > 1:
            numbers = ", ".join(str(len(devices)) for devices in chosen)
            raise KoopaxError(f"the processes have {numbers} devices: give each the same number by --devices.")
        return cls(Mesh(np.asarray(flat), (AXIS,)))

    @property
    def count(self) -> int:
        """Number of devices, in all processes together."""
        return 1 if self.mesh is None else self.mesh.size

    def share(self, batch_size: int) -> int:
        """Windows of a batch on each device."""
        if batch_size % self.count:
            below, above = batch_size - batch_size % self.count, batch_size + -batch_size % self.count
            near = f"{below} or {above}" if below else str(above)
            raise KoopaxError(
                f"{self.count} devices can't share a batch of {batch_size} windows evenly: use a batch of {near}, or "
                "other devices."
            )
        return batch_size // self.count

    def part_of_process(self, batch_size: int) -> slice:
        """Which windows of a batch this process reads."""
        size = batch_size // jax.process_count()
        return slice(size * jax.process_index(), size * (jax.process_index() + 1))

    def replicate(self, tree: T) -> T:
        """The arrays of a tree on every device."""
        return self._placed(tree, REPLICATED)

    def scatter(self, blocks: T) -> T:
        """Batches of several steps [steps, time, batch, …], of which this process has its part, on their devices."""
        return self._placed(blocks, OF_BLOCKS)

    def _placed(self, tree: T, spec: PartitionSpec) -> T:
        if self.mesh is None:
            return tree
        place = partial(jax.make_array_from_process_local_data, NamedSharding(self.mesh, spec))
        return jax.tree.map(lambda leaf: place(np.asarray(leaf)) if eqx.is_array_like(leaf) else leaf, tree)

    def local(self, tree: T) -> T:
        """Replicated arrays as this process's own, on one device."""
        if self.mesh is None:
            return tree
        return jax.tree.map(lambda leaf: leaf.addressable_data(0) if isinstance(leaf, jax.Array) else leaf, tree)

    def spread(self, function: Any, specs: tuple[Any, ...]) -> Any:
        """A function of arrays that each device runs on its part; what it returns is the same on all of them."""
        assert self.mesh is not None
        return jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=REPLICATED, check_vma=False)


ONE = Devices()


def agree(ending: str | None, progress: list[float], most: int) -> tuple[str | None, list[float]]:
    """What the first process wants to do next; where any process was asked to stop, all do."""
    if jax.process_count() == 1:
        return ending, progress
    mine = np.zeros(most + 2)
    mine[0], mine[1] = hosts.ENDINGS.index(ending), len(progress)
    mine[2 : 2 + len(progress)] = progress
    everyone = hosts.gather(mine)
    stopped = hosts.ENDINGS.index("interrupted")
    first = everyone[0]
    if first[0] == 0 and (everyone[:, 0] == stopped).any():
        return "interrupted", []
    return hosts.ENDINGS[int(first[0])], [float(value) for value in first[2 : 2 + int(first[1])]]
