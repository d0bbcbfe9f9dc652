"""Reading run folders for a report: models and agents, with a sentence for whatever can't be used."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from koopax._errors import KoopaxError
from koopax.agents.recorded import RecordedRun, read_agent
from koopax.agents.run import read_document
from koopax.models.dynamics import DynamicsModel
from koopax.training.metrics import read_json_lines
from koopax.training.run import Run, read_config
from koopax.training.tasks import TrainTask, read_task

ORIGIN = ("versions", "commit", "machine")
"""What a config.json tells of where a run was made."""


@dataclass(frozen=True)
class Problem:
    """Something that a run lacks."""

    run: str
    """Its folder."""
    message: str
    """One sentence."""


@dataclass(frozen=True)
class ModelRun:
    """A folder that `koopax train` or `koopax.fit` wrote."""

    folder: Path
    """Where it is."""
    document: dict[str, Any]
    """Its config.json."""
    metrics: list[dict[str, Any]]
    """The lines of metrics."""
    model: DynamicsModel | None
    """The trained model, once there is one."""
    task: TrainTask | None
    """What it was trained on, where that is recorded."""

    @property
    def name(self) -> str:
        """The preset's name, or the core's."""
        return self.document["data"].get("model") or self.document["model"]["core"]

    @property
    def seed(self) -> int:
        """The seed of training."""
        return self.document["train"].get("seed", 0)


@dataclass(frozen=True)
class Runs:
    """All that was found."""

    models: list[ModelRun] = field(default_factory=list)
    agents: list[RecordedRun] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_runs(folders: Iterable[Path]) -> Runs:
    """Read run folders; a folder of run folders stands for those in it. Raises if none can be read at all."""
    found = Runs()
    for folder in _expanded(folders):
        try:
            run = read_run(folder, found.problems)
            found.agents.append(run) if isinstance(run, RecordedRun) else found.models.append(run)
        except KoopaxError as error:
            found.problems.append(Problem(str(folder), _sentence(error, folder)))
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            found.problems.append(
                Problem(str(folder), f"What it records can't be understood ({type(error).__name__}: {error}).")
            )
    if not found.models and not found.agents:
        reasons = found.problems or [Problem("", "no run folder was given.")]
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        name = f"{reasons[0].run}: " if reasons[0].run else ""
        raise KoopaxError(f"there is no run to report on{more}: {name}{reasons[0].message}")
    return found


def _expanded(folders: Iterable[Path]) -> list[Path]:
    expanded: dict[Path, None] = {}
    for folder in map(Path, folders):
        inside = [] if (folder / "config.json").exists() else sorted(folder.glob("*/config.json"))
        expanded.update(dict.fromkeys([path.parent for path in inside] or [folder]))
    return list(expanded)


def read_run(folder: Path, problems: list[Problem] | None = None) -> ModelRun | RecordedRun:
    """Read any run folder: that of a model or of an agent, which its config.json names.

    What a model's run lacks is added to `problems`; raises if there is nothing to show at all.
    """
    if not folder.is_dir():
        raise KoopaxError(f"there is no folder {str(folder)!r}: check the path.")
    document = read_document(folder)
    # Models were the only runs without a kind that have both of these.
    if document.get("kind", "model" if {"train", "model"} <= set(document) else None) == "model":
        return _read_model(folder, [] if problems is None else problems)
    run = read_agent(folder)
    if not run.curve:
        raise KoopaxError(f"{str(folder)!r} is an agent's run without evaluations yet: let it train further.")
    return run


def _read_model(folder: Path, problems: list[Problem]) -> ModelRun:
    document = read_config(folder)
    if not document["format"] >= 1:
        raise KoopaxError(f"it has format {document['format']!r}, which this koopax does not read: train it again.")
    model, task = None, None
    try:
        model = Run.load(folder).model
    except KoopaxError as error:
        problems.append(Problem(str(folder), _sentence(error, folder)))
    try:
        task = read_task(folder)
    except KoopaxError as error:
        problems.append(Problem(str(folder), _sentence(error, folder)))
    run = ModelRun(folder, document, read_json_lines(folder / "metrics.jsonl"), model, task)
    _ = run.name, run.seed, dict(document["train"])  # so that a malformed record is met here
    return run


def _sentence(error: Exception, folder: Path) -> str:
    """An error's sentence without the folder, which the page names anyway."""
    text = str(error).replace(f"the run {str(folder)!r}", "it").replace(f"{str(folder)!r} is", "it is")
    return text[:1].upper() + text[1:]
