"""Replay of frames, in NumPy: each is stored once, as uint8, and stacked when it is sampled.

Each environment has a ring of rows. A row holds a frame, the action taken then and what it led to; an episode of T
decisions takes T + 1 rows, the last of which holds its last frame and no action. Windows never cross an episode.
"""

from typing import NamedTuple

import numpy as np

from koopax._errors import KoopaxError

MAXIMUM_TRIES = 1_000


class Batches(NamedTuple):
    """Batches for the compiled step, leaves `[count, …]`; frames of a stack are in the order of time.

    The first `prediction_batch` transitions of each batch start the windows that are predicted.
    """

    frames: np.ndarray
    """`[count, batch, stack + 1, height, width, 3]`: the frames of s_t and, one later, of s_{t+1}."""
    actions: np.ndarray
    """`[count, batch, action]`."""
    rewards: np.ndarray
    """`[count, batch]`."""
    continues: np.ndarray
    """`[count, batch]`: 0 at true terminations."""
    future_frames: np.ndarray
    """`[count, steps, windows, stack, height, width, 3]`: of the states that predictions are compared with."""
    future_actions: np.ndarray
    """`[count, horizon, windows, action]`."""
    inside: np.ndarray
    """`[count, steps, windows]`: 1 where a compared state is in the same episode, 0 behind its end."""
    first: np.ndarray
    """`[count]`: after which action, counted from 0, the first comparison is."""


class FrameReplay:
    """A ring of rows for each environment; memory is taken as it fills."""

    def __init__(self, num_envs: int, rows: int, image_size: int, action_size: int, *, frame_stack: int):
        if rows < frame_stack + 2:
            raise KoopaxError(
                f"a replay of {rows} frames per environment holds no transition of {frame_stack} stacked frames: "
                "raise replay_steps or replay_gib."
            )
        self.rows, self.frame_stack = rows, frame_stack
        shape = (num_envs, rows)
        self.arrays = {
            "frames": np.zeros((*shape, image_size, image_size, 3), np.uint8),
            "actions": np.zeros((*shape, action_size), np.float32),
            "rewards": np.zeros(shape, np.float32),
            "continues": np.zeros(shape, np.float32),
            "decides": np.zeros(shape, bool),  # whether an action was taken here
            "age": np.zeros(shape, np.int32),  # decisions since the episode's start
        }
        self.inserted = np.zeros(num_envs, np.int64)

    def begin(self, env: int, frame: np.ndarray) -> None:
        """An episode's first frame."""
        self._append(env, frame, age=0)

    def add(self, env: int, action: np.ndarray, reward: float, terminated: bool, frame: np.ndarray) -> None:
        """What was done at the newest frame, and the frame that it led to."""
        row, store = self._newest(env), self.arrays
        store["actions"][env, row] = action
        store["rewards"][env, row] = reward
        store["continues"][env, row] = float(not terminated)
        store["decides"][env, row] = True
        self._append(env, frame, age=int(store["age"][env, row]) + 1)

    def observation(self, env: int) -> np.ndarray:
        """The newest stack of frames `[stack, height, width, 3]`."""
        return self._stacks(np.array(env), np.array(self.inserted[env] - 1))

    def sample(
        self, count: int, batch: int, *, windows: int, horizon: int, stride: int, rng: np.random.Generator
    ) -> Batches:
        """`count` batches of transitions, of which the first `windows` start predictions of `horizon` steps."""
        env, row = self._draw(count * batch, rng)
        env, row = env.reshape(count, batch), row.reshape(count, batch)
        store, at = self.arrays, (env, row % self.rows)
        first = rng.integers(0, stride, count)
        steps = -(-horizon // stride) if windows else 0

        begun_env, begun = env[:, None, :windows], row[:, None, :windows]
        ahead = self._ahead(begun_env[:, 0], begun[:, 0], horizon)[:, None]
        step = np.arange(horizon)[:, None]
        taken = begun + np.minimum(step, ahead - 1)
        wanted = first[:, None, None] + stride * np.arange(steps)[:, None] + 1
        seen = begun + np.minimum(wanted, ahead)
        return Batches(
            frames=np.concatenate([self._stacks(env, row), self._frames(env, row + 1)[:, :, None]], axis=2),
            actions=store["actions"][at],
            rewards=store["rewards"][at],
            continues=store["continues"][at],
            future_frames=self._stacks(np.broadcast_to(begun_env, seen.shape), seen),
            future_actions=store["actions"][np.broadcast_to(begun_env, taken.shape), taken % self.rows],
            inside=((wanted <= ahead) & (wanted <= horizon)).astype(np.float32),
            first=first.astype(np.int32),
        )

    def _draw(self, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Environments and rows, counted from the run's first, at which a decision was made; all equally likely."""
        low = np.maximum(self.inserted - self.rows, 0)
        high = self.inserted - 1
        oldest = low + np.where(low > 0, self.frame_stack - 1, 0)  # stacks reach back to rows that are still there
        counts = np.maximum(high - oldest, 0)
        if counts.sum() == 0:
            raise KoopaxError("the replay holds no transition yet: make decisions before learning.")
        bounds = np.cumsum(counts)
        env, row = np.zeros(size, np.int64), np.zeros(size, np.int64)
        missing = np.arange(size)
        for _ in range(MAXIMUM_TRIES):
            drawn = rng.integers(0, bounds[-1], len(missing))
            env[missing] = np.searchsorted(bounds, drawn, side="right")
            row[missing] = oldest[env[missing]] + drawn - (bounds - counts)[env[missing]]
            missing = missing[~self.arrays["decides"][env[missing], row[missing] % self.rows]]
            if not len(missing):
                break
        return env, row

    def _ahead(self, env: np.ndarray, row: np.ndarray, horizon: int) -> np.ndarray:
        """Decisions that follow one another from each row on, this one included; no more than `horizon`."""
        rows = row[..., None] + np.arange(horizon)
        there = rows < self.inserted[env][..., None] - 1
        decides = there & self.arrays["decides"][env[..., None], rows % self.rows]
        return np.cumprod(decides, axis=-1).sum(-1)

    def _stacks(self, env: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Frames `[…, stack, height, width, 3]` up to these rows; an episode's first frame stands for those before."""
        age = self.arrays["age"][env, row % self.rows]
        back = np.minimum(np.arange(self.frame_stack - 1, -1, -1), age[..., None])
        return self._frames(env[..., None], row[..., None] - back)

    def _frames(self, env: np.ndarray, row: np.ndarray) -> np.ndarray:
        return self.arrays["frames"][env, row % self.rows]

    def _newest(self, env: int) -> int:
        return int((self.inserted[env] - 1) % self.rows)

    def _append(self, env: int, frame: np.ndarray, *, age: int) -> None:
        expected = self.arrays["frames"].shape[2:]
        if frame.shape != expected:
            raise KoopaxError(f"a frame has shape {frame.shape} where all before had {expected}: use one size.")
        row, store = int(self.inserted[env] % self.rows), self.arrays
        store["frames"][env, row] = frame
        store["decides"][env, row] = False
        store["age"][env, row] = age
        self.inserted[env] += 1
