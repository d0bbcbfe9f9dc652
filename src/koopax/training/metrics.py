"""Where metrics go: JSON lines in the run folder, and TensorBoard or Weights & Biases where they are installed."""

import json
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

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

    def __init__(self, folder: Path, *, from_step: int):
        """Lines after `from_step` are dropped: a resumed run writes them again."""
        self._path = folder / "metrics.jsonl"
        kept = [line for line in read_json_lines(self._path) if line["step"] <= from_step]
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(line) + "\n" for line in kept))
        temporary.replace(self._path)
        self._file = self._path.open("a")

    def write(self, metrics: dict[str, Any]) -> None:
        """Append a line; flushed, so that it can be followed while training."""
        self._file.write(json.dumps(metrics) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """Scalars for TensorBoard, in the folder `tensorboard`."""

    def __init__(self, folder: Path, *, from_step: int):
        """Scalars after `from_step` are purged by TensorBoard when a run resumes."""
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise KoopaxError("logging to TensorBoard needs tensorboardX: pip install 'koopax[report]'.") from error
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=from_step)

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

    def __init__(self, folder: Path, *, from_step: int):
        """The run is named after the folder and resumed by that name."""
        del from_step  # the service drops steps that it has seen
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise KoopaxError("logging to Weights & Biases needs wandb: pip install wandb.") from error
        self._run = wandb.init(project="koopax", id=folder.name, resume="allow", dir=str(folder))

    def write(self, metrics: dict[str, Any]) -> None:
        """One line of metrics."""
        self._run.log(metrics, step=int(metrics["step"]))

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


SINKS = {"jsonl": JsonLines, "tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def open_sinks(names: tuple[str, ...], folder: Path, *, from_step: int) -> list[Sink]:
    """The sinks of these names for one run folder."""
    for name in names:
        if name not in SINKS:
            raise unknown_name("metrics sink", name, list(SINKS))
    return [SINKS[name](folder, from_step=from_step) for name in names]


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file; a last line that was cut off by a crash is left out."""
    lines = []
    if path.is_file():
        for text in path.read_text().splitlines():
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                break
    return lines
