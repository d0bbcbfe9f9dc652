"""A task seen through a camera: frames instead of states, repeated actions, episodes that can be asked for by number.

This runs in the process that draws, see `koopax.envs.renderers`.
"""

from typing import NamedTuple

import numpy as np

from koopax.envs.camera import Camera, make_drawing
from koopax.envs.repeat import published_action_repeat


class Outcome(NamedTuple):
    """What a decision led to; the reward is the sum over `steps` environment steps."""

    frame: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    steps: int

    @property
    def ended(self) -> bool:
        """Whether the episode is over, for either reason."""
        return self.terminated or self.truncated


class PixelTask:
    """One environment with actions in [−1, 1]ᴬ; frames are uint8 `[size, size, 3]`."""

    def __init__(self, name: str, *, size: int, action_repeat: int | None = None, oversampling: int = 1):
        """Any environment that `koopax.envs.make` takes and that draws itself as an `rgb_array`; see `Camera`."""
        self.env = make_drawing(name, unit_actions=True)
        self.camera = Camera(name, self.env, size=size, oversampling=oversampling)
        self.action_repeat = action_repeat or published_action_repeat(self.env.spec.id)
        self.action_size = int(self.env.action_space.shape[0])

    def reset(self, seed: int) -> np.ndarray:
        """The first frame of the episode with that seed."""
        self.env.reset(seed=seed)
        return self.camera.frame()

    def step(self, action: np.ndarray, *, draw: bool = True) -> Outcome:
        """Repeat an action until the repeats are done or the episode is over; without drawing, the frame is empty."""
        total, steps = 0.0, 0
        while True:
            _, reward, terminated, truncated, _ = self.env.step(action)
            total, steps = total + float(reward), steps + 1
            if terminated or truncated or steps == self.action_repeat:
                frame = self.camera.frame() if draw else np.zeros((0, 0, 3), np.uint8)
                return Outcome(frame, total, bool(terminated), bool(truncated), steps)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
