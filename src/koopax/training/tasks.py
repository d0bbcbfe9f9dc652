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
from koopax.data.fingerprint import fingerprint
from koopax.data.normalisation import Normaliser
from koopax.evaluation.calibration import HORIZON
from koopax.models.dynamics import DynamicsModel
from koopax.models.ensemble import AnyModel
from koopax.models.files import load_model
from koopax.models.presets import preset
from koopax.training.config import TrainConfig
from koopax.training.ensembles import calibrate_seeds, load_ensemble
from koopax.training.fitting import INTERRUPTED, fit, fit_seeds
from koopax.training.hosts import broadcast, is_first, several, together
from koopax.training.regression import dmdc_reference
from koopax.training.resources import Resources
from koopax.training.run import (
    BEST,
    Run,
    read_config,
    recorded_model,
    recorded_settings,
    same_fingerprint,
    seed_folders,
)

# Files whose columns have names.
TABLES = (".csv", ".parquet")
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


def load_trained(path: Path, *, best: bool = False) -> AnyModel:
    """The model of a run folder or of a model file; of a training of several seeds the ensemble of them."""
    if not path.exists():
        raise KoopaxError(f"there is no run or model file at {str(path)!r}: check the path.")
    if not path.is_dir():
        return load_model(path)
    if is_ensemble(path):
        return load_ensemble(path, best=best)
    if not best:
        return Run.load(path).model
    if not (path / BEST).is_file():
        raise KoopaxError(f"the run {str(path)!r} had no validation, so there is no best model: leave out --best.")
    return load_model(path / BEST)


def load_one(path: Path, *, best: bool = False) -> DynamicsModel:
    """As `load_trained`, where one model is needed and several seeds won't do."""
    model = load_trained(path, best=best)
    if not isinstance(model, DynamicsModel):
        raise KoopaxError(f"{str(path)!r} holds the runs of several seeds: name one, such as {seed_folders(path)[0]}.")
    return model


def is_ensemble(path: Path) -> bool:
    """Whether a folder holds a training of several seeds."""
    return not (path / "config.json").is_file() and bool(seed_folders(path))


def model_and_test_episodes(
    path: Path, source: str | None, *, best: bool = False, **options: Any
) -> tuple[AnyModel, Episodes]:
    """A trained model and episodes to test it on, none of which it was trained on.

    Without a `source` they are the test split of the run's own data; so they are where `source` holds the same episodes
    under whatever name. Of any other source they are all there are. A table is read by the columns that the run's own
    table was read by, where `options` name no others.
    """
    model = load_trained(path, best=best)
    path = seed_folders(path)[0] if is_ensemble(path) else path  # all seeds have the same data
    if source is not None:
        episodes = load(source, **_columns_of(path, source) | options)
        if path.is_dir():
            episodes = _held_out(path, source, episodes)
    elif options:
        raise KoopaxError(f"columns {options} are given without a table: name a SOURCE, or leave them out.")
    elif path.is_dir():
        episodes = _test_episodes(path)
    else:
        raise KoopaxError(f"the model file {str(path)!r} does not know its data: name a SOURCE to test on.")
    sizes = (model.config.state_size, model.config.action_size)
    if sizes != (episodes.state_size, episodes.action_size):
        raise KoopaxError(
            f"the model predicts states and actions of sizes {sizes}, but the data has "
            f"{(episodes.state_size, episodes.action_size)}: test it on data of the same system."
        )
    return model, episodes


def _columns_of(path: Path, source: str) -> dict[str, Any]:
    """Which columns are what in a run's own table, for another table; nothing for anything else."""
    if not path.is_dir() or Path(source).suffix.lower() not in TABLES:
        return {}
    try:
        task = read_task(path)
    except KoopaxError:  # trained by `koopax.fit`, which does not know of columns
        return {}
    return dict(task.source_options) if Path(task.source).suffix.lower() in TABLES else {}


def reference_of(path: Path, model: AnyModel) -> dict[str, DynamicsModel]:
    """DMDc of the episodes that a run was trained on, by name; nothing where they are not at hand, or it is that."""
    if not path.is_dir() or model.config.name == "dmdc":
        return {}
    path = seed_folders(path)[0] if is_ensemble(path) else path
    try:
        episodes = splits(read_task(path))
    except KoopaxError:
        return {}
    of_images = episodes.train.image_shape is not None
    if of_images or not same_fingerprint(read_config(path), fingerprint(episodes.train)):
        return {}
    return {"dmdc": dmdc_reference(episodes.train, episodes.validation, history=model.config.history)}


def _test_episodes(folder: Path) -> Episodes:
    """The test split of a run's own data, if that is still what it was."""
    task = read_task(folder)
    found = splits(task)
    check_unchanged(folder, task.source, fingerprint(found.train))
    return found.test


def check_unchanged(folder: Path, source: str, train_fingerprint: str) -> None:
    """Raise unless a run was trained on the episodes of this fingerprint."""
    if not same_fingerprint(read_config(folder), train_fingerprint):
        raise KoopaxError(
            f"{source!r} has changed since {str(folder)!r} was trained on it, so that its test episodes may be "
            "among those trained on: restore it, or name other data as SOURCE."
        )


def _held_out(folder: Path, source: str, episodes: Episodes) -> Episodes:
    """Of `episodes` the test split, if a run was trained on them, else all; says which."""
    document = read_config(folder)
    if document.get("fingerprint") is None:
        return episodes
    if same_fingerprint(document, fingerprint(episodes)):
        raise KoopaxError(f"{source!r} holds the very episodes that {str(folder)!r} was trained on: name others.")
    try:
        found = split_episodes(read_task(folder), episodes)
    except KoopaxError:  # trained by `koopax.fit`, which does not know of a split, or too few episodes to split
        return episodes
    if same_fingerprint(document, fingerprint(found.train)):
        count = f"the {found.test.num_episodes} of its {episodes.num_episodes} episodes that were held out"
        note, episodes = f"is what {str(folder)!r} was trained on: tested on {count}.", found.test
    else:
        note = f"is not the data that {str(folder)!r} was trained on: tested on all {episodes.num_episodes} episodes."
    warnings.warn(f"{source!r} {note}", KoopaxWarning, stacklevel=3)
    return episodes
