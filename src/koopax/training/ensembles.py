"""The seeds of a training as one model: OUT/seed-0, OUT/seed-1, … with intervals of their own in OUT/ensemble/."""

import hashlib
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from koopax._checkpoint import Checkpoint, Checkpoints
from koopax._errors import KoopaxError
from koopax.data.episodes import Episodes
from koopax.evaluation.calibration import calibrate
from koopax.models.ensemble import Ensemble
from koopax.models.files import RUN_MODEL, load_model
from koopax.models.intervals import LEVELS, Calibration
from koopax.training.run import BEST, seed_folders

INTERVALS = "ensemble"


def load_ensemble(folder: str | Path, *, best: bool = False) -> Ensemble:
    """The seeds of a training as one model, with its intervals where the training ended with them.

    Args:
        folder: of a training of several seeds.
        best: of each seed the model with the lowest validation loss, for which there are no intervals.
    """
    folder = Path(folder)
    paths = [seed / (BEST if best else RUN_MODEL) for seed in seed_folders(folder)]
    if len(paths) < 2:
        raise KoopaxError(f"{str(folder)!r} holds the runs of {len(paths)} seeds: an ensemble needs 2 or more.")
    for path in paths:
        if not path.is_file():
            raise KoopaxError(f"seed {str(path.parent)!r} has no {path.name}: resume {folder} to finish it.")
    ensemble = Ensemble([load_model(path) for path in paths])
    return ensemble if best else _with_intervals(ensemble, folder, _digests(paths))


def calibrate_seeds(folder: Path, validation: Episodes, *, horizon: int) -> None:
    """Keep the intervals of a finished training of several seeds beside them; of one seed there is nothing to keep."""
    paths = [seed / RUN_MODEL for seed in seed_folders(folder)]
    if len(paths) < 2 or not all(path.is_file() for path in paths) or validation.image_shape is not None:
        return
    steps = min(horizon, int(validation.lengths.max()))
    found = calibrate(Ensemble([load_model(path) for path in paths]), validation, horizon=steps)
    assert found.calibration is not None
    assert found.floor is not None
    parts = {"scores": found.calibration.scores, "effective": found.calibration.effective, "floor": found.floor}
    arrays = {name: np.asarray(part) for name, part in parts.items()}
    Checkpoints(folder / INTERVALS).save(Checkpoint({"members": _digests(paths)}, arrays))


def _with_intervals(ensemble: Ensemble, folder: Path, members: list[str]) -> Ensemble:
    """The ensemble with the intervals in the folder, if they are of these very models."""
    found = Checkpoints(folder / INTERVALS).load()
    if found is None or found.header.get("members") != members:
        return ensemble
    arrays = found.arrays
    if set(arrays) != {"scores", "effective", "floor"} or not _fits(arrays, ensemble.config.state_size + 1):
        raise KoopaxError(f"the intervals in {str(folder / INTERVALS)!r} are not those of its seeds: delete them.")
    calibration = Calibration(jnp.asarray(arrays["scores"]), jnp.asarray(arrays["effective"]))
    return ensemble.with_calibration(calibration, jnp.asarray(arrays["floor"]))


def _fits(arrays: dict[str, Any], columns: int) -> bool:
    scores, floor, effective = (arrays[name].shape for name in ("scores", "floor", "effective"))
    return (
        len(scores) == 3 and scores[0] == len(LEVELS) and scores[2] == columns and floor == scores[1:] and not effective
    )


def _digests(paths: list[Path]) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
