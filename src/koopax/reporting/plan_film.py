"""A film of an agent at play, with the future that its plan foresees drawn beside what happened.

A latent has no picture of its own. What a plan foresees is shown by the frame of the episode whose latent is nearest to
the predicted one, and by the rewards that it expects, above those that came.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from koopax._atomic import new_file
from koopax.agents.tdmpc.demonstration import Demonstration
from koopax.envs.renderers import Renderers
from koopax.reporting.mp4 import FILM_RATE, write_mp4
from koopax.reporting.rendering import BAR, INK, PAPER, font

PANEL = (320, 240)
"""Width and height of a picture of the environment."""
CHART = 150
"""Height of the chart below."""
MARGIN = (56, 26, 16, 24)
"""Left, above, right and below the lines of the chart."""
PAST = 40
"""Decisions before now that the chart shows."""
FORESEEN, LATER = (0, 114, 178), (150, 155, 162)


def write_plan_film(played: Demonstration, path: Path) -> None:
    """Write the MP4 of the first episode."""
    pictures = film(played, draw(played))
    with new_file(path, overwrite=True) as temporary:
        write_mp4(temporary, pictures, (3 * PANEL[0], PANEL[1] + CHART), rate=FILM_RATE)


def draw(played: Demonstration) -> np.ndarray:
    """Pictures of the environment before the first decision and after each `[time + 1, height, width, 3]`."""
    renderers = Renderers(played.task, 1, size=16, action_repeat=played.action_repeat)
    try:
        renderers.reset({0: played.reset_seed})
        pictures = [renderers.draw(0, *PANEL)]
        for action in played.episodes[0].actions:
            renderers.step({0: action})
            pictures.append(renderers.draw(0, *PANEL))
    finally:
        renderers.close()
    return np.stack(pictures)


def film(played: Demonstration, pictures: np.ndarray) -> Iterator[np.ndarray]:
    """One picture per decision: now, later as it happened, later as planned, and rewards below."""
    rewards, length, last = played.episodes[0].rewards, played.plan_length, len(pictures) - 1
    nearest = nearest_moments(played.features, played.foreseen_features[:, -1])
    steps = f"{length} decision{'s' if length > 1 else ''}"
    for now in range(last):
        later = now + length
        picture = Image.new("RGB", (3 * PANEL[0], PANEL[1] + CHART), PAPER)
        shown = (
            (f"now: decision {now} of {last}", now),
            (f"{steps} later, as it happened", later if later <= last else None),
            (f"{steps} later, as the plan foresees", nearest[now]),
        )
        for number, (label, moment) in enumerate(shown):
            panel = Image.new("RGB", PANEL, PAPER) if moment is None else Image.fromarray(pictures[moment])
            _label(panel, label, "" if moment is not None else "the episode is over by then")
            picture.paste(panel, (PANEL[0] * number, 0))
        picture.paste(_chart(rewards, played.foreseen_rewards[now], now), (0, PANEL[1]))
        yield np.asarray(picture)


def nearest_moments(features: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The moments of an episode whose features `[points, F]` are nearest to those wanted `[time, F]`."""
    scale = features.std(axis=0) + 1e-6
    seen, sought = features / scale, np.nan_to_num(wanted / scale)
    distances = (seen**2).sum(axis=1) - 2 * sought @ seen.T
    return distances.argmin(axis=1)


def _label(panel: Image.Image, text: str, note: str) -> None:
    pen = ImageDraw.Draw(panel, "RGBA")
    pen.rectangle((0, 0, PANEL[0], BAR), fill=(*PAPER, 225))
    pen.text((9, BAR / 2), text, INK, font=font(14), anchor="lm")
    pen.text((PANEL[0] / 2, PANEL[1] / 2), note, INK, font=font(14), anchor="mm")
    pen.rectangle((0, 0, PANEL[0] - 1, PANEL[1] - 1), outline=(*PAPER, 255))


def _chart(rewards: np.ndarray, foreseen: np.ndarray, now: int) -> Image.Image:
    """Rewards before now, those that were to come, and those that the plan expects."""
    width, length = 3 * PANEL[0], len(foreseen)
    chart = Image.new("RGB", (width, CHART), PAPER)
    pen = ImageDraw.Draw(chart)
    left, above, right, below = MARGIN
    low, high = min(0.0, float(rewards.min())), max(float(rewards.max()), 1e-6)

    def place(step: int, value: float) -> tuple[float, float]:
        across = (step - now + PAST) / (PAST + length)
        up = (float(np.clip(value, low, high)) - low) / (high - low)
        return left + across * (width - left - right), CHART - below - up * (CHART - above - below)

    def line(first: int, values: np.ndarray, colour: tuple[int, int, int], thick: int) -> None:
        points = [place(first + i, value) for i, value in enumerate(np.nan_to_num(values).tolist())]
        if len(points) > 1:
            pen.line(points, fill=colour, width=thick)
        for x, y in points[-1:]:
            pen.ellipse((x - thick, y - thick, x + thick, y + thick), fill=colour)

    for value in (low, high):
        y = place(now, value)[1]
        pen.line([(left, y), (width - right, y)], fill=(225, 226, 228), width=1)
        pen.text((left - 8, y), f"{value:.2g}", INK, font=font(12), anchor="rm")
    start = max(0, now - PAST)
    line(start, rewards[start : now + 1], INK, 2)
    line(now, rewards[now : now + length], LATER, 2)
    line(now, foreseen, FORESEEN, 2)
    x = place(now, low)[0]
    pen.line([(x, above), (x, CHART - below)], fill=INK, width=1)
    for text, colour, at in (
        ("reward so far", INK, 0.0),
        ("as it happened", LATER, 0.16),
        ("as the plan foresees", FORESEEN, 0.33),
    ):
        pen.text((left + at * (width - left - right), 13), text, colour, font=font(13), anchor="lm")
    pen.text((x, CHART - 12), "now", INK, font=font(12), anchor="mm")
    return chart
