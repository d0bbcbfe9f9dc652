"""The training loop of one seed: compile once, step, and look up from time to time."""

import math
import time
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._interrupt import StopRequest
from koopax.data.episodes import Episodes
from koopax.data.windows import WindowSampler
from koopax.models.dynamics import DynamicsModel
from koopax.training.choice import choose_returns
from koopax.training.config import TrainConfig
from koopax.training.record import Record
from koopax.training.regression import is_regression
from koopax.training.run import Run
from koopax.training.state import TrainState, initial_state, train_steps
from koopax.training.validation import Validation

# Steps that are taken in one go: so many at most, and no more than take so long, so that Ctrl-C is answered soon.
BLOCK_STEPS = 100
BLOCK_SECONDS = 1.0
# With a time limit, no more than should take this share of it.
CLOCK_SHARE = 0.01


class Programs:
    """What the seeds of a training share: the data on the device, and the compiled steps and validation."""

    def __init__(self, train: Episodes, validation: Episodes | None, config: TrainConfig, *, past: int = 0):
        """Nothing is compiled yet; windows come with so many steps before them."""
        assert config.horizon is not None  # resolved
        self.sampler = WindowSampler(train, config.horizon, past=past)
        self._validation_episodes = validation
        self.validation = None if validation is None else Validation(validation, config, past=past)
        self._config = config
        self._steps: Any = None

    def compile(self, state: TrainState, key: jax.Array) -> float:
        """Compile the steps for such a state, and the validation; the seconds it took, 0 where that was done before."""
        if self._steps is not None:
            return 0.0
        began, config = time.perf_counter(), self._config

        def advance(fixed: tuple, state: TrainState) -> TrainState:
            sampler, progress, count, key = fixed
            return train_steps(state, sampler, progress, count, config, key)

        fixed = self.sampler, *_padded([]), key
        self._steps = eqx.filter_jit(advance, donate="all-except-first").lower(fixed, state).compile()
        if self.validation is not None:
            self.validation.compile(state.model)
        return time.perf_counter() - began

    def settle(self, model: DynamicsModel) -> DynamicsModel:
        """A trained model with the returns to its encoder that serve it best, where they are to be chosen."""
        if self._config.reencode_every != "auto" or self._validation_episodes is None or is_regression(model):
            return model
        return choose_returns(model, self._validation_episodes)[0]

    def memory(self) -> Any:
        """What XLA plans to hold while the steps run."""
        assert self._steps is not None, "compile first"
        return self._steps.compiled.memory_analysis()

    def advance(self, state: TrainState, progress: Sequence[float], key: jax.Array) -> TrainState:
        """One gradient step for each value of `progress`, when it is done; the given state is used up."""
        assert self._steps is not None, "compile first"
        for begin in range(0, len(progress), BLOCK_STEPS):
            block = _padded(progress[begin : begin + BLOCK_STEPS])
            state = jax.block_until_ready(self._steps((self.sampler, *block, key), state))
        return state


def _padded(progress: Sequence[float]) -> tuple[jax.Array, jax.Array]:
    """The progress of some steps in an array that has the same size for any number of them, and that number."""
    padded = [*progress, *[0.0] * (BLOCK_STEPS - len(progress))]
    return jnp.asarray(padded, jnp.float32), jnp.asarray(len(progress), jnp.int32)


def fresh_state(model: DynamicsModel, config: TrainConfig) -> TrainState:
    """The state before the first step, with buffers of its own: steps use theirs up, and the caller keeps the model."""
    return initial_state(jax.tree.map(lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, model), config)


class Loop:
    """One seed in training: the state on the device, its record, and what time it is."""

    def __init__(self, record: Record, state: TrainState, programs: Programs, *, began: float):
        """`state` is the one that the opened record begins at; `began` is when, by `time.perf_counter`."""
        self.record = record
        self.config = record.config
        self.programs = programs
        self.state = state
        self.step = int(state.step)
        self.seconds_per_step = BLOCK_SECONDS  # not known yet: makes the first block one step
        # Away from the keys that a model with the same seed was initialised with.
        self.key = jax.random.fold_in(jax.random.key(record.config.seed), 2**31)
        self._wall_before = record.wall_seconds - began

    def run(self, stop: StopRequest) -> Run:
        """Train until an end is reached; a loss that is not finite raises `DivergedError`."""
        self.prepare(stop)
        self.advance(stop)
        return self.finish(stop)

    def prepare(self, stop: StopRequest) -> None:
        """Compile, where there is something left to train."""
        if self._ending(stop) is None:
            seconds = self.programs.compile(self.state, self.key)
            self.record.compiled(self.step, seconds)

    def finish(self, stop: StopRequest) -> Run:
        """The run at the end that is reached, with a last line of metrics, validation and checkpoint."""
        self._check_finite()
        stopped = self._ending(stop) or "finished"
        if stopped != "interrupted":
            if self.record.last_logged < self.step:
                self._log()
            if self.record.validated_at < self.step:
                self._validate()
        self._read_clock()
        return self.record.finish(self.state, stopped, self.programs.settle)

    def advance(self, stop: StopRequest, *, until: float = math.inf) -> bool:
        """Train until an end is reached or `until` seconds of training; whether an end is reached."""
        config = self.config
        while self._ending(stop) is None and self.record.seconds < until:
            count = self._block()
            began = time.perf_counter()
            self.state = self.programs.advance(self.state, self._progress(count), self.key)
            self._count(count, time.perf_counter() - began)
            if self.step % config.log_every == 0:
                self._check_finite()
                self._log()
            if self.step % config.validate_every == 0:
                self._validate()
            if self.step % config.checkpoint_every == 0:
                self._check_finite()
                self._read_clock()
                self.record.save(self.state)
        return self._ending(stop) is not None

    def _count(self, steps: int, seconds: float) -> None:
        """Steps that were taken and the time they took; what is written and validated is not training time."""
        self.step += steps
        self.record.seconds += seconds
        self.seconds_per_step = seconds / steps

    def _block(self) -> int:
        """How many steps to take before looking up: to log, validate, save or end, or just to see what time it is."""
        config, step = self.config, self.step
        assert config.steps is not None  # resolved
        wait = BLOCK_SECONDS if config.seconds is None else min(BLOCK_SECONDS, CLOCK_SHARE * config.seconds)
        due = [every - step % every for every in (config.log_every, config.validate_every, config.checkpoint_every)]
        return min(BLOCK_STEPS, max(1, int(wait / self.seconds_per_step)), config.steps - step, *due)

    def _progress(self, count: int) -> list[float]:
        """Of the next steps, from 0 to 1: the learning rate's clock. With a time limit it is what will end first."""
        config = self.config
        assert config.steps is not None  # resolved
        progress = []
        for ahead in range(count):
            done = (self.step + ahead + 1) / (config.steps + 1)
            if config.seconds is not None:
                done = max(done, (self.record.seconds + ahead * self.seconds_per_step) / config.seconds)
            progress.append(min(done, 1.0))
        return progress

    def _ending(self, stop: StopRequest) -> str | None:
        config, record = self.config, self.record
        if config.steps is not None and self.step >= config.steps:
            return "finished"
        if config.seconds is not None and record.seconds >= config.seconds:
            return "time"
        if config.patience is not None and record.without_best >= config.patience:
            return "patience"
        return "interrupted" if stop.requested else None

    def _check_finite(self) -> None:
        bad = int(self.state.first_bad_step)
        if bad >= 0:
            raise self.record.diverged(bad)

    def _read_clock(self) -> None:
        self.record.wall_seconds = self._wall_before + time.perf_counter()

    def _log(self) -> None:
        sums = self.state.sums
        self.record.log(self.step, {name: float(total) for name, total in sums.items()})
        self.state = eqx.tree_at(lambda state: state.sums, self.state, jax.tree.map(jnp.zeros_like, sums))

    def _validate(self) -> None:
        if self.programs.validation is not None:
            model = self.state.model
            self.record.validated(self.step, model, self.programs.validation.errors(model))
