"""What is chosen on validation episodes: how long windows to train on, and when a rollout returns to the encoder.

Smooth systems are learned best from short windows by models that return to their encoder every few steps; contact-rich
data wants long windows and no returns. Nobody knows beforehand, so short trainings are tried where the user leaves it
open, and every trained model is tried with several returns, which costs a few predictions.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import DivergedError
from koopax._types import Array, Int
from koopax.data.episodes import Episodes
from koopax.data.windows import NUMBERS_AT_ONCE, Windows, fixed_windows, windows_within
from koopax.evaluation.prediction import prediction_error
from koopax.models.dynamics import DynamicsModel
from koopax.models.encoding import past_of_windows
from koopax.models.history import Past
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import SequenceDynamics, latent_of
from koopax.training.config import TrainConfig

HORIZON = 100
"""Steps of a free run that choices are made by, and of training windows where nothing is chosen."""
RETURNS = (None, 2, 5, 10, 25)
"""Steps between two returns to the encoder that a trained model is tried with; None for never."""
# A return costs time and ends the parallel part of a rollout, so it has to earn this share of the error.
WORTH = 0.98
WINDOWS = 256
# Trial trainings: steps of the windows, and between two returns; each takes this share of the training.
TRIALS = ((HORIZON, None), (20, 5), (5, 5))
TRIAL_SHARE = 0.05
# Where modes may grow, a gradient may through a window by at most exp of this.
MOST_GAIN = 5.0


@dataclass(frozen=True)
class Trial:
    """A short training, and how good its free runs are."""

    horizon: int
    """Steps of its windows."""
    reencode_every: int | None
    """Steps between two returns to the encoder that its free runs are best with; None for never."""
    error: float
    """See `free_run_error`."""
    seconds: float
    """By the clock on the wall, compilation included."""


def free_run_error(model: DynamicsModel, episodes: Episodes, *, horizon: int = HORIZON) -> float:
    """The normalised error of free runs on fixed windows; infinite where one diverges.

    Where there are rewards it is the geometric mean of the two errors: a reward that is out of a model's reach must not
    outweigh a state that is not.
    """
    found = prediction_error(model, episodes, horizon=longest(episodes, horizon), windows=WINDOWS)
    return combined([curve.normalised for curve in (found.state, found.reward) if curve is not None])


def combined(errors: Sequence[float]) -> float:
    """The geometric mean of the errors of states and rewards; infinite where one is not finite."""
    return float(np.prod(errors) ** (1 / len(errors))) if np.isfinite(errors).all() else float("inf")


def longest(episodes: Episodes, horizon: int = HORIZON) -> int:
    """The horizon, or the longest that the episodes have."""
    return min(horizon, int(episodes.lengths.max()))


def growth_of(model: DynamicsModel) -> float:
    """μ_max of a model: the rate per step up to which its modes may grow."""
    return model.core.spectrum.growth if isinstance(model.core, KoopmanCore) else 0.0


def longest_window(model: DynamicsModel, episodes: Episodes, horizon: int = HORIZON) -> int:
    """As `longest`, of windows to train a model on: shorter where its modes may grow, see `koopax.training.growth`."""
    growth = growth_of(model)
    most = max(1, int(MOST_GAIN / growth)) if growth > 0 else horizon
    return min(longest(episodes, horizon), most)


def choose_returns(model: DynamicsModel, validation: Episodes) -> tuple[DynamicsModel, float]:
    """The model with the returns to its encoder that its free runs are best with, and their error.

    A core that remembers more than its latent would forget it at every return: it never does.
    """
    if isinstance(model.core, SequenceDynamics):
        return model, free_run_error(model, validation)
    trial = ReturnTrials(validation, past=model.past_steps)
    best: tuple[int | None, float] | None = None
    for every in RETURNS:
        if every is None or every < trial.horizon:
            error = trial.error(model, every)
            if best is None or error < WORTH * best[1]:
                best = every, error
    assert best is not None  # the first one always counts
    return model.with_reencoding(best[0]), best[1]


class ReturnTrials:
    """Free runs with any number of steps between two returns, by one program for all of them.

    It steps through the windows, whereas `DynamicsModel.unroll` is parallel within a segment and compiled for one
    choice; both give the same. Only for cores that remember nothing besides their latent.
    """

    def __init__(self, episodes: Episodes, horizon: int = HORIZON, *, past: int = 0, whole: bool = False):
        """Choose the windows, once, each with so many steps before it; with `whole`, none of which is unknown."""
        self.horizon = longest(episodes, horizon)
        count = min(WINDOWS, windows_within(NUMBERS_AT_ONCE, episodes, self.horizon))
        (batch,) = fixed_windows(episodes, self.horizon, count, seed=0, batch_size=count, past=past)
        self._windows = jax.tree.map(jnp.asarray, batch if not whole else _with_whole_history(batch))
        self._has_rewards = episodes.has_rewards

    def error(self, model: DynamicsModel, every: int | None) -> float:
        """As `free_run_error`, with so many steps between two returns; None for never."""
        # The model's own returns are not used, so they must not make another program.
        found = _errors_with_returns(model.with_reencoding(None), self._windows, jnp.asarray(every or self.horizon))
        return combined([float(error) for error in found[: 1 + self._has_rewards]])


def _with_whole_history(batch: Windows) -> Windows:
    """The windows before which all is known, or all of them where there is none."""
    if batch.past_states is None:
        return batch
    known = ~np.isnan(batch.past_states).any(axis=(0, 2))
    return jax.tree.map(lambda array: array[:, known], batch) if known.any() else batch


@eqx.filter_jit
def _errors_with_returns(model: DynamicsModel, windows: Windows, every: Int[Array, ""]) -> tuple[Array, Array]:
    """Normalised errors of states and rewards."""
    scale = model.normaliser
    states, rewards = scale.normalise_state(windows.states), scale.normalise_reward(windows.rewards)
    actions = scale.normalise_action(windows.actions)
    number = jnp.arange(actions.shape[0])
    steps = (number, actions, windows.durations, states[1:], rewards)

    def core_step(latent: Array, action: Array, duration: Array | None) -> Array:
        return latent_of(model.core.step(latent, action, duration))

    def remember(past: Past, latent: Array, action: Array) -> Past:
        return model.remember(past, latent[None], action[None]) or past

    def step(carried: tuple[Array, Past], now: tuple) -> tuple[tuple[Array, Past], tuple[Array, Array]]:
        latents, past = carried
        number, actions, durations, states, rewards = now
        returning = (number > 0) & (number % every == 0)
        latents = jnp.where(returning, jax.vmap(model.reencode)(latents, past), latents)
        after = jax.vmap(core_step)(latents, actions, durations)
        predicted, expected = jax.vmap(model.read)(latents, after, actions)
        past = jax.vmap(remember)(past, after, actions)
        return (after, past), (jnp.mean((predicted - states) ** 2), jnp.mean((expected - rewards) ** 2))

    past = past_of_windows(model, windows)
    _, found = jax.lax.scan(step, (jax.vmap(model.encode_past)(past), past), steps)
    return jnp.mean(found[0]), jnp.mean(found[1])


def choose_windows(
    model: DynamicsModel,
    train: Episodes,
    validation: Episodes,
    config: TrainConfig,
    run: Callable[[DynamicsModel, TrainConfig], DynamicsModel],
) -> tuple[DynamicsModel, TrainConfig, list[Trial]]:
    """The model and the settings to train with, and the trials that they were chosen by.

    Args:
        model: untrained.
        train: the training episodes.
        validation: the episodes to choose on.
        config: with `horizon` left open.
        run: trains a model with settings and keeps nothing.
    """
    shortest = min(longest(train), longest(validation))
    best: tuple[DynamicsModel, TrainConfig] | None = None
    trials: list[Trial] = []
    for horizon, every in TRIALS:
        began = time.perf_counter()
        length = min(horizon, shortest, longest_window(model, train))
        begun = model.with_reencoding(every if every is not None and every <= length else None)
        settings = replace(config, horizon=length, validation_horizon=config.validation_horizon or shortest)
        try:
            trained, error = choose_returns(run(begun, _short(settings)), validation)
        except DivergedError:
            trained, error = begun, float("inf")
        spent = time.perf_counter() - began
        if best is None or error < WORTH * min(trial.error for trial in trials):
            best = begun, settings
        trials.append(Trial(length, trained.config.reencode_every, error, round(spent, 3)))
    assert best is not None
    return *best, trials


def _short(config: TrainConfig) -> TrainConfig:
    """The settings of a trial."""
    assert config.steps is not None  # resolved
    steps = max(20, round(TRIAL_SHARE * config.steps))
    seconds = None if config.seconds is None else TRIAL_SHARE * config.seconds
    return replace(config, steps=steps, seconds=seconds, patience=None, reencode_every="never", loss_stride=None)
