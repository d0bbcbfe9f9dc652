"""What is known of a set of episodes besides its numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from koopax._errors import KoopaxError
from koopax._untrusted import from_json


@dataclass(frozen=True)
class Metadata:
    """Names, units and origin of a set of episodes; everything is optional and JSON-able."""

    environment: str | None = None
    """Gymnasium id of the environment, or any name of the system."""
    state_names: tuple[str, ...] = ()
    """One name per component of the state, or empty."""
    action_names: tuple[str, ...] = ()
    """One name per component of the action, or empty."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Unit of a state or action component, by its name."""
    source_names: tuple[str, ...] = ("data",)
    """What the integers in `Episodes.sources` stand for, for example the policies of a mixed set."""
    step_seconds: float | None = None
    """Seconds that one nominal step takes."""
    has_rewards: bool = True
    """Whether there are rewards; otherwise they are stored as zeros."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Anything else worth keeping: command, seed, versions."""

    def to_json(self) -> dict[str, Any]:
        """The fields as plain JSON types."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Metadata":
        """The inverse of `to_json`; fields of a later version are ignored."""
        known = {f.name for f in fields(cls)}
        return from_json(cls, {name: value for name, value in document.items() if name in known})

    def check(self, state_size: int, action_size: int) -> None:
        """Raise unless the names fit the sizes."""
        for kind, names, size in (("state", self.state_names, state_size), ("action", self.action_names, action_size)):
            if names and len(names) != size:
                raise KoopaxError(f"{len(names)} {kind} names for {size} {kind} columns: give one name per column.")
        if self.step_seconds is not None and not 0 < self.step_seconds < float("inf"):
            raise KoopaxError(
                f"a step of {self.step_seconds} seconds is none: give a positive number, or leave it out."
            )


def merge(metadata: Sequence[Metadata]) -> tuple[Metadata, list[list[int]]]:
    """Common metadata of several sets, and for each set the new number of each of its sources.

    A field survives where all sets agree on it; sources of the same name become one, and a set without rewards leaves
    the whole without.
    """
    names: list[str] = []
    numbers: list[list[int]] = []
    for one in metadata:
        names.extend(name for name in one.source_names if name not in names)
        numbers.append([names.index(name) for name in one.source_names])
    first = metadata[0]
    own = {"source_names": tuple(names), "has_rewards": all(one.has_rewards for one in metadata)}
    agreed = {
        f.name: getattr(first, f.name)
        for f in fields(Metadata)
        if f.name not in own and all(getattr(m, f.name) == getattr(first, f.name) for m in metadata)
    }
    return Metadata(**agreed, **own), numbers
