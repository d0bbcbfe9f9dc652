"""Intervals around a prediction that hold what is true as often as they say: split conformal prediction.

A score is how far a prediction was off, |s − ŝ| in units of a scale that the model gives (the training data's standard
deviation, the deviation of a stochastic core, or what the members of an ensemble make of it). On episodes that nobody
trained on there are scores of n windows at each step k and in each column c, and

    ŝ_{t+k,c} ± scale_{t+k,c} · (the ⌈n · level · (1 + 1/m)⌉-th smallest score of step k and column c)

holds the next one with a chance of at least `level`, exactly so where windows are exchangeable and m = n: the finite
sample correction of conformal prediction. Windows of one episode are alike, and neighbours overlap. So m is the number
of independent windows that they are worth: what makes the variance of the mean coverage over independent windows,
p (1 − p) / m, the one that is seen between whole episodes, which is resampling by episodes in closed form.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError, KoopaxWarning
from koopax._types import Array, Float
from koopax.models.buckets import as_array, in_buckets, is_traced, on_host
from koopax.models.examples import as_states, whole_history

# Levels whose scores are kept, with all there are between them by interpolation; 1 is the largest score there was.
LEVELS = np.unique(
    np.round(np.concatenate([np.arange(0.05, 0.5, 0.05), np.arange(0.5, 1, 0.02), [0.95, 0.975, 0.99, 0.995, 1]]), 4)
)
# The coverage at which windows are counted.
COUNTED_AT = 0.9
NOT_CALIBRATED = (
    "this model was never calibrated, so it knows no intervals: train it with validation episodes, or use "
    "koopax.calibrate(model, episodes) with episodes that it was not trained on."
)


class Calibration(eqx.Module):
    """Scores by level, step and column: the columns of the state, then the reward. Part of a model and of its file."""

    scores: Float[Array, "levels horizon column"]
    """The corrected quantiles at `LEVELS`, in units of the model's scale; NaN in the column of rewards without any."""
    effective: Float[Array, ""]
    """m, the number of independent windows that they are from."""

    @property
    def horizon(self) -> int:
        """The steps that were calibrated."""
        return self.scores.shape[1]

    @property
    def promised(self) -> float:
        """The highest level that so many windows can promise, m / (m + 1)."""
        return float(self.effective / (self.effective + 1))

    @classmethod
    def fit(cls, scores: np.ndarray, episode: np.ndarray, *, most: float | None = None) -> "Calibration":
        """From scores `[window, horizon, column]`, the windows of one episode having the same number `[window]`.

        `most` is an upper bound of m where it is known better, as for windows of a single episode.
        """
        ordered = np.sort(np.where(np.isnan(scores), np.inf, scores), axis=0)
        effective = effective_number(scores, episode) if most is None else min(float(len(scores)), most)
        ranks = [conformal_rank(level, len(scores), effective) for level in LEVELS]
        return cls(jnp.asarray(ordered[np.array(ranks) - 1], jnp.float32), jnp.asarray(effective, jnp.float32))

    @classmethod
    def unit(cls, horizon: int, columns: int) -> "Calibration":
        """The one whose intervals are one scale wide on each side, at any level."""
        return cls(jnp.ones((len(LEVELS), horizon, columns)), jnp.asarray(jnp.inf))

    def widths(self, level: float, steps: int) -> Float[Array | np.ndarray, "steps column"]:
        """Half the width of intervals at the first steps, in units of the model's scale."""
        if level <= LEVELS[0]:
            return self.scores[0, :steps]
        above = int(np.searchsorted(LEVELS, level))
        share = (level - LEVELS[above - 1]) / (LEVELS[above] - LEVELS[above - 1])
        if share == 1:  # also where a score is infinite
            return self.scores[above, :steps]
        return (1 - share) * self.scores[above - 1, :steps] + share * self.scores[above, :steps]


def conformal_rank(level: float, count: int, effective: float) -> int:
    """⌈n · level · (1 + 1/m)⌉, or n where there are too few windows for the level."""
    exact = count * level * (1 + 1 / effective)
    return min(count, max(1, math.ceil(exact - 1e-9 * count)))


def effective_number(scores: np.ndarray, episode: np.ndarray) -> float:
    """m of windows with scores `[window, …]`: p (1 − p) over the variance of the mean coverage between episodes.

    With w_e the share of episode e's windows among all and p_e its coverage, that is Σ w_e² (p_e − p)² K / (K − 1).
    It is never less than the number of episodes, 1 / Σ w_e², nor more than that of windows.
    """
    _, number = np.unique(episode, return_inverse=True)
    windows = np.bincount(number)
    share = windows / len(scores)
    fewest = 1 / float((share**2).sum())
    if len(windows) < 2:
        return 1.0
    flat = scores.reshape(len(scores), -1)
    flat = flat[:, np.isfinite(flat).all(0)]
    if flat.shape[1] == 0:
        return fewest
    covered = flat <= np.quantile(flat, COUNTED_AT, axis=0)
    by_episode = np.zeros((len(windows), flat.shape[1]))
    np.add.at(by_episode, number, covered)
    by_episode /= windows[:, None]
    mean = covered.mean(0)
    between = (share[:, None] ** 2 * (by_episode - mean) ** 2).sum(0) * len(windows) / (len(windows) - 1)
    if not between.mean() > 0:  # too few to tell
        return fewest
    return float(np.clip((mean * (1 - mean)).mean() / between.mean(), fewest, len(scores)))


@runtime_checkable
class Predictor(Protocol):
    """What intervals are put around: a model or an ensemble."""

    @property
    def calibration(self) -> Calibration | None:
        """Of the intervals, where they are known."""
        ...


def check_level(level: float) -> None:
    """Raise unless a level is a share between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise KoopaxError(f"level is {level!r}: use a share between 0 and 1, such as 0.9.")


def calibration_for(model: Predictor, level: float, steps: int) -> Calibration:
    """The calibration of a model that is asked for intervals of a level over so many steps; raises if it has none."""
    check_level(level)
    found = model.calibration
    if found is None:
        raise KoopaxError(NOT_CALIBRATED)
    if steps > found.horizon:
        raise KoopaxError(
            f"intervals are asked for over {steps} steps, but were calibrated over {found.horizon}: predict fewer, or "
            f"use koopax.calibrate(model, episodes, horizon={steps})."
        )
    return found


def check_returns(model: Any, reencode_every: Any) -> None:
    """Raise where a model is asked for intervals with other returns to its encoder than it was calibrated with."""
    if reencode_every is not None and model.steps_between_returns(reencode_every) != model.config.reencode_every:
        raise KoopaxError(
            f"reencode_every is {reencode_every!r}, but intervals were calibrated with the model's own returns to its "
            "encoder: leave it out, or use koopax.calibrate on model.with_reencoding(…)."
        )


def warn_of_few(calibration: Calibration, level: float) -> None:
    """Say so where there were too few windows to promise a level."""
    if level > calibration.promised + 1e-6:
        warnings.warn(
            f"the calibration is worth {float(calibration.effective):.0f} independent windows, which can promise a "
            f"level up to {calibration.promised:.2f}: at {level:g} the intervals are as wide as the largest errors "
            "that were seen, and may hold less.",
            KoopaxWarning,
            stacklevel=3,
        )


def rollout_with_band(model: Any, rollout: Callable[..., Any], given: dict[str, Any], level: float) -> Any:
    """What a DynamicsModel's `rollout` or `rollouts` predicts with the arguments `given`, and intervals around it."""
    check_returns(model, given["reencode_every"])
    calibration = calibration_for(model, level, np.shape(given["actions"])[-2])
    if not is_traced(calibration):
        warn_of_few(calibration, level)
    of_state, of_reward = model.normaliser.state_std, model.normaliser.reward_std
    if model.noise is None:
        return with_band(rollout(**given), calibration, level, (of_state, of_reward))
    found = rollout(**given | {"return_latents": True})
    sure = _deviations(model, given, found.latents)
    scale = on_host(lambda sure, *of: (of[0] * sure[..., :-1], of[1] * sure[..., -1]), sure, of_state, of_reward)
    banded = with_band(found, calibration, level, scale)
    return banded if given["return_latents"] else banded._replace(latents=None)


def _deviations(model: Any, given: dict[str, Any], latents: Array) -> Float[Array, "*batch time output"]:
    """σ of a stochastic model at every step of a rollout or a batch, normalised."""
    states, batch = as_states(model.config, given.get("state", given.get("states"))), latents.ndim - 2
    past_actions, durations = (None if o is None else as_array(o) for o in (given["past_actions"], given["durations"]))
    if is_traced(model, states, past_actions, latents, durations):
        return _deviate(model, states, past_actions, latents, durations)
    # The latents take the place of actions: they have a row for each step as well.
    states = whole_history(model.config, states, batch)
    return in_buckets(_deviate, model, states, past_actions, latents, durations)


def _deviate(model: Any, states: Array, past_actions: Array | None, latents: Array, durations: Array | None) -> Array:
    def one(state: Array, past: Array | None, own: Array, lengths: Array | None) -> Array:
        return model.noise.deviations(model.core, model.decoder, model.encode(state, past), own, lengths)

    return (one if latents.ndim == 2 else jax.vmap(one))(states, past_actions, latents, durations)


def with_band(found: Any, calibration: Calibration, level: float, scale: tuple[Array, Array]) -> Any:
    """A prediction of one rollout or a batch, with its intervals.

    `scale` is that of states `[…, time, state]` and of rewards `[…, time]`, or what is broadcast to that.
    """

    def bounds(states: Any, rewards: Any, calibration: Calibration, scale: tuple[Any, Any]) -> tuple[Any, ...]:
        width = calibration.widths(level, rewards.shape[-1])
        of_states, of_rewards = scale[0] * width[:, :-1], scale[1] * width[:, -1]
        return states - of_states, states + of_states, rewards - of_rewards, rewards + of_rewards

    names = ("lower", "upper", "reward_lower", "reward_upper")
    found_bounds = on_host(bounds, found.states, found.rewards, calibration, scale)
    return found._replace(**dict(zip(names, found_bounds, strict=True)))
