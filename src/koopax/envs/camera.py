"""A picture of an environment: drawn off-screen, fast, at any size.

MuJoCo chooses how to draw when it is imported, and a graphics driver that fails can end its process: whoever draws much
does so in a process of its own (`koopax.envs.renderers`, `koopax.collection.workers`).
"""

import os
from typing import Any

import numpy as np

from koopax._errors import KoopaxError
from koopax.envs.make import make

PACKAGES = "the Debian packages libegl1 and libgl1-mesa-dri, and set MUJOCO_GL=egl"
# Without shadows, reflections and smoothed edges, software draws a small frame eight times as fast.
PLAIN_DRAWING = {"shadow": False, "reflection": False}


class Camera:
    """Frames of one environment, uint8 `[size, size, 3]`."""

    def __init__(self, name: str, env: Any, *, size: int, oversampling: int = 1):
        """Of an environment that `make_drawing` has made.

        Frames are drawn `oversampling` times as large and averaged: in a small one, a thin pole tells its angle by the
        shades at its edges, which costs less than smoothing by the driver.
        """
        self.name, self.env, self.size, self.oversampling = name, env, size, oversampling
        self._physics = getattr(getattr(env.unwrapped, "_env", None), "physics", None)
        if self._physics is not None:
            quality = self._physics.model.vis.quality
            quality.offsamples, quality.shadowsize = 0, 0

    def frame(self) -> np.ndarray:
        """What the camera sees now."""
        from gymnasium.error import DependencyNotInstalled

        try:
            drawn = self.draw(self.oversampling * self.size, self.oversampling * self.size)
        except KoopaxError:
            raise
        except DependencyNotInstalled as error:
            raise KoopaxError(f"{self.name!r} can't be drawn without a package: {error}.") from None
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


def make_drawing(name: str, *, unit_actions: bool = False) -> Any:
    """An environment as `koopax.envs.make` gives it, that draws itself as an `rgb_array`."""
    os.environ.setdefault("MUJOCO_GL", "egl")
    if os.environ["MUJOCO_GL"].startswith("disable"):
        raise KoopaxError(f"{name!r} can't be drawn with MUJOCO_GL=disabled: install {PACKAGES}.")
    import gymnasium

    try:
        env = make(name, unit_actions=unit_actions, render_mode="rgb_array")
    except (TypeError, gymnasium.error.Error) as error:
        raise KoopaxError(f"{name!r} has no pixels ({error}): choose a task that draws itself as rgb_array.") from None
    modes = env.metadata.get("render_modes") or []
    if "rgb_array" not in modes and not env.spec.id.startswith("dm_control/"):
        env.close()
        raise KoopaxError(f"{name!r} has no pixels (it draws {modes}): choose a task that draws itself as rgb_array.")
    return env


def averaged(image: np.ndarray, size: int) -> np.ndarray:
    """The image with squares of that many pixels averaged."""
    if size == 1:
        return image
    height, width, channels = image.shape
    squares = image.reshape(height // size, size, width // size, size, channels)
    return ((squares.sum(axis=(1, 3), dtype=np.uint16) + size * size // 2) // (size * size)).astype(np.uint8)


def _resized(name: str, drawn: Any, width: int, height: int) -> np.ndarray:
    from PIL import Image

    if not isinstance(drawn, np.ndarray) or drawn.ndim != 3 or drawn.shape[-1] != 3 or drawn.dtype != np.uint8:
        what = f"{drawn.dtype} {drawn.shape}" if isinstance(drawn, np.ndarray) else type(drawn).__name__
        raise KoopaxError(f"{name!r} draws {what} where uint8 [height, width, 3] is expected: choose another task.")
    if drawn.shape[:2] == (height, width):
        return drawn
    return np.asarray(Image.fromarray(drawn).resize((width, height), Image.Resampling.BOX))
