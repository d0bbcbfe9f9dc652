"""Videos of true and predicted motion side by side, rendered by another process; see `koopax.reporting.rendering`."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from koopax._atomic import new_file
from koopax._errors import KoopaxError
from koopax._plots import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from koopax.data.episodes import Episodes
from koopax.data.windows import Windows
from koopax.evaluation.protocol import WINDOWS
from koopax.reporting.predictions import choose_windows, predict
from koopax.training.trained import model_and_test_episodes

SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
"""Colours of models, in charts and videos alike."""
TRUE_COLOUR = "#646a73"
FRAME_SECONDS = 0.1
"""Between two frames of data that does not say."""
LIMIT = 180.0
"""Seconds that a video may take."""


class Panel(NamedTuple):
    """One of the motions of a video."""

    label: str
    colour: str
    """As #rrggbb."""
    states: np.ndarray
    """Observations that follow each other [T + 1, S]."""


class Rendering:
    """A video that is being made."""

    def __init__(
        self,
        environment: str | None,
        panels: Sequence[Panel],
        *,
        image_shape: tuple[int, int, int] | None = None,
        step_seconds: float = FRAME_SECONDS,
    ) -> None:
        """Of an environment of MuJoCo's or, with an `image_shape`, of states that are frames."""
        if environment is None and image_shape is None:
            raise KoopaxError("the data does not name its environment: videos are made of MuJoCo's only.")
        of_frames = {} if image_shape is None else {"image_shape": np.array(image_shape), "step_seconds": step_seconds}
        self._folder = tempfile.TemporaryDirectory(prefix="koopax-video-")
        self._path = Path(self._folder.name) / "video.mp4"
        job = self._path.with_name("job.npz")
        np.savez(
            job,
            environment=environment or "",
            labels=np.array([panel.label for panel in panels]),
            colours=np.array([[int(panel.colour[i : i + 2], 16) for i in (1, 3, 5)] for panel in panels]),
            states=np.stack([panel.states for panel in panels]),
            **of_frames,
        )
        # -P: no file in the working folder takes the place of an installed package.
        command = [sys.executable, "-P", "-m", "koopax.reporting.rendering", str(job), str(self._path)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def result(self) -> bytes:
        """The MP4, once it is there; raises with the reason if there is none."""
        with self._folder:
            try:
                _, messages = self._process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired as error:
                self._process.kill()
                self._process.communicate()
                raise KoopaxError(f"the video took more than {LIMIT:.0f} seconds, so there is none.") from error
            if self._process.returncode or not self._path.is_file():
                lines = messages.strip().splitlines() or [f"exit code {self._process.returncode}"]
                raise KoopaxError(f"there is no video: {lines[-1]}")
            return self._path.read_bytes()


def rendering_of(episodes: Episodes, panels: Sequence[Panel]) -> Rendering:
    """A video of motions in these episodes' environment, or of their frames."""
    seconds = episodes.metadata.step_seconds or FRAME_SECONDS
    return Rendering(episodes.metadata.environment, panels, image_shape=episodes.image_shape, step_seconds=seconds)


def panels(windows: Windows, window: int, predicted: Sequence[tuple[str, ArrayLike]]) -> list[Panel]:
    """The true motion in a window, and what models of these labels predict for its states [time, window, state]."""
    true = np.asarray(windows.states[:, window])
    shown = [Panel("true motion", TRUE_COLOUR, true)]
    for number, (label, states) in enumerate(predicted):
        motion = np.concatenate([true[:1], np.asarray(states)[:, window]])
        shown.append(Panel(f"{label}, predicted", SERIES[number % len(SERIES)], motion))
    return shown


def write_video(run: Path, out: Path, *, window: int = 0, horizon: int = 100, source: str | None = None) -> None:
    """Write the MP4 of one test window of a run: what happened, and what its model predicts from the first state on.

    Args:
        run: a run folder, or a model file with a `source`.
        out: the .mp4 file.
        window: which of the fixed test windows, as numbered in the report (from 0 here).
        horizon: steps.
        source: another dataset than the run's own.
    """
    if window < 0:
        raise KoopaxError(f"window is {window}: windows are numbered from 0.")
    model, episodes = model_and_test_episodes(run, source)
    chosen = choose_windows(episodes, horizon=horizon, count=max(WINDOWS, window + 1), models=(model,))
    if window >= chosen.fixed.num_windows:
        raise KoopaxError(f"window is {window}, but there are {chosen.fixed.num_windows} of {horizon} steps.")
    one = chosen.fixed.take(slice(window, window + 1))
    shown = panels(one, 0, [(model.name, predict(model, one).states)])
    video = rendering_of(episodes, shown).result()
    with new_file(out, overwrite=True) as temporary:
        temporary.write_bytes(video)
