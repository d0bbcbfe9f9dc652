"""A training task: which data, which model, which settings. What `koopax train` records and resumes."""

import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax

from koopax._atomic import check_place
from koopax._errors import KoopaxError, KoopaxWarning
from koopax._progress import Watcher
from koopax._untrusted import from_json, reading
from koopax.collection import load
from koopax.data.episodes import Episodes
from koopax.data.normalisation import Normaliser
from koopax.evaluation.calibration import HORIZON
from koopax.models.dynamics import DynamicsModel
from koopax.models.presets import preset
from koopax.training.config import TrainConfig
from koopax.training.ensembles import calibrate_seeds
from koopax.training.fitting import INTERRUPTED, fit, fit_seeds
from koopax.training.hosts import broadcast, is_first, several, together
from koopax.training.resources import Resources
from koopax.training.run import (
    Run,
    read_config,
    recorded_model,
    recorded_settings,
    seed_folders,
)

# Of the episodes that are not tested on: the share for validation.
VALIDATION = 0.1


@dataclass(frozen=True)
class TrainTask:
    """One model trained on one source."""

    source: str
    """What `koopax.load` takes."""
    model: str
    """Name of a preset, see `koopax.models.presets`; or auto, see `koopax.training.auto`."""
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
        if self.model != "auto":
            preset(self.model)
        if Path(self.source).exists():  # so that the run can be evaluated from anywhere
            object.__setattr__(self, "source", str(Path(self.source).absolute()))


class Splits(NamedTuple):
    """The episodes of a task."""

    train: Episodes
    validation: Episodes
    test: Episodes


def splits(task: TrainTask, *, memory_map: bool | None = None) -> Splits:
    """Episodes to train on, to validate on and to test on; the same for every model and seed."""
    return split_episodes(task, load(task.source, memory_map=memory_map, **task.source_options))


def split_episodes(task: TrainTask, episodes: Episodes) -> Splits:
    """As `splits`, of episodes that are loaded already."""
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
    watch: Watcher | None = None,
    resources: Resources = Resources(),  # noqa: B008  (frozen)
) -> Run:
    """Train the task's model, keeping everything in `folder`; `episodes` are its splits, where they are at hand.

    Ctrl-C or SIGTERM ends it with a checkpoint, and the run says so (`stopped` is "interrupted").
    """
    if folder is not None:
        check_place(folder)
    with together():
        episodes = episodes or splits(task, memory_map=resources.memory_map)
    with _told_by_the_caller():
        return fit(
            initial_model(task, task.train.seed, episodes.train, folder if resume else None),
            episodes.train,
            validation=episodes.validation,
            out=folder,
            resume=resume,
            sinks=sinks,
            data=recorded_task(task),
            watch=watch,
            progress=False,
            on_interrupt="return",
            devices=resources.devices,
            config=task.train,
        )


def run_task_seeds(
    task: TrainTask,
    count: int,
    folder: Path,
    *,
    resume: bool = False,
    sinks: tuple[str, ...] = ("jsonl",),
    watch: Watcher | None = None,
    resources: Resources = Resources(),  # noqa: B008  (frozen)
) -> list[Run]:
    """Train `count` seeds of the task's model, from its own seed on, each in a folder of its own inside `folder`."""
    if count < 1:
        raise KoopaxError(f"seeds is {count}: use 1 or more.")
    check_place(folder)
    with together():
        episodes = splits(task, memory_map=resources.memory_map)
    first = task.train.seed
    begun = folder / f"seed-{first}" if resume else None
    with _told_by_the_caller():
        runs = fit_seeds(
            [initial_model(task, first + index, episodes.train, begun) for index in range(count)],
            episodes.train,
            validation=episodes.validation,
            out=folder,
            resume=resume,
            sinks=sinks,
            data=recorded_task(task),
            watch=watch,
            progress=False,
            on_interrupt="return",
            devices=resources.devices,
            config=task.train,
        )
    if all(run.stopped != "interrupted" for run in runs):
        calibrate_seeds(folder, episodes.validation, horizon=max(HORIZON, runs[0].config.horizon or 0))
    return runs


@contextmanager
def _told_by_the_caller() -> Iterator[None]:
    """Commands and grids say in their own words that a training was interrupted."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=INTERRUPTED, category=KoopaxWarning)
        yield


def initial_model(task: TrainTask, seed: int, train: Episodes, begun: Path | None) -> DynamicsModel:
    """The untrained model of a seed; for a run that was begun as it was then, whatever the preset has become since."""
    key = jax.random.key(seed)
    if begun is None:
        return DynamicsModel.create(task.model, train, key=key, **task.model_options)
    return DynamicsModel(recorded_model(begun), Normaliser.fit(train), key=key)


def recorded_by_first(folder: Path) -> Path:
    """A folder with the records of the run in `folder` of the first process; elsewhere a copy, as disks may differ."""
    if not several():
        return folder
    records = {}
    with together():
        if is_first():
            paths = [folder / "config.json", *(seed / "config.json" for seed in seed_folders(folder))]
            records = {str(path.relative_to(folder)): path.read_text() for path in paths if path.is_file()}
            if not records:
                read_config(folder)
    records = json.loads(broadcast(json.dumps(records)))
    if is_first():
        return folder
    copy = Path(tempfile.mkdtemp(prefix="koopax-records-"))
    for name, text in records.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text)
    return copy


def recorded_task(task: TrainTask) -> dict[str, Any]:
    """What a run folder records of a task besides its settings."""
    return {name: value for name, value in asdict(task).items() if name != "train"}


def read_task_seeds(folder: Path) -> tuple[TrainTask, int] | None:
    """The task and the number of seeds in the folder of a training of several seeds; None where it is something else.

    The task's settings are those of the first seed.
    """
    seeds = seed_folders(folder)
    if not seeds:
        return None
    task, recorded = read_task(seeds[0]), read_config(seeds[0]).get("seeds")
    # All seeds count, also those whose folders were not there yet when the training was killed.
    count = recorded[1] if isinstance(recorded, list) and recorded[:1] == [task.train.seed] else len(seeds)
    return task, count


def read_task(folder: Path) -> TrainTask:
    """The task of a run folder."""
    document = read_config(folder)
    if not {"source", "model", "model_options"} <= set(document["data"]):
        raise KoopaxError(
            f"the run {str(folder)!r} does not say what it was trained on: only `koopax train` records it."
        )
    with reading(folder / "config.json", "the task of a run", "restore it, or name the data"):
        return from_json(TrainTask, {**document["data"], "train": recorded_settings(folder)})
