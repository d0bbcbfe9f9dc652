"""Replay of frames, in NumPy: each is stored once, as uint8, and stacked when it is sampled.

Each environment has a ring of rows. A row holds a frame, the action taken then and what it led to; an episode of T
decisions takes T + 1 rows, the last of which holds its last frame and no action. Windows never cross an episode.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from koopax._errors import KoopaxError

MAXIMUM_TRIES = 1_000


# NumPy's when they are drawn, JAX's inside the compiled step.
Numbers: TypeAlias = Any


class Batches(NamedTuple):
    """Batches for the compiled step, leaves `[count, …]`; frames of a stack are in the order of time.

    The first `prediction_batch` transitions of each batch start the windows that are predicted.
    """

    frames: Numbers
    """`[count, batch, stack, height, width, 3]`: of s_t."""
    next_frames: Numbers
    """The same of s_{t+n}, or of the episode's last state."""
    actions: Numbers
    """`[count, batch, action]`."""
    rewards: Numbers
    """`[count, batch]`: r_t + γ r_{t+1} + … up to s_{t+n}."""
    discounts: Numbers
    """`[count, batch]`: what the value of s_{t+n} is multiplied with, γⁿ, or 0 behind a true termination."""
    future_frames: Numbers
    """`[count, steps, windows, stack, height, width, 3]`: of the states that predictions are compared with."""
    future_actions: Numbers
    """`[count, horizon, windows, action]`."""
    inside: Numbers
    """`[count, steps, windows]`: 1 where a compared state is in the same episode, 0 behind its end."""
    first: Numbers
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
        self,
        count: int,
        batch: int,
        *,
        discount: float,
        return_steps: int,
        windows: int,
        horizon: int,
        stride: int,
        rng: np.random.Generator,
    ) -> Batches:
        """`count` batches of transitions, of which the first `windows` start predictions of `horizon` steps.

        A time limit is no termination: a transition of n steps that meets one ends there, and bootstraps.
        """
        env, row = self._draw(count * batch, rng)
        env, row = env.reshape(count, batch), row.reshape(count, batch)
        store, at = self.arrays, (env, row % self.rows)
        rewards, discounts, steps_taken = self._returns(env, row, discount, return_steps)
        first = rng.integers(0, stride, count)
        steps = -(-horizon // stride) if windows else 0

        begun_env, begun = env[:, None, :windows], row[:, None, :windows]
        ahead = self._ahead(begun_env[:, 0], begun[:, 0], horizon)[:, None]
        step = np.arange(horizon)[:, None]
        taken = begun + np.minimum(step, ahead - 1)
        wanted = first[:, None, None] + stride * np.arange(steps)[:, None] + 1
        seen = begun + np.minimum(wanted, ahead)
        return Batches(
            frames=self._stacks(env, row),
            next_frames=self._stacks(env, row + steps_taken),
            actions=store["actions"][at],
            rewards=rewards,
            discounts=discounts,
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

    def _returns(
        self, env: np.ndarray, row: np.ndarray, discount: float, steps: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Discounted rewards of up to n steps, the discount behind them, and how many steps there are."""
        taken = self._ahead(env, row, steps)
        step = np.arange(steps)
        at = env[..., None], (row[..., None] + step) % self.rows
        inside = step < taken[..., None]
        rewards = np.sum(np.where(inside, discount**step * self.arrays["rewards"][at], 0), axis=-1)
        continues = np.prod(np.where(inside, self.arrays["continues"][at], 1), axis=-1)
        return rewards.astype(np.float32), (continues * discount**taken).astype(np.float32), taken

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
