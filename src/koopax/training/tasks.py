"""A training task: which data, which model, which settings. What `koopax train` records and resumes."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax

from koopax._errors import KoopaxError
from koopax.data import load
from koopax.data.episodes import Episodes
from koopax.data.normalisation import Normaliser
from koopax.models.dynamics import DynamicsModel
from koopax.models.files import config_from_json, load_model
from koopax.models.presets import preset
from koopax.training.config import TrainConfig
from koopax.training.fit import fit
from koopax.training.run import Run, read_config

# Of the episodes that are not tested on: the share for validation.
VALIDATION = 0.1


@dataclass(frozen=True)
class TrainTask:
    """One model trained on one source."""

    source: str
    """What `koopax.load` takes."""
    model: str
    """Name of a preset, see `koopax.models.presets`."""
    train: TrainConfig
    """Settings of training."""
    source_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `koopax.load`."""
    model_options: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the preset."""
    split: float = 0.8
    """Share of the episodes that is not tested on."""
    split_seed: int = 0
    """Decides which episodes are tested on; the same for every model and seed."""

    def __post_init__(self) -> None:
        preset(self.model)
        if Path(self.source).exists():  # so that the run can be evaluated from anywhere
            object.__setattr__(self, "source", str(Path(self.source).absolute()))


class Splits(NamedTuple):
    """The episodes of a task."""

    train: Episodes
    validation: Episodes
    test: Episodes


def splits(task: TrainTask) -> Splits:
    """Episodes to train on, to validate on and to test on; the same for every model and seed."""
    episodes = load(task.source, **task.source_options)
    rest, test = episodes.split(task.split, seed=task.split_seed)
    if rest.num_episodes < 2:
        raise KoopaxError(
            f"{task.source!r} has {episodes.num_episodes} episodes: training, validation and test need 3 or more."
        )
    train, validation = rest.split(1 - VALIDATION, seed=task.split_seed)
    return Splits(train, validation, test)


def run_task(
    task: TrainTask,
    folder: Path | None,
    *,
    episodes: Splits | None = None,
    resume: bool = False,
    sinks: tuple[str, ...] = ("jsonl",),
    watch: Callable[[dict[str, Any]], None] | None = None,
) -> Run:
    """Train the task's model, keeping everything in `folder`; `episodes` are its splits, where they are at hand."""
    episodes = episodes or splits(task)
    key = jax.random.key(task.train.seed)
    if resume:
        # As it was begun, whatever the preset has become since.
        config = config_from_json(read_config(folder or Path())["model"])
        model = DynamicsModel(config, Normaliser.fit(episodes.train), key=key)
    else:
        model = DynamicsModel.create(task.model, episodes.train, key=key, **task.model_options)
    return fit(
        model,
        episodes.train,
        validation=episodes.validation,
        out=folder,
        resume=resume,
        sinks=sinks,
        data={name: value for name, value in asdict(task).items() if name != "train"},
        watch=watch,
        config=task.train,
    )


def read_task(folder: Path) -> TrainTask:
    """The task of a run folder."""
    document = read_config(folder)
    if not {"source", "model", "model_options"} <= set(document["data"]):
        raise KoopaxError(
            f"the run {str(folder)!r} does not say what it was trained on: only `koopax train` records it."
        )
    data = document["data"]
    options = {name: tuple(v) if isinstance(v, list) else v for name, v in data["model_options"].items()}
    return TrainTask(**(data | {"model_options": options}), train=TrainConfig.from_json(document["train"]))


def load_trained(path: Path, *, best: bool = False) -> DynamicsModel:
    """The model of a run folder or of a model file."""
    if not path.exists():
        raise KoopaxError(f"there is no run or model file at {str(path)!r}: check the path.")
    if not path.is_dir():
        return load_model(path)
    run = Run.load(path)
    if best and run.best_model is None:
        raise KoopaxError(f"the run {str(path)!r} had no validation, so there is no best model: leave out --best.")
    return run.best_model if best and run.best_model is not None else run.model


def model_and_test_episodes(
    path: Path, source: str | None, *, best: bool = False, **options: Any
) -> tuple[DynamicsModel, Episodes]:
    """A trained model and episodes to test it on: all of `source`, or the test split of its own data."""
    model = load_trained(path, best=best)
    if source is not None:
        episodes = load(source, **options)
    elif options:
        raise KoopaxError(f"columns {options} are given without a table: name a SOURCE, or leave them out.")
    elif path.is_dir():
        episodes = splits(read_task(path)).test
    else:
        raise KoopaxError(f"the model file {str(path)!r} does not know its data: name a SOURCE to test on.")
    sizes = (model.config.state_size, model.config.action_size)
    if sizes != (episodes.state_size, episodes.action_size):
        raise KoopaxError(
            f"the model predicts states and actions of sizes {sizes}, but the data has "
            f"{(episodes.state_size, episodes.action_size)}: test it on data of the same system."
        )
    return model, episodes
