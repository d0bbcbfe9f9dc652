"""The training loop of one seed: compile once, step, and look up from time to time."""

import math
import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._interrupt import StopRequest
from koopax.models.dynamics import DynamicsModel
from koopax.training.config import TrainConfig
from koopax.training.devices import agree
from koopax.training.programs import Programs
from koopax.training.record import Record
from koopax.training.run import Run
from koopax.training.state import TrainState, initial_state

# Steps that are taken in one go are no more than take so long, so that Ctrl-C is answered soon.
BLOCK_SECONDS = 1.0
# With a time limit, no more than should take this share of it.
CLOCK_SHARE = 0.01


def fresh_state(model: DynamicsModel, config: TrainConfig) -> TrainState:
    """The state before the first step, with buffers of its own: steps use theirs up, and the caller keeps the model."""
    model = model.with_calibration(None)  # which training makes worthless
    return initial_state(jax.tree.map(lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, model), config)


class Loop:
    """One seed in training: the state on the device, its record, and what time it is."""

    def __init__(
        self,
        record: Record,
        state: TrainState,
        programs: Programs,
        *,
        began: float,
        clock: Callable[[], float] | None = None,
    ):
        """`state` is the one that the opened record begins at; `began` is when, by `time.perf_counter`.

        `clock` is what training time is measured by; None is `time.perf_counter`.
        """
        self.record = record
        self.config = record.config
        self.programs = programs
        self.devices = programs.devices
        self.state = self.devices.replicate(state)
        self.step = int(state.step)
        self.clock = clock or time.perf_counter
        self.ended: str | None = None
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
        stopped = self.ended or self._ending(stop) or "finished"
        if stopped != "interrupted":
            if self.record.last_logged < self.step:
                self._log()
            if self.record.validated_at < self.step:
                self._validate()
        self._read_clock()
        return self.record.finish(self.devices.local(self.state), stopped, self.programs.settle)

    def advance(self, stop: StopRequest, *, until: float = math.inf) -> bool:
        """Train until an end is reached or `until` seconds of training; whether an end is reached."""
        config = self.config
        while progress := self._next(stop, until):
            began = self.clock()
            self.state = self.programs.advance(self.state, progress, self.key)
            self._count(len(progress), self.clock() - began)
            if self.step % config.log_every == 0:
                self._check_finite()
                self._log()
            if self.step % config.validate_every == 0:
                self._validate()
            if self.step % config.checkpoint_every == 0:
                self._check_finite()
                self._read_clock()
                self.record.save(self.devices.local(self.state))
        return self.ended is not None

    def _next(self, stop: StopRequest, until: float) -> list[float]:
        """The progress of the steps to take next, the same in all processes; none at an end or at `until`."""
        ending, progress = self._ending(stop), []
        if ending is None and self.record.seconds < until:
            progress = self._progress(self._block())
        self.ended, progress = agree(ending, progress, self.programs.most)
        return progress

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
        return min(self.programs.most, max(1, int(wait / self.seconds_per_step)), config.steps - step, *due)

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
        bad = int(self.devices.local(self.state.first_bad_step))
        if bad >= 0:
            raise self.record.diverged(bad)

    def _read_clock(self) -> None:
        self.record.wall_seconds = self._wall_before + time.perf_counter()

    def _log(self) -> None:
        sums = self.devices.local(self.state.sums)
        self.record.log(self.step, {name: float(total) for name, total in sums.items()})
        none = self.devices.replicate(jax.tree.map(jnp.zeros_like, sums))
        self.state = eqx.tree_at(lambda state: state.sums, self.state, none)

    def _validate(self) -> None:
        if self.programs.validation is not None:
            model = self.devices.local(self.state.model)
            self.record.validated(self.step, model, self.programs.validation.errors(model))
