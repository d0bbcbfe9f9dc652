"""A film of an agent that learns from pixels: the environment, the frames that reach the agent, and its rewards."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from koopax._atomic import new_file
from koopax.agents.pixels.demonstration import PixelDemonstration
from koopax.reporting.film_parts import CHART, PANEL, put_label, reward_chart
from koopax.reporting.mp4 import FILM_RATE, write_mp4
from koopax.reporting.pixels import picture
from koopax.reporting.rendering import PAPER

AHEAD = 20
"""Decisions after now that the chart shows."""


def write_pixel_film(played: PixelDemonstration, path: Path) -> None:
    """Write the MP4 of the first episode."""
    with new_file(path, overwrite=True) as temporary:
        write_mp4(temporary, film(played), (3 * PANEL[0], PANEL[1] + CHART), rate=FILM_RATE)


def film(played: PixelDemonstration) -> Iterator[np.ndarray]:
    """One picture per decision: the environment, the newest and the oldest frame that the agent sees, and rewards."""
    last, (_, height, width, _) = len(played.rewards), played.frames.shape
    oldest = played.frame_stack - 1
    for now in range(last):
        shown = Image.new("RGB", (3 * PANEL[0], PANEL[1] + CHART), PAPER)
        drawn = (
            (f"decision {now} of {last}", Image.fromarray(played.pictures[now])),
            (f"what it sees, {width} by {height}", _seen(played.frames[now])),
            (f"and {oldest} decision{'s' if oldest != 1 else ''} earlier", _seen(played.frames[max(0, now - oldest)])),
        )
        for number, (label, panel) in enumerate(drawn):
            put_label(panel, label)
            shown.paste(panel, (PANEL[0] * number, 0))
        shown.paste(reward_chart(played.rewards, now, ahead=AHEAD), (0, PANEL[1]))
        yield np.asarray(shown)


def _seen(frame: np.ndarray) -> Image.Image:
    return picture(frame, frame.shape, PANEL, PAPER)
