"""One episode by itself."""

from typing import NamedTuple

import numpy as np


class Episode(NamedTuple):
    """One episode of T steps, without padding."""

    observations: np.ndarray
    """States [T + 1, state], or frames [T + 1, height, width, channels]."""
    actions: np.ndarray
    """Actions [T, action]."""
    rewards: np.ndarray
    """Rewards [T]; zero where the data has none."""
    durations: np.ndarray | None = None
    """Length of each step in nominal steps [T], or None where all are 1."""
    terminated: bool = False
    """Whether the last state is terminal; otherwise the episode was cut by a time limit."""
    source: str = "data"
    """Name of the episode's source."""

    def __repr__(self) -> str:
        ending = "terminated" if self.terminated else "truncated"
        sizes = f"observations {self.observations.shape}, actions {self.actions.shape}"
        return f"Episode({len(self.rewards)} steps, {sizes}, {ending}, source {self.source!r})"

    def cut(self, steps: int) -> "Episode":
        """The first steps of the episode, truncated there."""
        if steps >= len(self.rewards):
            return self
        durations = None if self.durations is None else self.durations[:steps]
        arrays = self.observations[: steps + 1], self.actions[:steps], self.rewards[:steps]
        return Episode(*arrays, durations, terminated=False, source=self.source)
