"""The videos of a page: they are rendered while the rest of the report is computed, and collected at the end."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from koopax._errors import KoopaxError
from koopax.data.episodes import Episodes
from koopax.reporting.samples import Measured, Samples
from koopax.reporting.video import Rendering, panels, rendering_of

PANELS = 3
"""Models in a video, besides the true motion."""


class Films:
    """Videos of the first sample, and of the window that the most accurate of the models shown predicts worst."""

    def __init__(self, test: Episodes, samples: Samples, tested: Sequence[Measured]) -> None:
        shown = tested[:PANELS]
        labelled = [(group.label, samples.predicted[group.number].states) for group in shown]
        best = min(shown, key=lambda group: np.mean(group.errors))
        self._renderings: list[tuple[str, Rendering]] = []
        self._failure = ""
        for place in dict.fromkeys((0, samples.chosen.index(best.worst))):
            try:
                rendering = rendering_of(test, panels(samples.values, place, labelled))
            except (KoopaxError, OSError) as error:
                self._failure = f"No video: {error}"
            else:
                self._renderings.append((samples.texts[place], rendering))

    def result(self) -> dict[str, Any]:
        """The `videos`, as base64, once they are there, and a `video_note` where one is missing."""
        videos = []
        for text, rendering in self._renderings:
            try:
                videos.append({"text": text, "mp4": base64.b64encode(rendering.result()).decode()})
            except KoopaxError as error:
                self._failure = f"No video: {error}"
        return {"videos": videos} | ({"video_note": self._failure} if self._failure else {})
