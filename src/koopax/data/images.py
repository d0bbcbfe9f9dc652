"""Frames: states that are pictures, as uint8 arrays [time, height, width, channels]."""

from typing import Any

import numpy as np

from koopax._errors import KoopaxError

CHANNEL_NAMES = {1: ("grey",), 3: ("red", "green", "blue"), 4: ("red", "green", "blue", "alpha")}


def frame_text(shape: tuple[int, ...]) -> str:
    """A frame's shape for people: 64×64×3."""
    return "×".join(str(size) for size in shape)


def channel_names(channels: int) -> tuple[str, ...]:
    """What the channels of a frame are called."""
    return CHANNEL_NAMES.get(channels, tuple(f"channel {i}" for i in range(channels)))


def looks_like_frames(array: Any) -> bool:
    """Whether an episode's observations are meant as pictures: they have three axes or more, or are a list of such."""
    if isinstance(array, list | tuple):
        return len(array) > 0 and getattr(array[0], "ndim", 0) >= 2
    return getattr(array, "ndim", 0) >= 3


def as_frames(array: Any, owner: str) -> np.ndarray:
    """The frames of an episode as uint8 [time, height, width, channels]; `owner` names the episode in messages."""
    if isinstance(array, list | tuple):
        array = stack_frames(array, owner)
    frames = np.asarray(array)
    if frames.ndim != 4:
        raise KoopaxError(
            f"observations of {owner} have shape {frames.shape}: give [steps, columns], or frames as [steps, height, "
            "width, channels] (grey ones have 1 channel)."
        )
    if frames.dtype != np.uint8:
        raise KoopaxError(f"the frames of {owner} are {frames.dtype}: give uint8 from 0 to 255.")
    if 0 in frames.shape[1:]:
        raise KoopaxError(f"the frames of {owner} are {frame_text(frames.shape[1:])}, so they hold no pixel.")
    return frames


def stack_frames(frames: Any, owner: str) -> np.ndarray:
    """Single frames [height, width, channels] as one array; raises on the first that is unlike the first of all."""
    first = np.asarray(frames[0])
    for number, frame in enumerate(frames):
        shape, dtype = np.shape(frame), np.asarray(frame).dtype
        if shape != first.shape:
            raise KoopaxError(
                f"frame {number} of {owner} is {frame_text(shape)}, frame 0 is {frame_text(first.shape)}: all frames "
                "need the same size."
            )
        if dtype != first.dtype:
            raise KoopaxError(
                f"frame {number} of {owner} is {dtype}, frame 0 is {first.dtype}: give all frames as uint8."
            )
    return np.stack(frames)
