"""Where metrics go: JSON lines in the run folder, and TensorBoard or Weights & Biases where they are installed."""

import json
import uuid
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from koopax._atomic import new_file
from koopax._errors import KoopaxError, unknown_name


@runtime_checkable
class Sink(Protocol):
    """Something that keeps metrics."""

    def write(self, metrics: dict[str, Any]) -> None:
        """Keep one line of metrics; `metrics["step"]` is the step."""
        ...

    def close(self) -> None:
        """Flush and release."""
        ...


class JsonLines:
    """One JSON object per line in `metrics.jsonl`."""

    def __init__(self, folder: Path, *, from_step: int, lines: list[dict[str, Any]]):
        """The file begins with `lines`, those of the checkpoint that a run is resumed from."""
        del from_step
        path = folder / "metrics.jsonl"
        with new_file(path, overwrite=True) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self._path = path

    def write(self, metrics: dict[str, Any]) -> None:
        """Append a line, which can be followed while training."""
        append_line(self._path, metrics)

    def close(self) -> None:
        """Nothing is open between two lines."""


class TensorBoard:
    """Scalars for TensorBoard, in the folder `tensorboard`."""

    def __init__(self, folder: Path, *, from_step: int, lines: list[dict[str, Any]]):
        """Scalars after `from_step` are purged by TensorBoard when a run resumes."""
        del lines  # the earlier file has them
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=from_step + 1)

    def write(self, metrics: dict[str, Any]) -> None:
        """One scalar per metric."""
        for name, value in metrics.items():
            if name != "step":
                self._writer.add_scalar(name, value, int(metrics["step"]))

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class WeightsAndBiases:
    """A run in Weights & Biases; sign in with its own tools first."""

    def __init__(self, folder: Path, *, from_step: int, lines: list[dict[str, Any]]):
        """The run's id is kept in the folder, so that it is resumed and never mistaken for another."""
        del from_step, lines  # the service has them, and drops steps that it has seen
        import wandb  # pyright: ignore[reportMissingImports]

        kept = folder / "wandb-id.txt"
        if not kept.is_file():
            kept.write_text(uuid.uuid4().hex)
        self._run = wandb.init(project="koopax", name=folder.name, id=kept.read_text(), resume="allow", dir=str(folder))

    def write(self, metrics: dict[str, Any]) -> None:
        """One line of metrics."""
        self._run.log(metrics, step=int(metrics["step"]))

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


NEEDS = {
    "tensorboard": ("tensorboardX", "pip install 'koopax[report]'"),
    "wandb": ("wandb", "pip install wandb"),
}
SINKS = {"jsonl": JsonLines, "tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def check_sinks(names: tuple[str, ...]) -> None:
    """Raise unless every sink is known and installed."""
    for name in names:
        if name not in SINKS:
            raise unknown_name("metrics sink", name, list(SINKS))
        package, remedy = NEEDS.get(name, (None, None))
        if package is not None and find_spec(package) is None:
            raise KoopaxError(f"metrics for {name} need {package}, which is not installed: {remedy}.")


def open_sinks(names: tuple[str, ...], folder: Path, *, from_step: int, lines: list[dict[str, Any]]) -> list[Sink]:
    """The sinks of these names for one run folder; a resumed run gives the step and lines that it starts from."""
    return [SINKS[name](folder, from_step=from_step, lines=lines) for name in names]


def append_line(path: Path, metrics: dict[str, Any]) -> int:
    """Add a line to a metrics file; the bytes that it has then."""
    try:
        with path.open("ab") as file:
            file.write(json.dumps(metrics).encode() + b"\n")
            return file.tell()
    except OSError as error:
        raise KoopaxError(
            f"a line of metrics could not be written to {str(path)!r} ({error.strerror or error}): "
            "free some space, and resume from the last checkpoint."
        ) from error


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file; damaged ones, such as a last one that was cut off by a crash, are left out."""
    lines = []
    if path.is_file():
        # Bytes that are no text, and numbers or nestings that are too long, cost their own line only.
        for text in path.read_bytes().split(b"\n"):
            with suppress(ValueError, RecursionError):
                lines.append(json.loads(text))
    return [line for line in lines if isinstance(line, dict)]
