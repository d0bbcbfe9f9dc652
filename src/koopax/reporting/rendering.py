"""Renders a video in a process of its own: `python -m koopax.reporting.rendering JOB.npz VIDEO.mp4`.

MuJoCo chooses how to draw when it is imported, and a graphics driver that fails can end its process: neither should
concern whoever asks for a video. This module imports no JAX, so it starts at once.
"""

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from koopax._errors import KoopaxError
from koopax.envs import make
from koopax.reporting.mp4 import write_mp4
from koopax.reporting.pixels import picture
from koopax.reporting.poses import joint_positions

PANEL = (336, 252)
"""Width and height of one panel; even, as H.264 wants it."""
BAR = 26
"""Height of the bar at the top of a panel that holds its label."""
FRAMES_PER_SECOND = 25
INK, PAPER = (32, 36, 42), (250, 250, 248)


def main() -> None:
    """Read a job and write its video; a failure is one line on standard error and exit code 1."""
    try:
        with np.load(sys.argv[1], allow_pickle=False) as job:
            render(job, Path(sys.argv[2]))
    except KoopaxError as error:
        sys.exit(str(error))
    except Exception as error:  # whatever a driver or an encoder comes up with
        sys.exit(f"rendering failed ({type(error).__name__}: {error})")


def render(job: Any, path: Path) -> None:
    """Write the MP4 of a job: `environment`, `labels` [P], `colours` [P, 3] and `states` [P, T + 1, S].

    With an `image_shape` the states are frames, and take `step_seconds` each.
    """
    columns = min(2, len(job["labels"]))
    size = (PANEL[0] * columns, PANEL[1] * math.ceil(len(job["labels"]) / columns))
    if "image_shape" in job:
        seconds = float(job["step_seconds"])
        rate = max(1, min(FRAMES_PER_SECOND, round(1 / seconds)))
        write_mp4(path, frames_of_pixels(job, columns, seconds, slow=1 / (rate * seconds)), size, rate=rate)
        return
    env = make(str(job["environment"]), trusted=False)
    rate = min(FRAMES_PER_SECOND, round(1 / env.unwrapped.dt))
    write_mp4(path, frames(env, job, columns, slow=1 / (rate * env.unwrapped.dt)), size, rate=rate)


def frames(env: Any, job: Any, columns: int, *, slow: float) -> Iterator[np.ndarray]:
    """One picture per state, all panels in it."""
    import mujoco as mujoco_  # its stubs lack some names

    mujoco: Any = mujoco_

    model = env.unwrapped.model
    _soften(model)
    data = mujoco.MjData(model)
    renderer = mujoco.Renderer(model, height=PANEL[1], width=PANEL[0])
    all_positions = [joint_positions(env, states) for states in job["states"]]
    camera = _camera(mujoco, model, data, all_positions[0])
    last = len(all_positions[0]) - 1
    rows = math.ceil(len(all_positions) / columns)
    for step in range(last + 1):
        picture = Image.new("RGB", (PANEL[0] * columns, PANEL[1] * rows), PAPER)
        for number, positions in enumerate(all_positions):
            panel = _panel(mujoco, model, data, renderer, camera, positions, step, job["colours"][number])
            _write(panel, str(job["labels"][number]), step, last)
            picture.paste(panel, (PANEL[0] * (number % columns), PANEL[1] * (number // columns)))
        _write_pace(picture, step * env.unwrapped.dt, slow, free=len(all_positions) < columns * rows)
        yield np.asarray(picture)
    renderer.close()


def frames_of_pixels(job: Any, columns: int, seconds: float, *, slow: float) -> Iterator[np.ndarray]:
    """One picture per step, with the frames that were seen and those that are predicted."""
    shape, states = tuple(int(side) for side in job["image_shape"]), job["states"]
    last, rows = states.shape[1] - 1, math.ceil(len(states) / columns)
    room = PANEL[0], PANEL[1] - BAR
    for step in range(last + 1):
        whole = Image.new("RGB", (PANEL[0] * columns, PANEL[1] * rows), PAPER)
        for number, motion in enumerate(states):
            panel = Image.new("RGB", PANEL, PAPER)
            panel.paste(picture(motion[step], shape, room, PAPER), (0, BAR))  # type: ignore[arg-type]
            _write(panel, str(job["labels"][number]), step, last)
            whole.paste(panel, (PANEL[0] * (number % columns), PANEL[1] * (number // columns)))
        _write_pace(whole, step * seconds, slow, free=len(states) < columns * rows)
        yield np.asarray(whole)


def _camera(mujoco: Any, model: Any, data: Any, positions: np.ndarray) -> Any:
    """A camera beside the body, near enough to fill the panel and far enough to hold it at all of these positions."""
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    moving = model.geom_bodyid > 0
    for position in positions[::5]:
        _pose(mujoco, model, data, position)
        around = data.geom_xpos[moving] - [*data.xpos[1][:2], 0]
        low = np.minimum(low, (around - model.geom_rbound[moving, None]).min(0))
        high = np.maximum(high, (around + model.geom_rbound[moving, None]).max(0))
    camera = mujoco.MjvCamera()
    camera.azimuth, camera.elevation = 90, -10
    camera.lookat[2] = (low[2] + high[2]) / 2
    half_view = math.tan(math.radians(model.vis.global_.fovy / 2))
    tall, wide = high[2] - low[2], 2 * max(high[0], -low[0])
    room = 1 - 2 * BAR / PANEL[1]  # the label's bar covers the top, and the middle of the view stays in the middle
    camera.distance = 1.2 * max(tall / room, wide * PANEL[1] / PANEL[0]) / (2 * half_view)
    return camera


def _pose(mujoco: Any, model: Any, data: Any, position: np.ndarray) -> None:
    data.qpos[:] = position
    mujoco.mj_normalizeQuat(model, data.qpos)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_camlight(model, data)


def _panel(mujoco: Any, model: Any, data: Any, renderer: Any, camera: Any, positions: Any, step: int, colour: Any):
    if not np.isfinite(positions[: step + 1]).all() or np.abs(positions[step]).max() > 1e6:
        panel = Image.new("RGB", PANEL, PAPER)
        ImageDraw.Draw(panel).text((PANEL[0] / 2, PANEL[1] / 2), "diverged", INK, font=font(15), anchor="mm")
        return panel
    _pose(mujoco, model, data, positions[step])
    model.geom_rgba[model.geom_bodyid > 0, :3] = np.asarray(colour) / 255
    camera.lookat[:2] = data.xpos[1][:2]  # along with the body, but not up and down with it: jumps should be seen
    renderer.update_scene(data, camera)
    for flag in (mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_HAZE):
        renderer.scene.flags[flag] = 0
    return Image.fromarray(renderer.render())


def _write(panel: Image.Image, label: str, step: int, last: int) -> None:
    """Burn the label and the step in."""
    draw = ImageDraw.Draw(panel, "RGBA")
    draw.rectangle((0, 0, PANEL[0], BAR), fill=(*PAPER, 225))
    draw.text((9, BAR / 2), label, INK, font=font(15), anchor="lm")
    draw.text((PANEL[0] - 9, BAR / 2), f"step {step:>3} / {last}", INK, font=font(13), anchor="rm")
    draw.rectangle((0, 0, PANEL[0] - 1, PANEL[1] - 1), outline=(*PAPER, 255))


def _write_pace(picture: Image.Image, seconds: float, slow: float, *, free: bool) -> None:
    """Burn the time and the pace of the film in: where the last panel's place is free there, else in the first one."""
    draw = ImageDraw.Draw(picture)
    paces = [f"shown {slow:.2g} times slower than it happens"] if slow > 1.05 else []
    if free:
        middle = picture.width - PANEL[0] / 2, picture.height - PANEL[1] / 2
        draw.text(middle, "\n".join([f"{seconds:.2f} s", *paces]), INK, font=font(14), anchor="mm", align="center")
    else:
        text = ", ".join([f"{seconds:.2f} s", *paces])
        draw.text((9, PANEL[1] - 12), text, INK, font=font(12), anchor="lm")


def font(size: int) -> Any:
    """The font of labels."""
    return ImageFont.load_default(size)


def _soften(model: Any) -> None:
    """A pale ground without end, so that the body stands out and the file stays small; nothing that costs time."""
    model.vis.quality.offsamples = 4
    model.vis.quality.shadowsize = 0
    model.vis.headlight.ambient[:] = 0.45
    _extend_ground(model)
    model.geom_matid[model.geom_bodyid > 0] = -1
    if model.ntexdata:
        model.tex_data[:] = 205 + (model.tex_data.astype(np.float64) * (40 / 255)).astype(np.uint8)
    if model.nmat:
        model.mat_reflectance[:] = 0
        model.mat_rgba[:] = (1, 1, 1, 1)


def _extend_ground(model: Any) -> None:
    """Let planes reach to the horizon, wherever the body has got to, with tiles as large as they were."""
    import mujoco as mujoco_  # its stubs lack some names

    mujoco: Any = mujoco_
    for ground in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE):
        material, width = model.geom_matid[ground], 2 * model.geom_size[ground, :2]
        if material >= 0 and (width > 0).all() and not model.mat_texuniform[material]:
            model.mat_texrepeat[material] /= width  # now counted per metre
            model.mat_texuniform[material] = True
        model.geom_size[ground, :2] = 0  # MuJoCo's way to say without end


if __name__ == "__main__":
    if sys.platform == "linux":
        os.environ.setdefault("MUJOCO_GL", "egl")
    main()
