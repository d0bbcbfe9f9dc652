"""A task seen through a camera: frames instead of states, repeated actions, episodes that can be asked for by number.

This runs in the process that draws (`koopax.envs.renderers` starts such processes): MuJoCo chooses how to draw when it
is imported, and a graphics driver that fails can end its process.
"""

import os
from typing import Any, NamedTuple

import numpy as np

from koopax._errors import KoopaxError
from koopax.envs.make import make
from koopax.envs.repeat import published_action_repeat

PACKAGES = "the Debian packages libegl1 and libgl1-mesa-dri, and set MUJOCO_GL=egl"
# Without shadows, reflections and smoothed edges, software draws a small frame eight times as fast.
PLAIN_DRAWING = {"shadow": False, "reflection": False}


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
        """Any environment that `koopax.envs.make` takes and that draws itself as an `rgb_array`.

        Frames are drawn `oversampling` times as large and averaged: in a small one, a thin pole tells its angle by the
        shades at its edges, which costs less than smoothing by the driver.
        """
        self.name, self.size, self.oversampling = name, size, oversampling
        self.env = _drawing_environment(name)
        self.action_repeat = action_repeat or published_action_repeat(self.env.spec.id)
        self.action_size = int(self.env.action_space.shape[0])
        self._physics = getattr(getattr(self.env.unwrapped, "_env", None), "physics", None)
        if self._physics is not None:
            quality = self._physics.model.vis.quality
            quality.offsamples, quality.shadowsize = 0, 0

    def reset(self, seed: int) -> np.ndarray:
        """The first frame of the episode with that seed."""
        self.env.reset(seed=seed)
        return self.frame()

    def step(self, action: np.ndarray, *, draw: bool = True) -> Outcome:
        """Repeat an action until the repeats are done or the episode is over; without drawing, the frame is empty."""
        total, steps = 0.0, 0
        while True:
            _, reward, terminated, truncated, _ = self.env.step(action)
            total, steps = total + float(reward), steps + 1
            if terminated or truncated or steps == self.action_repeat:
                frame = self.frame() if draw else np.zeros((0, 0, 3), np.uint8)
                return Outcome(frame, total, bool(terminated), bool(truncated), steps)

    def frame(self) -> np.ndarray:
        """What the camera sees now."""
        try:
            drawn = self.draw(self.oversampling * self.size, self.oversampling * self.size)
        except KoopaxError:
            raise
        except Exception as error:  # whatever a driver comes up with
            raise KoopaxError(
                f"{self.name!r} can't be drawn ({type(error).__name__}: {error}): install {PACKAGES}."
            ) from error
        return averaged(drawn, self.oversampling)

    def draw(self, width: int, height: int) -> np.ndarray:
        """A picture of any size; the suite's own camera, or the environment's."""
        if self._physics is not None:
            return self._physics.render(height, width, camera_id=0, render_flag_overrides=PLAIN_DRAWING)
        return _resized(self.name, self.env.render(), width, height)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def averaged(image: np.ndarray, size: int) -> np.ndarray:
    """The image with squares of that many pixels averaged."""
    if size == 1:
        return image
    height, width, channels = image.shape
    squares = image.reshape(height // size, size, width // size, size, channels)
    return ((squares.sum(axis=(1, 3), dtype=np.uint16) + size * size // 2) // (size * size)).astype(np.uint8)


def _drawing_environment(name: str) -> Any:
    os.environ.setdefault("MUJOCO_GL", "egl")
    if os.environ["MUJOCO_GL"].startswith("disable"):
        raise KoopaxError(f"{name!r} can't be drawn with MUJOCO_GL=disabled: install {PACKAGES}.")
    import gymnasium

    try:
        env = make(name, unit_actions=True, render_mode="rgb_array")
    except (TypeError, gymnasium.error.Error) as error:
        raise KoopaxError(f"{name!r} has no pixels ({error}): choose a task that draws itself as rgb_array.") from None
    modes = env.metadata.get("render_modes") or []
    if "rgb_array" not in modes and not env.spec.id.startswith("dm_control/"):
        env.close()
        raise KoopaxError(f"{name!r} has no pixels (it draws {modes}): choose a task that draws itself as rgb_array.")
    return env


def _resized(name: str, drawn: Any, width: int, height: int) -> np.ndarray:
    from PIL import Image

    if not isinstance(drawn, np.ndarray) or drawn.ndim != 3 or drawn.shape[-1] != 3 or drawn.dtype != np.uint8:
        what = f"{drawn.dtype} {drawn.shape}" if isinstance(drawn, np.ndarray) else type(drawn).__name__
        raise KoopaxError(f"{name!r} draws {what} where uint8 [height, width, 3] is expected: choose another task.")
    if drawn.shape[:2] == (height, width):
        return drawn
    return np.asarray(Image.fromarray(drawn).resize((width, height), Image.Resampling.BOX))
