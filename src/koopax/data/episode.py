"""One episode by itself."""

from typing import NamedTuple

import numpy as np


class Episode(NamedTuple):
    """One episode of T steps, without padding."""

    observations: np.ndarray
    """States [T + 1, state]."""
    actions: np.ndarray
    """Actions [T, action]."""
    rewards: np.ndarray
    """Rewards [T]; zero where the data has none."""
    durations: np.ndarray | None
    """Length of each step in nominal steps [T], or None where all are 1."""
    terminated: bool
    """Whether the last state is terminal; otherwise the episode was cut by a time limit."""
    source: str
    """Name of the episode's source."""
