"""A folder of videos or pictures, and a table that tells which actions were taken.

    drive/
      actions.csv             one row per frame: episode, action_…, reward
      a.mp4                   the frames of episode a
      b/000.png, 001.png, …   the frames of episode b

The table is read like any other, but that it needs no states: row k of an episode belongs to its frame k, and the
action in the last row, which led nowhere, is not used.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from koopax._errors import KoopaxError
from koopax.data.episodes import Episodes
from koopax.data.images import frame_text, stack_frames
from koopax.data.sources import table
from koopax.data.sources.table import Names

_TABLES = (".csv", ".parquet")
_VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".gif")
_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_GREY = ("1", "L", "LA")
_COLOUR = ("P", "RGB", "RGBA", "CMYK", "YCbCr")
_INSTALL = "pip install 'koopax[pixels]'"


def is_folder(path: Path) -> bool:
    """Whether the path is a folder with a table in it."""
    return bool(_tables(path))


def read(
    path: Path,
    *,
    episode: str | None = None,
    action: Names = None,
    reward: str | None = None,
    time: str | None = None,
    step_seconds: float | None = None,
    size: int | None = None,
) -> Iterator[Episodes]:
    """Episodes of a folder, one at a time.

    Args:
        path: the folder.
        episode, action, reward, time, step_seconds: columns of the table, see `koopax.data.sources.table.read`.
        size: scale the frames to squares of so many pixels to a side; as they are by default.
    """
    steps, names = table.read_named(_table(path), episode, "none", action, reward, time, step_seconds)
    first: tuple[int, ...] | None = None
    for index, name in enumerate(names):
        frames = _frames(path, name, size)
        rows = int(steps.lengths[index]) + 1
        if len(frames) != rows:
            raise KoopaxError(
                f"episode {name!r} of {str(path)!r} has {len(frames)} frames and {rows} rows in the table: give one "
                "row per frame, the last one with an empty action."
            )
        first = first or frames.shape[1:]
        if frames.shape[1:] != first:
            raise KoopaxError(
                f"the frames of episode {name!r} of {str(path)!r} are {frame_text(frames.shape[1:])}, those of "
                f"{names[0]!r} {frame_text(first)}: give all the same size, or scale them by size= (--size)."
            )
        yield replace(steps[[index]], observations=frames)


def size_in_memory(path: Path, *, size: int | None = None, **columns: Any) -> int:
    """Bytes of all frames, if they are like the first one."""
    options = {name: columns.get(name) for name in ("episode", "action", "reward", "time", "step_seconds")}
    steps, names = table.read_named(_table(path), state="none", **options)
    return int(steps.starts[-1]) * next(_pictures(path, names[0], size)).nbytes


def _tables(path: Path) -> list[Path]:
    return sorted(file for file in path.iterdir() if file.suffix.lower() in _TABLES and file.is_file())


def _table(path: Path) -> Path:
    tables = _tables(path)
    if len(tables) > 1:
        raise KoopaxError(
            f"{str(path)!r} holds the tables {', '.join(file.name for file in tables)}: leave the one with the actions."
        )
    return tables[0]


def _frames(path: Path, name: str, size: int | None) -> np.ndarray:
    """All frames of an episode, uint8 [time, height, width, channels]."""
    return stack_frames(list(_pictures(path, name, size)), f"episode {name!r} of {str(path)!r}")


def _pictures(path: Path, name: str, size: int | None) -> Iterator[np.ndarray]:
    if size is not None and size < 1:
        raise KoopaxError(f"frames of {size} pixels to a side have none: give a size of 1 or more.")
    if Path(name).name != name:
        raise KoopaxError(f"{name!r} names no frames in {str(path)!r}: call episodes by names without slashes or dots.")
    if (path / name).is_dir():
        yield from _read_pictures(_numbered(path / name), size)
        return
    videos = [path / f"{name}{suffix}" for suffix in _VIDEOS if (path / f"{name}{suffix}").is_file()]
    if not videos:
        raise KoopaxError(
            f"there are no frames of episode {name!r} in {str(path)!r}: put a video {name}.mp4, or a folder {name} of "
            "pictures, beside the table."
        )
    yield from _read_video(videos[0], size)


def _numbered(folder: Path) -> list[Path]:
    """The pictures of a folder in the order of the last number in their names, none of which may be left out."""
    files = [file for file in folder.iterdir() if file.suffix.lower() in _PICTURES]
    if not files:
        raise KoopaxError(f"{str(folder)!r} holds no pictures: they end in {', '.join(_PICTURES)}.")
    numbers = {file: int(found[-1]) for file in files if (found := re.findall(r"\d+", file.stem))}
    if len(numbers) < len(files):
        return sorted(files)
    files.sort(key=lambda file: (numbers[file], file.name))
    gaps = np.diff([numbers[file] for file in files])
    if len(gaps) and gaps.max() > gaps.min():
        before = int(np.argmax(gaps > gaps.min()))
        raise KoopaxError(
            f"a frame is missing in {str(folder)!r} between {files[before].name} and {files[before + 1].name}: restore "
            "it, or cut the episode there."
        )
    return files


def _read_pictures(files: list[Path], size: int | None) -> Iterator[np.ndarray]:
    try:
        from PIL import Image
    except ImportError as error:
        raise KoopaxError(f"pictures are read by Pillow, which is not installed: {_INSTALL}.") from error
    for file in files:
        try:
            with Image.open(file) as picture:
                if picture.mode not in (*_GREY, *_COLOUR):
                    raise KoopaxError(f"{str(file)!r} has pixels of the kind {picture.mode!r}: give 8 bits a channel.")
                decoded = picture.convert("L" if picture.mode in _GREY else "RGB")
        except OSError as error:
            raise KoopaxError(f"{str(file)!r} is not a readable picture ({error}): write it again.") from error
        yield _array(decoded, size)


def _read_video(file: Path, size: int | None) -> Iterator[np.ndarray]:
    try:
        import imageio_ffmpeg
        from PIL import Image
    except ImportError as error:
        raise KoopaxError(f"videos are read by imageio-ffmpeg, which is not installed: {_INSTALL}.") from error
    # Every frame once, whatever times the file gives them.
    frames = imageio_ffmpeg.read_frames(str(file), output_params=["-fps_mode", "passthrough"])
    try:
        width, height = next(frames)["size"]  # type: ignore[index]  # what comes first describes the video
        for frame in frames:
            yield _array(Image.frombuffer("RGB", (width, height), frame), size)  # type: ignore[arg-type]
    except (OSError, RuntimeError, StopIteration) as error:
        reason = str(error).strip().splitlines()[-1:] or ["it is empty"]
        raise KoopaxError(f"{str(file)!r} is not a readable video ({reason[0]}): write it again.") from error
    finally:
        frames.close()


def _array(picture: Any, size: int | None) -> np.ndarray:
    from PIL.Image import Resampling

    if size is not None and picture.size != (size, size):
        picture = picture.resize((size, size), Resampling.BOX)
    pixels = np.array(picture)
    return pixels if pixels.ndim == 3 else pixels[..., None]
