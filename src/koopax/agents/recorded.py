"""Reading what an agent's training has written, also by the koopax of before: one form for every agent."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from koopax._errors import KoopaxError
from koopax._untrusted import reading
from koopax.agents.run import FORMAT, METRICS, read_document
from koopax.training.metrics import read_json_lines

KINDS = ("sac", "sac-imagination", "sac-pixels", "tdmpc")
OLD_CURVE = "curve.jsonl"
OLD_NAMES = {"steps": "environment_steps", "env_steps": "environment_steps", "return_mean": "evaluation_return"}
"""What agents called these metrics before all of them used the same names."""


class Evaluation(NamedTuple):
    """One point of a return curve."""

    steps: int
    """Environment steps so far."""
    value: float
    """Mean return of the evaluation's episodes."""
    seconds: float | None
    """Wall-clock seconds so far, where they are known."""


@dataclass(frozen=True)
class RecordedRun:
    """An agent's run folder as it was found."""

    folder: Path
    """Where it is."""
    document: dict[str, Any]
    """Its config.json, in the present form."""
    metrics: list[dict[str, Any]]
    """Its lines of metrics, under the present names."""

    @property
    def kind(self) -> str:
        """The agent."""
        return self.document["kind"]

    @property
    def settings(self) -> dict[str, Any]:
        """The agent's settings."""
        return self.document["agent"]

    @property
    def name(self) -> str:
        """The agent, with its dynamics where it has a choice of them."""
        return " · ".join(str(part) for part in (self.kind, self.settings.get("dynamics")) if part)

    @property
    def task(self) -> str:
        """The environment."""
        return self.document["task"]

    @property
    def seed(self) -> int:
        """The seed of training."""
        return self.settings["seed"]

    @property
    def curve(self) -> list[Evaluation]:
        """Its evaluations; by imagined steps, where none is taken in the environment."""
        steps = "decisions" if self.kind == "sac-imagination" else "environment_steps"
        return [
            Evaluation(line[steps], float(line["evaluation_return"]), line.get("seconds"))
            for line in self.metrics
            if all(_is_number(line.get(name)) for name in ("evaluation_return", steps))
            and _is_number(line.get("seconds", 0))
        ]


def read_agent(folder: Path) -> RecordedRun:
    """Read the folder of an agent's run."""
    folder = Path(folder)
    document = read_document(folder)
    with reading(folder / "config.json", "the record of an agent's run", "restore it, or leave the run out"):
        return _read(folder, _present_form(folder, document))


def _read(folder: Path, document: dict[str, Any]) -> RecordedRun:
    if document["kind"] not in KINDS:
        raise KoopaxError(
            f"the run {str(folder)!r} is of kind {document['kind']!r}, but the agents of this koopax are "
            f"{', '.join(KINDS)}: update koopax, or name another run."
        )
    if document["format"] > FORMAT:
        raise KoopaxError(
            f"the run {str(folder)!r} has format {document['format']}, but this koopax reads up to {FORMAT}: "
            "update koopax."
        )
    path = folder / METRICS
    lines = read_json_lines(path if path.is_file() else folder / OLD_CURVE)
    run = RecordedRun(folder, document, [{OLD_NAMES.get(k, k): v for k, v in line.items()} for line in lines])
    if not (isinstance(run.task, str) and isinstance(run.seed, int)):
        raise TypeError(f"its task is {run.task!r}, its seed {run.seed!r}")
    return run


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _present_form(folder: Path, document: dict[str, Any]) -> dict[str, Any]:
    """A config.json as it is written now, of one that may be older: SAC's settings alone, or TD-MPC's in `config`."""
    if "kind" in document:
        return document
    if "critic_norm" in document and "env" in document:
        return {"format": 0, "kind": "sac", "task": document["env"], "agent": document}
    if document.get("agent") == "tdmpc" and isinstance(document.get("config"), dict):
        rest = {name: value for name, value in document.items() if name not in ("agent", "config")}
        settings = document["config"]
        return {"format": 0, "kind": "tdmpc", "task": settings["task"], "agent": settings, **rest}
    raise KoopaxError(f"{str(folder)!r} is no run folder that this koopax knows: its config.json names no kind.")
