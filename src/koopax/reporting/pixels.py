"""Frames as a report shows them: pictures in a video's panels, and the mean of each channel in charts.

Imports no JAX: videos are rendered in a process of its own.
"""

import numpy as np
from PIL import Image

from koopax.data.images import channel_names

Shape = tuple[int, int, int]


def channel_means(states: np.ndarray, shape: Shape) -> np.ndarray:
    """Frames `[…, pixels side by side]` as the mean of each channel `[…, channels]`."""
    return np.asarray(states, np.float32).reshape(*states.shape[:-1], -1, shape[2]).mean(axis=-2)


def channel_labels(shape: Shape) -> list[str]:
    """What these means are called."""
    return [f"{name}, mean of the frame" for name in channel_names(shape[2])]


def picture(state: np.ndarray, shape: Shape, size: tuple[int, int], paper: tuple[int, int, int]) -> Image.Image:
    """A frame as large as fits into a panel, its pixels kept square and sharp."""
    frame = np.clip(np.round(np.asarray(state, np.float32)), 0, 255).astype(np.uint8).reshape(shape)
    if shape[2] != 3:
        frame = np.repeat(frame[..., :1], 3, axis=-1)
    scale = min(size[0] / shape[1], size[1] / shape[0])
    drawn = Image.fromarray(frame).resize((round(shape[1] * scale), round(shape[0] * scale)), Image.Resampling.NEAREST)
    panel = Image.new("RGB", size, paper)
    panel.paste(drawn, ((size[0] - drawn.width) // 2, (size[1] - drawn.height) // 2))
    return panel
