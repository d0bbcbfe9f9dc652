"""The run folder of an agent, whichever it is.

config.json      format, kind of agent, its settings, versions, commit, machine and how it ended
metrics.jsonl    one JSON object per line, which begins with how far the run has come
checkpoints/     what a resumed run starts from

An agent brings a config (`AgentConfig`) and something that can be saved and restored (`Resumable`); everything else
about its folder is here.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from koopax._atomic import check_place, new_file
from koopax._checkpoint import Checkpoint, Checkpoints
from koopax._claim import Claim
from koopax._errors import DivergedError, KoopaxError
from koopax._interrupt import StopRequest
from koopax._provenance import provenance
from koopax._untrusted import from_json, one_line, read_json, reading
from koopax.agents.config import AgentConfig
from koopax.training.metrics import append_line, read_json_lines
from koopax.training.run import write_json

FORMAT = 1
CONFIG, METRICS, CHECKPOINTS = "config.json", "metrics.jsonl", "checkpoints"
OLD_CHECKPOINT = "checkpoint.npz"
# How often whoever watches hears of a run between two lines of metrics.
WATCH_SECONDS = 0.5

Watch = Callable[[dict[str, Any]], None]
C = TypeVar("C", bound=AgentConfig)


@runtime_checkable
class Resumable(Protocol):
    """The moving parts of an agent's training."""

    def start(self) -> None:
        """Begin with a fresh state."""
        ...

    def save(self) -> Checkpoint:
        """All that a run needs to go on bit for bit."""
        ...

    def restore(self, checkpoint: Checkpoint) -> None:
        """Return to a saved state."""
        ...


@dataclasses.dataclass
class Progress:
    """How far a run has come: the beginning of every line of metrics, and of every checkpoint's header."""

    environment_steps: int = 0
    decisions: int = 0
    updates: int = 0
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What the training of an agent leaves behind."""

    folder: Path
    """The run folder."""
    environment_steps: int
    """How far it came."""
    metrics: list[dict[str, Any]]
    """The lines of `metrics.jsonl`."""
    interrupted: bool
    """Whether it was asked to stop before its end."""


class AgentRun:
    """The run of an agent while it trains. Making one reads and checks the folder; `begin` is what writes."""

    def __init__(self, folder: Path, config: AgentConfig, *, resume: bool, watch: Watch | None = None):
        self.folder, self.config = Path(folder), config
        self.checkpoints = Checkpoints(self.folder / CHECKPOINTS)
        self.progress, self.stop = Progress(), StopRequest()
        self._watch: Watch = watch or (lambda line: None)
        self._size, self._saved, self._watched, self._started = 0, float("-inf"), float("-inf"), 0.0
        self._resume = resume
        check_place(self.folder)
        self._document = self._resumed() if resume else self._new()

    @contextlib.contextmanager
    def begin(self, training: Resumable) -> Iterator["AgentRun"]:
        """Restore the training from the newest checkpoint, if there is one, and keep the folder until the block ends.

        The first Ctrl-C or SIGTERM in the block sets `stop.requested`. How the block ended is recorded.
        """
        with Claim(self.folder):
            # Another process may have been here since the folder was looked at.
            self._document = self._resumed() if self._resume else self._new()
            with self._kept(training):
                yield self

    @contextlib.contextmanager
    def _kept(self, training: Resumable) -> Iterator[None]:
        if self.checkpoints.load(lambda checkpoint: self._restore(training, checkpoint)) is None:
            training.start()
        write_json(self.folder / CONFIG, self._document)
        # Lines that the checkpoint does not know of are written again.
        keep_beginning(self.folder / METRICS, self._size)
        self._started = time.monotonic() - self.progress.seconds
        try:
            with self.stop:
                yield
        except DivergedError:
            self._record("diverged")
            raise
        self._record("interrupted" if self.stop.requested else "finished")

    def _restore(self, training: Resumable, checkpoint: Checkpoint) -> None:
        header = checkpoint.header
        self.progress = from_json(Progress, header["progress"])
        self._size = header["size"] if "size" in header else _size_of_lines(self.folder / METRICS, header["lines"])
        if not isinstance(self._size, int) or self._size < 0:
            raise ValueError(f"its size is {self._size!r}")
        training.restore(checkpoint)

    def write(self, **metrics: Any) -> dict[str, Any]:
        """Append a line of metrics, show it to whoever watches and return it."""
        line = {**self._counters(), **metrics}
        self._size = append_line(self.folder / METRICS, line)
        self._show(line)
        return line

    def tick(self) -> None:
        """Show how far the run has come to whoever watches, unless that was a moment ago."""
        if time.monotonic() - self._watched >= WATCH_SECONDS:
            self._show(self._counters())

    def _show(self, line: dict[str, Any]) -> None:
        # `step` is what the progress of models and agents is measured by.
        self._watch({"step": self.progress.environment_steps, **line})
        self._watched = time.monotonic()

    def save(self, training: Resumable, *, at_least: float = 0.0) -> None:
        """Write a checkpoint, unless the last one is younger than that many seconds."""
        if time.monotonic() - self._saved < at_least:
            return
        own = training.save()
        self._counters()
        header = {**own.header, "progress": dataclasses.asdict(self.progress), "size": self._size}
        self.checkpoints.save(Checkpoint(header, own.arrays))
        self._saved = time.monotonic()

    def result(self) -> TrainResult:
        """What the folder holds now."""
        lines = read_json_lines(self.folder / METRICS)
        return TrainResult(self.folder, self.progress.environment_steps, lines, self.stop.requested)

    def _counters(self) -> dict[str, Any]:
        self.progress.seconds = time.monotonic() - self._started
        return {**dataclasses.asdict(self.progress), "seconds": round(self.progress.seconds, 1)}

    def _record(self, stopped: str) -> None:
        write_json(self.folder / CONFIG, {**self._document, "outcome": {"stopped": stopped, **self._counters()}})

    def _new(self) -> dict[str, Any]:
        """The document of a new run; a folder that was killed before its first checkpoint may be begun again."""
        held = (self.folder / CONFIG).exists() and read_document(self.folder).get("kind") != self.config.kind
        if held or self.checkpoints.numbers() or (self.folder / OLD_CHECKPOINT).exists():
            raise KoopaxError(f"{str(self.folder)!r} already holds a run; resume it or choose another folder.")
        return {
            "format": FORMAT,
            "kind": self.config.kind,
            "task": self.config.environment,
            "agent": dataclasses.asdict(self.config.settled()),
            **provenance(),
        }

    def _resumed(self) -> dict[str, Any]:
        """The recorded document with the settings of now; raises if one differs that must not."""
        recorded, config = read_config(self.folder, type(self.config)).settled(), self.config.settled()
        for field in dataclasses.fields(config):
            old, new = getattr(recorded, field.name), getattr(config, field.name)
            if old != new and field.name not in self.config.changeable:
                raise KoopaxError(
                    f"{field.name} is {new!r} but {str(self.folder)!r} was trained with {old!r}; resume with that."
                )
        document = {**read_document(self.folder), "agent": dataclasses.asdict(config)}
        document.pop("outcome", None)
        return document


def check_finite(metrics: dict[str, float], updates: int) -> None:
    """Raise `DivergedError` unless every metric is finite."""
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise DivergedError(f"training diverged: {name} is {value} after {updates} updates; lower learning_rate.")


def check_sizes(checkpoint: Checkpoint, sizes: tuple[int, int]) -> None:
    """Raise unless a checkpoint was written for observations and actions of these sizes."""
    if tuple(checkpoint.header["sizes"]) != sizes:
        raise KoopaxError(
            f"its observations and actions have the sizes {checkpoint.header['sizes']}, those of the task {list(sizes)}"
        )


def load_checkpoint(folder: Path) -> Checkpoint:
    """The newest whole checkpoint of a run."""
    found = Checkpoints(Path(folder) / CHECKPOINTS).load()
    if found is None:
        raise KoopaxError(f"there is no checkpoint in {str(folder)!r}; let the run train further.")
    return found


def holds_run(folder: Path) -> bool:
    """Whether an agent's training was begun there, so that it can be resumed."""
    return (Path(folder) / CONFIG).is_file()


def read_config(folder: Path, kind: type[C]) -> C:
    """The settings of the run in a folder, which must be of that kind of agent."""
    folder = Path(folder)
    if not holds_run(folder):
        raise KoopaxError(f"there is no run in {str(folder)!r}; start one there without resume.")
    document = read_document(folder)
    found = document.get("kind")
    if found is None and ((folder / OLD_CHECKPOINT).exists() or "critic_norm" in document or "config" in document):
        raise KoopaxError(
            f"the run {str(folder)!r} was begun by an older koopax, which can be reported on but not resumed: "
            "train into a new folder."
        )
    if found != kind.kind:
        raise KoopaxError(
            f"the run {str(folder)!r} is of kind {found or 'model'!r}, not {kind.kind!r}: resume it as that."
        )
    if not isinstance(document.get("format"), int) or document["format"] > FORMAT:
        raise KoopaxError(
            f"the run {str(folder)!r} has format {document.get('format')!r}, but this koopax reads up to {FORMAT}: "
            "update it."
        )
    with reading(folder / CONFIG, f"the settings of a {kind.kind} run", "restore it, or train into a new folder"):
        return kind.from_json(document["agent"])


def read_document(folder: Path) -> dict[str, Any]:
    """A run folder's config.json."""
    try:
        document = read_json(Path(folder) / CONFIG)
    except OSError as error:
        raise KoopaxError(
            f"{str(folder)!r} is no run folder, or an incomplete one: {CONFIG} is missing ({error.strerror})."
        ) from error
    except ValueError as error:
        raise KoopaxError(
            f"the run {str(folder)!r} can't be read: its {CONFIG} is damaged ({one_line(error)})."
        ) from error
    if not isinstance(document, dict):
        kind = type(document).__name__
        raise KoopaxError(f"the run {str(folder)!r} can't be read: its {CONFIG} holds a {kind} instead of settings.")
    return document


def keep_beginning(path: Path, size: int) -> None:
    """Cut a metrics file after so many bytes. What is damaged in it stays, and costs no other line."""
    content = path.read_bytes()[:size] if path.is_file() else b""
    if content and not content.endswith(b"\n"):
        content += b"\n"
    with new_file(path, overwrite=True) as temporary:
        temporary.write_bytes(content)


def _size_of_lines(path: Path, count: int) -> int:
    """The bytes of so many lines, which is what checkpoints used to count."""
    return sum(map(len, path.read_bytes().splitlines(keepends=True)[:count])) if path.is_file() else 0
