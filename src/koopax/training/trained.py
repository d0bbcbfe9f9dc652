"""What was trained, read again: the model of a run, and episodes to test it on that it was not trained on."""

import warnings
from pathlib import Path
from typing import Any

from koopax._errors import KoopaxError, KoopaxWarning
from koopax.collection import load
from koopax.data.episodes import Episodes
from koopax.data.fingerprint import fingerprint
from koopax.models.dynamics import DynamicsModel
from koopax.models.ensemble import AnyModel
from koopax.models.files import load_model
from koopax.training.ensembles import load_ensemble
from koopax.training.regression import dmdc_reference
from koopax.training.run import BEST, Run, read_config, same_fingerprint, seed_folders
from koopax.training.tasks import read_task, split_episodes, splits

# Files whose columns have names.
TABLES = (".csv", ".parquet")


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
