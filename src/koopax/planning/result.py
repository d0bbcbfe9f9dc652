"""What a controller reached, as numbers and a JSON document; and what it tells while it runs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from koopax.envs import Steps


class ControlProgress(NamedTuple):
    """How far a running controller is, after each decision."""

    returns: tuple[float, ...]
    """Of the episodes finished so far, in the order in which they ended."""
    episodes: int
    """How many there will be."""
    decisions: int
    """Taken so far in each environment."""
    actions: np.ndarray
    """The latest ones, `[environment, action]`."""
    taken: Steps
    """What they led to."""


@dataclass(frozen=True)
class ControlResult:
    """What a controller reached."""

    returns: tuple[float, ...]
    """Sum of rewards of each finished episode, in order."""
    lengths: tuple[int, ...]
    """Decisions in each of these episodes."""
    ms_per_decision: float
    """Median milliseconds of planning for all environments, divided by their number; compilation is excluded."""
    environments: int
    """How many were planned for together."""
    interrupted: bool = False
    """Whether Ctrl-C ended it early: then only the episodes that were finished count."""
    planned_violation: float | None = None
    """How far plans left the state's bounds, at most, where the planner knows of some."""
    violation: float | None = None
    """How far the states that were met left their bounds, at most, where there are some."""
    random_return: float | None = None
    """Mean return of actions drawn evenly from the bounds, in the same environments, where it was asked for."""
    states_outside: float | None = None
    """Share of the states met that lie outside the model's data; see `koopax.planning.coverage`."""
    prediction_error: float | None = None
    """The model's error in the episodes played, in variances of its data; see `koopax.planning.coverage`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the planner and the loop, where `control_trained` chose them."""
    mean_return: float = field(init=False)
    """Mean of `returns`; NaN without any."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean_return", float(np.mean(self.returns)) if self.returns else float("nan"))

    def to_json(self) -> dict[str, Any]:
        """A JSON document; what is not known is null."""
        document = asdict(self)
        for name in ("mean_return", "ms_per_decision"):
            document[name] = document[name] if np.isfinite(document[name]) else None
        return document
