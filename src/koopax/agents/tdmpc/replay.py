"""Prioritised replay of windows, in NumPy: whole episodes go in, windows that never cross an episode come out.

A window starts at row i with probability p_i^α / Σ p^α and weighs (N P_i)^{−β}, scaled to at most 1 in its batch.
Every decision is a start; a window's steps after the end of its episode are marked, repeat the last observation, and
count nothing.
"""

from typing import NamedTuple

import numpy as np

from koopax._errors import KoopaxError
from koopax.agents.tdmpc.losses import Windows

PRIORITY_FLOOR = 1e-6
PRIORITY_LIMIT = 1e4


class Sample(NamedTuple):
    """Batches of windows, leaves `[batch number, …]`, and the rows that they start at `[batch number, batch]`."""

    windows: Windows
    rows: np.ndarray


class Replay:
    """A ring of rows: an episode of T decisions takes T rows and one more for its last observation."""

    def __init__(self, capacity: int, state_size: int, action_size: int, *, alpha: float, beta: float):
        self.capacity = capacity
        self.alpha, self.beta = alpha, beta
        self.arrays = {
            "observations": np.zeros((capacity, state_size), np.float32),
            "actions": np.zeros((capacity, action_size), np.float32),
            "rewards": np.zeros(capacity, np.float32),
            "continues": np.zeros(capacity, np.float32),
            "ahead": np.zeros(capacity, np.int64),  # decisions from here to the end of the episode
            "powers": np.zeros(capacity),  # p^α, and 0 for rows that hold no decision
        }
        self.inserted = 0

    @property
    def filled(self) -> int:
        """Rows in use."""
        return min(self.inserted, self.capacity)

    def add(self, observations: np.ndarray, actions: np.ndarray, rewards: np.ndarray, terminated: bool) -> None:
        """Insert an episode, with the largest priority there is; observations have one row more than actions."""
        length = len(rewards)
        if length + 1 > self.capacity:
            raise KoopaxError(
                f"an episode of {length} decisions does not fit into replay_size {self.capacity}: raise it."
            )
        largest = self.arrays["powers"][: self.filled].max(initial=0.0) or 1.0
        rows = (self.inserted + np.arange(length + 1)) % self.capacity
        decisions = rows[:-1]
        store = self.arrays
        store["observations"][rows] = observations
        store["actions"][decisions] = actions
        store["rewards"][decisions] = rewards
        store["continues"][decisions] = 1.0
        if terminated:
            store["continues"][decisions[-1]] = 0.0
        store["ahead"][rows] = np.arange(length, -1, -1)
        store["powers"][decisions] = largest
        store["powers"][rows[-1]] = 0.0
        self.inserted += length + 1

    def sample(self, count: int, batch_size: int, horizon: int, rng: np.random.Generator) -> Sample:
        """`count` batches of windows of `horizon` steps, all drawn with the present priorities."""
        powers = self.arrays["powers"][: self.filled]
        sums = np.cumsum(powers)
        drawn = np.searchsorted(sums, rng.random((count, batch_size)) * sums[-1], side="right")
        # A draw that rounds up to the total lands behind the last row; the last decision is meant.
        rows = np.minimum(drawn, np.flatnonzero(powers)[-1])
        starts = np.count_nonzero(powers)
        weights = (starts * powers[rows] / sums[-1]) ** -self.beta
        weights /= weights.max(axis=1, keepdims=True)
        return Sample(self.windows(rows, horizon, weights.astype(np.float32)), rows)

    def windows(self, rows: np.ndarray, horizon: int, weights: np.ndarray) -> Windows:
        """The windows that start at these rows `[count, batch]`."""
        store = self.arrays
        ahead = store["ahead"][rows][:, None]
        step = np.arange(horizon + 1)[None, :, None]
        seen = (rows[:, None] + np.minimum(step, ahead)) % self.capacity
        taken = (rows[:, None] + np.minimum(step[:, :-1], ahead - 1)) % self.capacity
        return Windows(
            observations=store["observations"][seen],
            actions=store["actions"][taken],
            rewards=store["rewards"][taken],
            continues=store["continues"][taken],
            inside=(step[:, :-1] < ahead).astype(np.float32),
            weights=weights,  # type: ignore[arg-type]  (the compiled update takes NumPy arrays over)
        )

    def set_priorities(self, rows: np.ndarray, errors: np.ndarray) -> None:
        """p = |error| for these rows; where one was drawn twice, the later error stays."""
        priorities = np.clip(np.asarray(errors, float).ravel(), PRIORITY_FLOOR, PRIORITY_LIMIT)
        self.arrays["powers"][rows.ravel()] = priorities**self.alpha

    def save(self) -> dict[str, np.ndarray]:
        """Arrays from which `restore` rebuilds this state."""
        return {"inserted": np.array(self.inserted)} | {name: a[: self.filled] for name, a in self.arrays.items()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Return to a saved state."""
        self.inserted = int(state["inserted"])
        for name, array in self.arrays.items():
            array[: self.filled] = state[name]
