"""The training loop of one seed, or of several at once: compile once, step, and look up from time to time."""

import time
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import DivergedError
from koopax.data.episodes import Episodes
from koopax.data.windows import WindowSampler
from koopax.models.dynamics import DynamicsModel
from koopax.training.config import TrainConfig
from koopax.training.interrupt import StopRequest
from koopax.training.record import Record
from koopax.training.run import Run
from koopax.training.state import TrainState, initial_state, train_step
from koopax.training.validation import Validation

# With a time limit the loop waits for the device at least this often, so that it knows what time it is.
CLOCK_EVERY = 10
CLOCK_SHARE = 0.01


class Programs:
    """What the seeds of a training share: the data on the device, and the compiled step and validation."""

    def __init__(self, train: Episodes, validation: Episodes | None, config: TrainConfig):
        """Nothing is compiled yet."""
        self.sampler = WindowSampler(train, config.horizon, time_major=True)
        self.validation = None if validation is None else Validation(validation, config)
        self._config = config
        self._step: Callable | None = None

    def compile(self, state: TrainState, key: jax.Array) -> None:
        """Compile for a state, or for a stack of states with as many keys; later calls have nothing left to do."""
        if self._step is not None:
            return
        config = self._config

        def advance(fixed: tuple, state: TrainState) -> TrainState:
            sampler, progress, key = fixed

            def one(state: TrainState, key: jax.Array) -> TrainState:
                return train_step(state, sampler, progress, config, key)

            return eqx.filter_vmap(one)(state, key) if key.ndim else one(state, key)

        fixed = self.sampler, jnp.zeros(()), key
        self._step = eqx.filter_jit(advance, donate="all-except-first").lower(fixed, state).compile()
        if self.validation is not None:
            self.validation.compile(member(state, 0).model)

    def step(self, state: TrainState, progress: jax.Array, key: jax.Array) -> TrainState:
        """One gradient step of every seed; the given state is used up."""
        assert self._step is not None
        return self._step((self.sampler, progress, key), state)


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
        began = time.perf_counter() - self.seconds
        while self._ending(stop) is None:
            self.state = self.programs.step(self.state, self._progress(), self.key)
            self.step += 1
            looks_up = self._looks_up()
            if looks_up:
                jax.block_until_ready(self.state.step)
            self._set_clock(time.perf_counter() - began)
            if self.step % config.log_every == 0:
                self._check_finite()
                self._log()
            if self.step % config.validate_every == 0:
                self._validate()
            if self.step % config.checkpoint_every == 0:
                self._save()
            if looks_up:
                began = time.perf_counter() - self.seconds  # what was written and validated is not training time
        jax.block_until_ready(self.state.step)
        self._set_clock(time.perf_counter() - began)

    def _set_clock(self, seconds: float) -> None:
        self.seconds = seconds
        for record in self.records:
            record.seconds = seconds

    def _looks_up(self) -> bool:
        """Whether the loop waits for the device after this step: to log, validate, save, or read the clock."""
        config, step = self.config, self.step
        if any(step % every == 0 for every in (config.log_every, config.validate_every, config.checkpoint_every)):
            return True
        if config.seconds is None:
            return False
        return step % min(CLOCK_EVERY, max(1, int(CLOCK_SHARE * config.seconds * step / max(self.seconds, 1e-9)))) == 0

    def _progress(self) -> jax.Array:
        """Between 0 and 1: the learning rate's clock. With a time limit it is whatever will end first."""
        assert self.config.steps is not None  # resolved
        done = (self.step + 1) / (self.config.steps + 1)
        if self.config.seconds is not None:
            done = max(done, self.seconds / self.config.seconds)
        return jnp.asarray(min(done, 1.0), jnp.float32)

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
