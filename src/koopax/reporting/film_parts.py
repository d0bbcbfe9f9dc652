"""What films of agents are put together from: labelled panels, and a chart of rewards around the present."""

import numpy as np
from PIL import Image, ImageDraw

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


def put_label(panel: Image.Image, text: str, note: str = "") -> None:
    """Write a text along the upper edge of a panel, and a note into its middle."""
    pen = ImageDraw.Draw(panel, "RGBA")
    pen.rectangle((0, 0, PANEL[0], BAR), fill=(*PAPER, 225))
    pen.text((9, BAR / 2), text, INK, font=font(14), anchor="lm")
    pen.text((PANEL[0] / 2, PANEL[1] / 2), note, INK, font=font(14), anchor="mm")
    pen.rectangle((0, 0, PANEL[0] - 1, PANEL[1] - 1), outline=(*PAPER, 255))


def reward_chart(rewards: np.ndarray, now: int, *, ahead: int, foreseen: np.ndarray | None = None) -> Image.Image:
    """Rewards before now, those of so many steps to come, and those that a plan expects of them, if there is one."""
    width = 3 * PANEL[0]
    chart = Image.new("RGB", (width, CHART), PAPER)
    pen = ImageDraw.Draw(chart)
    left, above, right, below = MARGIN
    low, high = min(0.0, float(rewards.min())), max(float(rewards.max()), 1e-6)

    def place(step: int, value: float) -> tuple[float, float]:
        across = (step - now + PAST) / (PAST + ahead)
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
    line(now, rewards[now : now + ahead], LATER, 2)
    named = [("reward so far", INK, 0.0), ("as it happened", LATER, 0.16)]
    if foreseen is not None:
        line(now, foreseen, FORESEEN, 2)
        named.append(("as the plan foresees", FORESEEN, 0.33))
    x = place(now, low)[0]
    pen.line([(x, above), (x, CHART - below)], fill=INK, width=1)
    for text, colour, at in named:
        pen.text((left + at * (width - left - right), 13), text, colour, font=font(13), anchor="lm")
    pen.text((x, CHART - 12), "now", INK, font=font(12), anchor="mm")
    return chart
