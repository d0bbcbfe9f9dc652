"""What a training runs on: memory, devices and hosts. None of it changes what is trained."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from koopax._errors import KoopaxError

DeviceCount: TypeAlias = int | Literal["all"]
CONNECT_SECONDS = 60


@dataclass(frozen=True)
class Resources:
    """Where the data is kept, and which devices share the batch."""

    in_memory: Literal["auto", "yes", "no"] = "auto"
    """Whether the dataset is read into memory; `no` leaves it on disk, where windows are read ahead while the device
    computes; `auto` does so if it takes more than a quarter of the memory."""
    devices: DeviceCount | None = None
    """How many devices share each batch: a number, or all; one by default."""

    def __post_init__(self) -> None:
        if self.devices is not None and self.devices != "all" and self.devices < 1:
            raise KoopaxError(f"devices is {self.devices}: use 1 or more, or all.")

    @property
    def memory_map(self) -> bool | None:
        """As `koopax.load` takes it."""
        return {"auto": None, "yes": False, "no": True}[self.in_memory]


@dataclass(frozen=True)
class Hosts:
    """Settings of `koopax train --distributed`."""

    distributed: bool = False
    """One training in several processes, on one machine or many, which start the same command; SLURM, Kubernetes and
    MPI are detected, elsewhere the next three options say who is who."""
    coordinator: str | None = None
    """HOST:PORT of process 0, where the others find it; the port must be free there."""
    process_id: int | None = None
    """Number of this process, from 0; process 0 writes the run."""
    processes: int | None = None
    """Number of processes."""
    connect_seconds: int = CONNECT_SECONDS
    """How long to wait for the others at the start."""

    def __post_init__(self) -> None:
        given = {"coordinator": self.coordinator, "process-id": self.process_id, "processes": self.processes}
        named = [f"--{name}" for name, value in given.items() if value is not None]
        if named and not self.distributed:
            raise KoopaxError(f"{', '.join(named)} belong to a training in several processes: add --distributed.")
        if named and len(named) < 3:
            missing = [f"--{name}" for name, value in given.items() if value is None]
            raise KoopaxError(f"{', '.join(named)} need {', '.join(missing)}: give all three, or none to detect them.")
        if self.processes is not None and self.process_id is not None:
            if self.processes < 1:
                raise KoopaxError(f"processes is {self.processes}: use 1 or more.")
            if not 0 <= self.process_id < self.processes:
                raise KoopaxError(
                    f"process-id is {self.process_id}, and there are {self.processes} processes: use 0 to "
                    f"{self.processes - 1}."
                )
        host, _, port = (self.coordinator or "localhost:1").rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise KoopaxError(f"coordinator is {self.coordinator!r}: give HOST:PORT, such as 10.0.0.1:8476.")
        if self.connect_seconds < 1:
            raise KoopaxError(f"connect-seconds is {self.connect_seconds}: use 1 or more.")
