"""Calibration of a model on episodes that it was not trained on, and how often its intervals then hold what happens."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError
from koopax._types import Array
from koopax.data.episodes import Episodes
from koopax.data.windows import FixedWindows, Windows, even_windows
from koopax.evaluation.errors import choose_windows, predict_windows
from koopax.evaluation.protocol import SEED, WINDOWS
from koopax.models.dynamics import DynamicsModel
from koopax.models.ensemble import AGREEMENT, AnyModel, Ensemble, floor_of
from koopax.models.intervals import LEVELS, Calibration, calibration_for, warn_of_few

HORIZON = 100
"""Steps that are calibrated, where episodes are as long and nobody asks for more."""
CALIBRATION_WINDOWS = 1000
"""Windows, evenly spread over all places where one fits."""
BATCH = 250

Model = TypeVar("Model", DynamicsModel, Ensemble)


def calibrate(
    model: Model, episodes: Episodes, *, horizon: int | None = None, windows: int = CALIBRATION_WINDOWS
) -> Model:
    """The model with intervals that keep their promise on episodes like these.

    Args:
        model: a trained one, or an ensemble.
        episodes: those it was not trained on, the more the better: validation episodes, not those it is tested on.
        horizon: steps ahead for which there are intervals; 100 by default, or as many as the longest episode has.
        windows: how many to predict, evenly spread over the episodes.
    """
    horizon = min(HORIZON, int(episodes.lengths.max())) if horizon is None else horizon
    chosen = even_windows(episodes, horizon, windows, batch_size=BATCH, past=model.past_steps)
    scores, scale = (np.concatenate(part) for part in zip(*_scores(model.with_calibration(None), chosen), strict=True))
    floor = None
    if isinstance(model, Ensemble):
        floor = floor_of(scale)
        scores, _ = _with_floor(scores, scale, floor)
    episode = np.searchsorted(episodes.starts, chosen.rows, side="right") - 1
    # The windows of a single episode are worth as many as fit into it without overlap, as far as anybody can tell.
    apart = 1 + float(np.ptp(chosen.rows)) / horizon if len(np.unique(episode)) == 1 else None
    found = Calibration.fit(scores, episode, most=apart)
    if not episodes.has_rewards:
        found = eqx.tree_at(lambda own: own.scores, found, found.scores.at[..., -1].set(jnp.nan))
    if isinstance(model, Ensemble):
        return model.with_calibration(found, jnp.asarray(floor, jnp.float32))
    return model.with_calibration(found)


def _scores(model: AnyModel, chosen: FixedWindows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Scores, and scales in units of the training data's deviation, both [window, time, column], batch by batch."""
    columns = model.config.state_size + 1
    own = (model.floor,) if isinstance(model, Ensemble) else ()
    unit = model.with_calibration(Calibration.unit(chosen.horizon, columns), *own)
    for batch in chosen:
        size = batch.rewards.shape[1]
        found = jax.device_get(_scores_of(unit, jax.tree.map(_filled, batch)))
        yield tuple(np.swapaxes(part, 0, 1)[:size] for part in found)  # type: ignore[misc]


def _with_floor(scores: np.ndarray, scale: np.ndarray, floor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores and scales of an ensemble that was without a floor, with this one."""
    raised = np.sqrt(np.maximum(scale**2 - AGREEMENT**2, 0.0) + floor**2)
    return scores * scale / raised, raised


def _filled(array: np.ndarray) -> Array:
    """A batch as large as all, so that one program is enough."""
    missing = np.repeat(array[:, :1], BATCH - array.shape[1], axis=1)
    return jnp.asarray(np.concatenate([array, missing], axis=1))


@eqx.filter_jit
def _scores_of(unit: AnyModel, windows: Windows) -> tuple[Array, Array]:
    predicted = predict_windows(unit, windows, level=0.5)
    assert predicted.upper is not None
    assert predicted.reward_upper is not None

    def joined(states: Array, rewards: Array) -> Array:
        return jnp.concatenate([states, rewards[..., None]], axis=-1)

    off = joined(jnp.abs(predicted.states - windows.states[1:]), jnp.abs(predicted.rewards - windows.rewards))
    scale = joined(predicted.upper - predicted.states, predicted.reward_upper - predicted.rewards)
    deviation = jnp.append(unit.normaliser.state_std, unit.normaliser.reward_std)
    # A column that is constant and predicted without any deviation is as it should be.
    scores = jnp.where(off == 0, 0.0, off / scale)
    return jnp.where(jnp.isnan(scores), jnp.inf, scores), scale / deviation


@dataclass(frozen=True)
class Intervals:
    """How intervals of one quantity fare on test windows; widths are in units of the training data's deviation."""

    per_step_and_column: np.ndarray
    """Share of windows whose interval holds what happened [horizon, columns]."""
    width_per_step: np.ndarray
    """Mean width over windows and columns [horizon]."""
    crps: float
    """Continuous ranked probability score of the distribution that the intervals of all levels make, normalised."""
    error: float
    """Mean squared error of the predictions, normalised."""

    @property
    def per_step(self) -> np.ndarray:
        """The mean over columns [horizon]."""
        return self.per_step_and_column.mean(axis=1)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; those that are not finite become None."""
        return {
            "per_step": _numbers(self.per_step),
            "mean_width": _numbers([self.width_per_step.mean()])[0],
            "width_per_step": _numbers(self.width_per_step),
            "per_column": _numbers(self.per_step_and_column.mean(axis=0)),
            "crps": _numbers([self.crps])[0],
        }


@dataclass(frozen=True)
class Coverage:
    """What `coverage` found."""

    level: float
    """What was promised."""
    windows: int
    """Test windows."""
    effective: float
    """Independent windows that the calibration is worth."""
    state: Intervals
    """Of the states."""
    reward: Intervals | None
    """Of the rewards; None where the test episodes have none."""

    def to_json(self) -> dict[str, Any]:
        """Under "coverage" in what `koopax evaluate --level` prints: that of states, and of rewards beside it."""
        return {
            "level": self.level,
            **self.state.to_json(),
            "reward": None if self.reward is None else self.reward.to_json(),
            "calibration_windows": round(self.effective, 1),
        }


def coverage(
    model: AnyModel,
    episodes: Episodes,
    *,
    level: float,
    horizon: int = HORIZON,
    windows: int = WINDOWS,
    seed: int = SEED,
    watch: Callable[[int, int], None] | None = None,
) -> Coverage:
    """How often the intervals of a calibrated model hold what happens in fixed windows of test episodes.

    Args:
        model: a calibrated one.
        episodes: test episodes, that it was neither trained nor calibrated on.
        level: the chance that is promised.
        horizon: steps to predict.
        windows, seed: decide the windows, which are those of `koopax.prediction_error`.
        watch: called with the windows done and the windows in all.
    """
    calibration = calibration_for(model, level, horizon)
    warn_of_few(calibration, level)
    chosen = choose_windows(episodes, horizon, count=windows, seed=seed, batch_size=BATCH, models=[model])
    return coverages(model, {"own": calibration}, chosen, level=level, watch=watch)["own"]


def coverages(
    model: AnyModel,
    calibrations: Mapping[str, Calibration],
    chosen: FixedWindows,
    *,
    level: float,
    floors: Mapping[str, np.ndarray] | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> dict[str, Coverage]:
    """As `coverage`, of several calibrations of one model, whose predictions are the same.

    `floors` are those of an ensemble's spread that go with them, by their names; see `koopax.models.ensemble`.
    """
    widths = {name: np.asarray(of.widths(level, chosen.horizon), np.float64) for name, of in calibrations.items()}
    sums: dict[str, Any] = dict.fromkeys(calibrations, 0.0)
    done = 0
    if floors:
        assert isinstance(model, Ensemble)
        model = model.with_calibration(None)  # whose scale is the spread, and AGREEMENT where there is none
    for own_scores, own_scale in _scores(model, chosen):
        for name, own in widths.items():
            scores, scale = own_scores, own_scale
            if floors and name in floors:
                scores, scale = _with_floor(own_scores, own_scale, floors[name][: chosen.horizon])
            ranked = scale * ranked_score(scores, calibrations[name])
            made = np.stack([scores <= own, 2 * own * scale, ranked, (scores * scale) ** 2])
            sums[name] = sums[name] + made.sum(1)
        done += len(own_scores)
        if watch is not None:
            watch(done, chosen.num_windows)

    def of(name: str, columns: slice) -> Intervals:
        covered, width, score, error = sums[name][:, :, columns] / done
        return Intervals(covered, width.mean(1), float(score.mean()), float(error.mean()))

    has_rewards = chosen.episodes.has_rewards
    return {
        name: Coverage(
            level,
            done,
            float(calibrations[name].effective),
            of(name, slice(-1)),
            of(name, slice(-1, None)) if has_rewards else None,
        )
        for name in calibrations
    }


def ranked_score(scores: np.ndarray, calibration: Calibration) -> np.ndarray:
    """The continuous ranked probability score in units of the scale, of scores [window, time, column].

    With w(ℓ) half the width at level ℓ and s the score it is ∫₀¹ (1 − ℓ) w(ℓ) + max(0, s − w(ℓ)) dℓ, here by the
    trapezoidal rule over the levels that are kept.
    """
    levels = np.concatenate([[0.0], LEVELS])
    table = np.asarray(calibration.scores, np.float64)[:, : scores.shape[1]]
    widths = np.concatenate([np.zeros_like(table[:1]), table])
    weights = np.zeros(len(levels))
    weights[1:] += np.diff(levels) / 2
    weights[:-1] += np.diff(levels) / 2
    total = np.zeros(scores.shape)
    for level, weight, width in zip(levels, weights, widths, strict=True):
        with np.errstate(invalid="ignore"):
            total += weight * ((1 - level) * width if level < 1 else 0.0) + weight * np.maximum(0.0, scores - width)
    return total


def _numbers(values: Any) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def calibrated_if_possible(model: DynamicsModel, validation: Episodes | None, *, horizon: int) -> DynamicsModel:
    """A trained model with intervals of its validation episodes, where there are any that a window fits into.

    Frames are left without: an interval for every pixel and step would be larger than the model.
    """
    if validation is None or validation.image_shape is not None:
        return model
    try:
        return calibrate(model, validation, horizon=min(horizon, int(validation.lengths.max())))
    except KoopaxError:  # no window
        return model
