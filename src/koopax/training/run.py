"""A run: a model, how it was trained, and the folder that holds both.

config.json      settings, data and its fingerprint, versions, commit, machine
metrics.jsonl    one line per `log_every` steps and per validation
model.koopax     the model after the last step
best.koopax      the model with the lowest validation loss
checkpoints/     what a resumed run starts from

A training of several seeds is a folder of runs: seed-0/, seed-1/, …
"""

import json
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from koopax._atomic import new_file
from koopax._errors import KoopaxError, KoopaxWarning
from koopax._provenance import provenance
from koopax._untrusted import from_json, in_line, one_line, read_json, reading
from koopax.models.config import ModelConfig
from koopax.models.dynamics import DynamicsModel
from koopax.models.files import RUN_MODEL, config_from_json, load_model
from koopax.training.choice import Trial
from koopax.training.config import TrainConfig
from koopax.training.metrics import read_json_lines

FORMAT = 1
BEST = "best.koopax"
DIVERGED = "diverged"
# Of a run that has diverged, what may change besides when it is resumed: it goes on before the fault.
REMEDIES = ("learning_rate", "spectrum_learning_rate", "clip", "final_learning_rate")


@dataclass(frozen=True)
class Run:
    """The outcome of training."""

    model: DynamicsModel
    """The model after the last step."""
    config: TrainConfig
    """How it was trained."""
    step: int
    """Gradient steps taken."""
    seconds: float
    """Seconds of gradient steps: what a time limit counts."""
    stopped: str
    """Why training ended: "finished", "time", "patience" or "interrupted"."""
    metrics: list[dict[str, Any]] = field(default_factory=list)
    """The lines of metrics."""
    best_model: DynamicsModel | None = None
    """The model with the lowest validation loss, where there was a validation."""
    folder: Path | None = None
    """Where the run is kept, if anywhere."""
    compile_seconds: float = 0.0
    """Seconds of compilation."""
    wall_seconds: float = 0.0
    """Seconds by the clock on the wall: steps, compilation, validations and checkpoints, of all sittings."""
    trials: tuple[Trial, ...] = ()
    """The short trainings that the windows were chosen by, where the user left them open."""

    @property
    def summary(self) -> str:
        """One line: steps, seconds and why it ended."""
        ending = {"time": "time limit reached", "patience": "no longer improving"}.get(self.stopped, self.stopped)
        taken = f"{self.step} steps in {self.wall_seconds:.1f} s ({self.compile_seconds:.1f} s of it compilation)"
        return f"{taken}, {ending}"

    def __repr__(self) -> str:
        kept = "" if self.folder is None else f", in {self.folder}"
        return f"Run({self.model.config.name}: {self.summary}{kept})"

    @classmethod
    def load(cls, folder: str | Path) -> "Run":
        """Read a run folder."""
        folder = Path(folder)
        document = read_config(folder)
        if not (folder / RUN_MODEL).is_file():
            raise KoopaxError(f"the run {str(folder)!r} has no finished model: resume it with --resume {folder}.")
        outcome = recorded_outcome(folder, document)
        return cls(
            model=load_model(folder / RUN_MODEL),
            config=recorded_settings(folder),
            step=outcome.step,
            seconds=outcome.seconds,
            compile_seconds=outcome.compile_seconds,
            wall_seconds=outcome.seconds if outcome.wall_seconds is None else outcome.wall_seconds,
            stopped=outcome.stopped,
            metrics=read_json_lines(folder / "metrics.jsonl"),
            best_model=_best_model(folder / BEST),
            folder=folder,
            trials=_trials(folder, document),
        )


@dataclass(frozen=True)
class Outcome:
    """How far a run has come, as it is recorded at its end; see `Run` for the fields."""

    step: int = 0
    seconds: float = 0.0
    compile_seconds: float = 0.0
    wall_seconds: float | None = None
    stopped: str = "interrupted"


def recorded_outcome(folder: Path, document: dict[str, Any]) -> Outcome:
    """How the run of a config file ended; that of one that has not ended is interrupted at step 0."""
    with reading(folder / "config.json", "the record of a run", "restore it"):
        return from_json(Outcome, document.get("outcome", {}))


def _trials(folder: Path, document: dict[str, Any]) -> tuple[Trial, ...]:
    with reading(folder / "config.json", "the record of a run", "restore it"):
        return tuple(from_json(Trial, trial) for trial in document.get("trials", []))


def _best_model(path: Path) -> DynamicsModel | None:
    """The best model, if there is one; damage to it is no reason not to have the other."""
    try:
        return load_model(path) if path.is_file() else None
    except KoopaxError as error:
        warnings.warn(f"{error} The run is read without its best model.", KoopaxWarning, stacklevel=3)
        return None


def write_config(folder: Path, model: DynamicsModel, config: TrainConfig, about: dict[str, Any]) -> None:
    """Record what a run is, before its first step; `about` are its data."""
    document = {
        "format": FORMAT,
        "kind": "model",
        "train": asdict(config),
        "model": asdict(model.config),
        "parameters": model.num_parameters(),
        **about,
        **provenance(),
    }
    write_json(folder / "config.json", document)


def check_recorded(
    folder: Path, model: DynamicsModel, config: TrainConfig, fingerprint: str | None, *, changeable: tuple[str, ...]
) -> None:
    """Raise unless a run folder records this model, data and settings; changeable settings are recorded anew."""
    document = read_config(folder)
    if not same_fingerprint(document, fingerprint):
        raise KoopaxError(
            f"the run {str(folder)!r} was begun on other training episodes (fingerprint {document['fingerprint']}, "
            f"now {fingerprint}): resume it with the data it was begun on, or begin a new run."
        )
    if document.get("outcome", {}).get("stopped") == DIVERGED:
        changeable += REMEDIES
    given, recorded = asdict(config), asdict(recorded_settings(folder))
    pairs = {name: (value, recorded.get(name)) for name, value in given.items() if name not in changeable}
    model_now, model_then = asdict(model.config), asdict(recorded_model(folder))
    options = {**model_now.pop("core_options"), **model_now}, {**model_then.pop("core_options"), **model_then}
    pairs |= {f"the model's {name}": tuple(each.get(name) for each in options) for name in {**options[1], **options[0]}}
    for name, (now, then) in pairs.items():
        if now != then:
            raise KoopaxError(
                f"{name} is {now!r}, but the run {str(folder)!r} was begun with {then!r}: resume with that."
            )
    write_json(folder / "config.json", {**document, "train": given})


def recorded_settings(folder: Path) -> TrainConfig:
    """How the run in a folder is trained."""
    with reading(folder / "config.json", "the settings of a run", "restore it, or train into a new folder"):
        return TrainConfig.from_json(read_config(folder)["train"])


def recorded_model(folder: Path) -> ModelConfig:
    """What the model of a run is made of."""
    with reading(folder / "config.json", "the settings of a run", "restore it, or train into a new folder"):
        return config_from_json(read_config(folder)["model"])


def same_fingerprint(document: dict[str, Any], fingerprint: str | None) -> bool:
    """Whether training episodes are those that a config.json records; one without a fingerprint agrees with any."""
    return document.get("fingerprint") in (None, fingerprint)


def seed_folders(folder: Path) -> list[Path]:
    """The runs inside the folder of a training of several seeds, by seed; none where it is something else."""
    found = [path.parent for path in folder.glob("seed-*/config.json") if path.parent.name[5:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[5:]))


def write_outcome(folder: Path, outcome: dict[str, Any]) -> None:
    """Record how a run ended."""
    write_json(folder / "config.json", {**read_config(folder), "outcome": outcome})


def read_config(folder: str | Path) -> dict[str, Any]:
    """The recorded settings of a run folder."""
    path = Path(folder) / "config.json"
    if not path.is_file() and (seeds := seed_folders(Path(folder))):
        raise KoopaxError(f"{str(folder)!r} holds the runs of {len(seeds)} seeds: name one, such as {seeds[0]}.")
    try:
        document = read_json(path)
        if document["format"] > FORMAT:
            raise KoopaxError(
                f"the run {str(folder)!r} has format {document['format']}, but this koopax reads up to {FORMAT}: "
                "update koopax."
            )
        if (kind := document.get("kind", "model")) != "model":
            raise KoopaxError(
                f"the run {str(folder)!r} is of an agent ({in_line(kind)}), not of a model: name another."
            )
        for name in ("train", "model", "data"):
            if not isinstance(document[name], dict):
                raise ValueError(f"its {name} are no settings")
        if not isinstance(document.get("outcome", {}), dict):
            raise ValueError("its outcome is none")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = one_line(error)
        raise KoopaxError(f"{str(folder)!r} is not a run folder: its config.json can't be read ({why}).") from error
    return document


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file whole or not at all."""
    with new_file(path, overwrite=True) as temporary:
        temporary.write_text(json.dumps(document, indent=2) + "\n")
