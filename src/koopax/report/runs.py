"""Reading run folders for a report: models and agents, with a sentence for whatever can't be used."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from koopax._errors import KoopaxError
from koopax.models.dynamics import DynamicsModel
from koopax.training.metrics import read_json_lines
from koopax.training.run import Run, read_config
from koopax.training.tasks import TrainTask, read_task

STEPS = ("environment_steps", "env_steps", "steps", "step", "decisions")
RETURNS = ("evaluation_return", "return_mean", "mean_return", "eval_return", "episode_return", "return")
"""What agents call the steps of the environment and the return of an evaluation, the best name first."""
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
class AgentRun:
    """A folder that an agent's training wrote."""

    folder: Path
    """Where it is."""
    document: dict[str, Any]
    """Its config.json."""
    curve: list[dict[str, Any]]
    """Its evaluations, one per line of metrics: `steps`, `return` and, where they are known, `seconds`."""

    @property
    def name(self) -> str:
        """The agent's name, with its dynamics where it has a choice of them."""
        settings = self.settings
        agent = settings.get("agent") or settings.get("algorithm") or ("sac" if "critic_norm" in settings else "agent")
        return " · ".join(str(part) for part in (agent, settings.get("dynamics")) if part)

    @property
    def task(self) -> str:
        """The environment."""
        return str(self.settings.get("task") or self.settings.get("env") or "unknown task")

    @property
    def seed(self) -> int:
        """The seed of training."""
        return self.settings.get("seed", 0)

    @property
    def settings(self) -> dict[str, Any]:
        """The recorded settings, wherever in the document they are."""
        nested = self.document.get("config")
        own = {name: value for name, value in self.document.items() if name not in ("config", *ORIGIN)}
        return own | (nested if isinstance(nested, dict) else {})


@dataclass(frozen=True)
class Runs:
    """All that was found."""

    models: list[ModelRun] = field(default_factory=list)
    agents: list[AgentRun] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_runs(folders: Iterable[Path]) -> Runs:
    """Read run folders; a folder of run folders stands for those in it. Raises if none can be read at all."""
    found = Runs()
    for folder in _expanded(folders):
        try:
            _read(folder, found)
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


def _read(folder: Path, found: Runs) -> None:
    if not folder.is_dir():
        raise KoopaxError(f"there is no folder {str(folder)!r}: check the path.")
    document = _json(folder / "config.json")
    curve = [] if {"train", "model"} <= set(document) else _curve(folder)
    if curve:
        found.agents.append(AgentRun(folder, document, curve))
        return
    if "train" not in document and any(folder.glob("*.jsonl")):
        raise KoopaxError("it is an agent's run without evaluations yet: let it train further.")
    document = read_config(folder)
    if not document["format"] >= 1:
        raise KoopaxError(f"it has format {document['format']!r}, which this koopax does not read: train it again.")
    model, task = None, None
    try:
        model = Run.load(folder).model
    except KoopaxError as error:
        found.problems.append(Problem(str(folder), _sentence(error, folder)))
    try:
        task = read_task(folder)
    except KoopaxError as error:
        found.problems.append(Problem(str(folder), _sentence(error, folder)))
    run = ModelRun(folder, document, read_json_lines(folder / "metrics.jsonl"), model, task)
    _ = run.name, run.seed, dict(document["train"])  # so that a malformed record is met here
    found.models.append(run)


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise KoopaxError(
            f"it is no run folder, or an incomplete one: {path.name} is missing ({error.strerror})."
        ) from error
    except ValueError as error:
        raise KoopaxError(f"its {path.name} is damaged ({error}): train the run again.") from error
    if not isinstance(document, dict):
        raise KoopaxError(f"its {path.name} holds a {type(document).__name__} instead of settings: train it again.")
    return document


def _curve(folder: Path) -> list[dict[str, Any]]:
    """The evaluations in the folder's JSON lines, under common names."""
    for path in sorted(folder.glob("*.jsonl")):
        lines = [line for line in read_json_lines(path) if isinstance(line, dict)]
        # One name for the whole file: lines without an evaluation may hold the return of an exploring episode.
        value = next((name for name in RETURNS if any(name in line for line in lines)), "")
        step = next((name for name in STEPS if any(name in line for line in lines)), "")
        curve = [
            {"steps": float(line[step]), "return": float(line[value]), "seconds": line.get("seconds")}
            for line in lines
            if isinstance(line.get(step), int | float) and isinstance(line.get(value), int | float)
        ]
        if curve:
            return curve
    return []


def _sentence(error: Exception, folder: Path) -> str:
    """An error's sentence without the folder, which the page names anyway."""
    text = str(error).replace(f"the run {str(folder)!r}", "it").replace(f"{str(folder)!r} is", "it is")
    return text[:1].upper() + text[1:]
