"""The training loop of one seed, or of several at once: compile once, step, and look up from time to time."""

import time
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import DivergedError
from koopax._interrupt import StopRequest
from koopax.data.episodes import Episodes
from koopax.data.windows import WindowSampler
from koopax.models.dynamics import DynamicsModel
from koopax.training.config import TrainConfig
from koopax.training.record import Record
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

    def __init__(self, train: Episodes, validation: Episodes | None, config: TrainConfig):
        """Nothing is compiled yet."""
        self.sampler = WindowSampler(train, config.horizon)
        self.validation = None if validation is None else Validation(validation, config)
        self._config = config
        self._steps: Any = None

    def compile(self, state: TrainState, key: jax.Array) -> Any:
        """The compiled steps for a state, or for a stack of states with as many keys; compiled once."""
        if self._steps is not None:
            return self._steps
        config = self._config

        def advance(fixed: tuple, state: TrainState) -> TrainState:
            sampler, progress, count, key = fixed
            return train_steps(state, sampler, progress, count, config, key)

        fixed = self.sampler, *_padded([]), key
        self._steps = eqx.filter_jit(advance, donate="all-except-first").lower(fixed, state).compile()
        if self.validation is not None:
            self.validation.compile(member(state, 0).model)
        return self._steps

    def advance(self, state: TrainState, progress: Sequence[float], key: jax.Array) -> TrainState:
        """One gradient step of every seed for each value of `progress`, when it is done; the given state is used up."""
        assert self._steps is not None, "compile first"
        for begin in range(0, len(progress), BLOCK_STEPS):
            block = _padded(progress[begin : begin + BLOCK_STEPS])
            state = jax.block_until_ready(self._steps((self.sampler, *block, key), state))
        return state


def _padded(progress: Sequence[float]) -> tuple[jax.Array, jax.Array]:
    """The progress of some steps in an array that has the same size for any number of them, and that number."""
    padded = [*progress, *[0.0] * (BLOCK_STEPS - len(progress))]
    return jnp.asarray(padded, jnp.float32), jnp.asarray(len(progress), jnp.int32)


def stack(states: Sequence[TrainState]) -> TrainState:
    """Several states as one with a leading axis; one state stays as it is."""
    if len(states) == 1:
        return states[0]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *states)


def member(state: TrainState, index: int) -> TrainState:
    """State `index` of a stack; a state that is not stacked is its own only member."""
    if state.step.ndim == 0:
        return state
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, state)


def fresh_state(model: DynamicsModel, config: TrainConfig) -> TrainState:
    """The state before the first step, with buffers of its own: steps use theirs up, and the caller keeps the model."""
    return initial_state(jax.tree.map(lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, model), config)


class Loop:
    """A running training: what is on the device, and what time it is. Its seeds are at the same step all the time."""

    def __init__(self, records: Sequence[Record], states: Sequence[TrainState], programs: Programs):
        """`states` are those that the opened records begin at."""
        self.records = records
        self.config = records[0].config
        self.programs = programs
        self.step = int(states[0].step)
        self.state = stack(states)
        self.seconds = max(record.seconds for record in records)
        self.seconds_per_step = BLOCK_SECONDS  # not known yet: makes the first block one step
        self.failed: dict[int, DivergedError] = {}
        # Away from the keys that a model with the same seed was initialised with.
        keys = [jax.random.fold_in(jax.random.key(record.config.seed), 2**31) for record in records]
        self.key = keys[0] if len(keys) == 1 else jnp.stack(keys)

    def run(self, stop: StopRequest) -> list[Run | DivergedError]:
        """Train until an end is reached; a seed whose loss is not finite does not stop the others."""
        if self._ending(stop) is None:
            self.programs.compile(self.state, self.key)
            self._train(stop)
        self._check_finite()
        stopped = self._ending(stop) or "finished"
        if stopped != "interrupted":
            if any(record.last_logged < self.step for _, record in self._alive()):
                self._log()
            if any(record.validated_at < self.step for _, record in self._alive()):
                self._validate()
        return [
            self.failed.get(index) or record.finish(member(self.state, index), stopped)
            for index, record in enumerate(self.records)
        ]

    def _train(self, stop: StopRequest) -> None:
        config = self.config
        while self._ending(stop) is None:
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
                self._save()

    def _count(self, steps: int, seconds: float) -> None:
        """Steps that were taken and the time they took; what is written and validated is not training time."""
        self.step += steps
        self.seconds += seconds
        self.seconds_per_step = seconds / steps
        for record in self.records:
            record.seconds = self.seconds

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
                done = max(done, (self.seconds + ahead * self.seconds_per_step) / config.seconds)
            progress.append(min(done, 1.0))
        return progress

    def _ending(self, stop: StopRequest) -> str | None:
        config = self.config
        if len(self.failed) == len(self.records):
            return "diverged"
        if config.steps is not None and self.step >= config.steps:
            return "finished"
        if config.seconds is not None and self.seconds >= config.seconds:
            return "time"
        if config.patience is not None and all(record.without_best >= config.patience for record in self.records):
            return "patience"
        return "interrupted" if stop.requested else None

    def _check_finite(self) -> None:
        for index, bad in enumerate(np.atleast_1d(self.state.first_bad_step)):
            if bad >= 0 and index not in self.failed:
                self.failed[index] = self.records[index].diverged(int(bad))

    def _alive(self) -> list[tuple[int, Record]]:
        return [(index, record) for index, record in enumerate(self.records) if index not in self.failed]

    def _log(self) -> None:
        sums = {name: np.atleast_1d(total) for name, total in self.state.sums.items()}
        self.state = eqx.tree_at(lambda state: state.sums, self.state, jax.tree.map(jnp.zeros_like, self.state.sums))
        for index, record in self._alive():
            record.log(self.step, {name: float(totals[index]) for name, totals in sums.items()})

    def _validate(self) -> None:
        if self.programs.validation is None:
            return
        for index, record in self._alive():
            model = member(self.state, index).model
            record.validated(self.step, model, self.programs.validation.errors(model))

    def _save(self) -> None:
        self._check_finite()
        for index, record in self._alive():
            record.save(member(self.state, index))
