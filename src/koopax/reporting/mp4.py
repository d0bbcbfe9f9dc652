"""Pictures become an MP4 that every browser plays."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

FILM_RATE = 12
"""Decisions per second of a film of an agent."""


def write_mp4(path: Path, pictures: Iterable[np.ndarray], size: tuple[int, int], *, rate: int) -> None:
    """Write uint8 pictures `[height, width, 3]` of this size, width by height and both even, as a film."""
    import imageio_ffmpeg

    writer = imageio_ffmpeg.write_frames(
        str(path),
        size,
        fps=rate,
        codec="libx264",
        pix_fmt_out="yuv420p",
        macro_block_size=2,
        quality=None,  # type: ignore[arg-type]  # CRF decides
        output_params=["-f", "mp4", "-crf", "27", "-preset", "slow", "-movflags", "+faststart", "-an"],
    )
    writer.send(None)
    try:
        for picture in pictures:
            writer.send(np.ascontiguousarray(picture))
    finally:
        writer.close()
