"""The training loop: compile once, step, and look up from time to time."""

import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import DivergedError, KoopaxError
from koopax.data.episodes import Episodes
from koopax.data.windows import WindowSampler
from koopax.models.dynamics import DynamicsModel
from koopax.models.files import load_model
from koopax.models.presets import DEFAULT_LEARNING_RATE, LEARNING_RATES
from koopax.training.checkpoint import Checkpoints
from koopax.training.config import TrainConfig
from koopax.training.interrupt import StopRequest
from koopax.training.losses import weights
from koopax.training.metrics import Sink, check_sinks, open_sinks
from koopax.training.run import Run, check_recorded, write_config, write_outcome
from koopax.training.state import TrainState, initial_state, no_sums, train_step
from koopax.training.validation import Validation

# With a time limit the loop waits for the device at least this often, so that it knows what time it is.
CLOCK_EVERY = 10
CLOCK_SHARE = 0.01

STEPS = 2000
STEPS_WITH_TIME_LIMIT = 10_000_000

# What may change when a run is resumed; anything else would make it another run.
CHANGEABLE = ("steps", "seconds", "patience", "checkpoint_every")

Watcher = Callable[[dict[str, Any]], None]


def fit(
    model: DynamicsModel,
    train: Episodes,
    *,
    validation: Episodes | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    sinks: tuple[str, ...] = ("jsonl",),
    data: dict[str, Any] | None = None,
    watch: Watcher | None = None,
    config: TrainConfig | None = None,
    **settings: Any,
) -> Run:
    """Train a model.

    Args:
        model: where training starts; it is left as it is.
        train: the training episodes.
        validation: episodes for the validation loss, the best model and early stopping.
        out: a folder for metrics, checkpoints and the model; without it nothing is written.
        resume: continue from the newest checkpoint in `out`.
        sinks: where metrics go besides the returned run: "jsonl", "tensorboard", "wandb".
        data: where the episodes came from, recorded in `out`.
        watch: called with every line of metrics, for progress bars.
        config: the settings.
        **settings: single fields of `TrainConfig`, such as `horizon=100, steps=2000, batch_size=64, seed=0`.
    """
    config = _settings(config, settings, model.config.core)
    _check_sizes(model, train)
    folder = None if out is None else Path(out)
    if folder is None and resume:
        raise KoopaxError("resuming needs the run's folder: pass out.")
    if folder is None and tuple(sinks) != ("jsonl",):
        raise KoopaxError(f"metrics can't go to {sinks} without a folder for the run: pass out.")
    if validation is None and config.patience is not None:
        raise KoopaxError(f"patience is {config.patience}, but nothing is validated: pass validation episodes.")
    loop = _Loop(model, train, validation, config, folder, resume, sinks, data or {}, watch)
    try:
        return loop.run()
    finally:
        loop.close()


def _settings(config: TrainConfig | None, settings: dict[str, Any], core: str) -> TrainConfig:
    known = {f.name for f in fields(TrainConfig)}
    for name in settings:
        if name not in known:
            raise KoopaxError(f"fit has no setting {name!r}: it takes {', '.join(sorted(known))}.")
    config = replace(config or TrainConfig(), **settings)
    # Resolved here, so that what is recorded is what ran.
    if config.learning_rate is None:
        config = replace(config, learning_rate=LEARNING_RATES.get(core, DEFAULT_LEARNING_RATE))
    if config.steps is None:
        config = replace(config, steps=STEPS if config.seconds is None else STEPS_WITH_TIME_LIMIT)
    return config


def _check_sizes(model: DynamicsModel, train: Episodes) -> None:
    sizes = (model.config.state_size, model.config.action_size)
    if sizes != (train.state_size, train.action_size):
        raise KoopaxError(
            f"the model takes states and actions of sizes {sizes}, but the data has "
            f"{(train.state_size, train.action_size)}: create the model from this data."
        )


class _Loop:
    """The state of a running `fit`: what is on the device, what was written, and what time it is."""

    def __init__(
        self,
        model: DynamicsModel,
        train: Episodes,
        validation: Episodes | None,
        config: TrainConfig,
        folder: Path | None,
        resume: bool,
        sinks: tuple[str, ...],
        data: dict[str, Any],
        watch: Watcher | None,
    ):
        self.config = config
        self.folder = folder
        self.watch = watch
        self.sampler = WindowSampler(train, config.horizon, time_major=True)
        self.validation = None if validation is None else Validation(validation, config)
        self.checkpoints = None if folder is None else Checkpoints(folder / "checkpoints")
        # Copied, because the steps donate their state's buffers and the caller keeps the model.
        copied = jax.tree.map(lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, model)
        self.state = initial_state(copied, config)
        self.seconds = 0.0
        self.lines: list[dict[str, Any]] = []
        self.last_logged = 0
        self.best = float("inf")
        self.best_model: DynamicsModel | None = None
        self.without_best = 0
        self.validated_at = 0
        self.sinks: list[Sink] = []
        if folder is not None:
            check_sinks(sinks)
            self._open_folder(folder, model, resume, data)
            self.sinks = open_sinks(sinks, folder, from_step=self.step, lines=self.lines)

    @property
    def step(self) -> int:
        return int(self.state.step)

    def run(self) -> Run:
        """Train until an end is reached."""
        with StopRequest() as stop:
            step = self.step
            if self._ending(step, stop) is None:
                step = self._train(step, stop)
        return self._finish(step, self._ending(step, stop) or "finished")

    def _train(self, step: int, stop: StopRequest) -> int:
        config = self.config
        # Away from the keys that a model with the same seed was initialised with.
        key = jax.random.fold_in(jax.random.key(config.seed), 2**31)
        advance = self._compile(key)
        began = time.perf_counter() - self.seconds
        while self._ending(step, stop) is None:
            self.state = advance((self.sampler, self._progress(step), key), self.state)
            step += 1
            if self._looks_up(step):
                jax.block_until_ready(self.state.step)
            self.seconds = time.perf_counter() - began
            if step % config.log_every == 0:
                self._log(step)
            if self.validation is not None and step % config.validate_every == 0:
                self._validate(step)
            if step % config.checkpoint_every == 0:
                self._save()
            if self._looks_up(step):
                began = time.perf_counter() - self.seconds  # what was written and validated is not training time
        jax.block_until_ready(self.state.step)
        self.seconds = time.perf_counter() - began
        return step

    def _compile(self, key: jax.Array) -> Callable:
        config = self.config

        def advance(fixed: tuple, state: TrainState) -> TrainState:
            sampler, progress, key = fixed
            return train_step(state, sampler, progress, config, key)

        fixed = self.sampler, self._progress(0), key
        compiled = eqx.filter_jit(advance, donate="all-except-first").lower(fixed, self.state).compile()
        if self.validation is not None:
            self.validation.compile(self.state.model)
        return compiled

    def _looks_up(self, step: int) -> bool:
        """Whether the loop waits for the device after this step: to log, validate, save, or read the clock."""
        config = self.config
        if any(step % every == 0 for every in (config.log_every, config.validate_every, config.checkpoint_every)):
            return True
        if config.seconds is None:
            return False
        return step % min(CLOCK_EVERY, max(1, int(CLOCK_SHARE * config.seconds * step / max(self.seconds, 1e-9)))) == 0

    def close(self) -> None:
        """Close files and threads."""
        for sink in self.sinks:
            sink.close()
        if self.checkpoints is not None:
            self.checkpoints.close()

    def _progress(self, step: int) -> jax.Array:
        """Between 0 and 1: the learning rate's clock. With a time limit it is whatever will end first."""
        assert self.config.steps is not None  # resolved
        done = (step + 1) / (self.config.steps + 1)
        if self.config.seconds is not None:
            done = max(done, self.seconds / self.config.seconds)
        return jnp.asarray(min(done, 1.0), jnp.float32)

    def _ending(self, step: int, stop: StopRequest) -> str | None:
        config = self.config
        if config.steps is not None and step >= config.steps:
            return "finished"
        if config.seconds is not None and self.seconds >= config.seconds:
            return "time"
        if config.patience is not None and self.without_best >= config.patience:
            return "patience"
        return "interrupted" if stop.requested else None

    def _check_finite(self) -> None:
        bad = int(self.state.first_bad_step)
        if bad < 0:
            return
        last = None if self.checkpoints is None else self.checkpoints.latest_step()
        kept = f"the last checkpoint is step {last} in {self.folder}" if last else "no checkpoint was written"
        raise DivergedError(
            f"the loss became non-finite at step {bad}; {kept}: lower learning_rate ({self.config.learning_rate}) "
            f"or clip ({self.config.clip}), or shorten the horizon ({self.config.horizon})."
        )

    def _log(self, step: int) -> None:
        """One line of metrics: means since the last line."""
        self._check_finite()
        count = step - self.last_logged
        means = {name: float(total) / count for name, total in self.state.sums.items()}
        self.state = eqx.tree_at(lambda state: state.sums, self.state, no_sums(self.config))
        self.last_logged = step
        self._emit({"step": step, "seconds": round(self.seconds, 3), **means})

    def _validate(self, step: int) -> None:
        assert self.validation is not None
        errors = self.validation.errors(self.state.model)
        weight = weights(self.config)
        value = sum(weight[name] * error for name, error in errors.items())
        self.validated_at = step
        if value < self.best:
            self.best, self.without_best = value, 0
            # The next step donates these buffers.
            self.best_model = jax.tree.map(jnp.copy, self.state.model)
            if self.folder is not None:
                self.state.model.save(self.folder / "best.koopax")
        else:
            self.without_best += 1
        named = {f"validation_{name}": error for name, error in errors.items()}
        self._emit({"step": step, "seconds": round(self.seconds, 3), **named})

    def _emit(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        for sink in self.sinks:
            sink.write(line)
        if self.watch is not None:
            self.watch(line)

    def _save(self) -> None:
        self._check_finite()
        if self.checkpoints is None:
            return
        memory = {
            "seconds": self.seconds,
            "last_logged": self.last_logged,
            "validated_at": self.validated_at,
            "best": None if self.best == float("inf") else self.best,
            "without_best": self.without_best,
            "lines": self.lines,
        }
        self.checkpoints.save(self.state, memory)

    def _open_folder(self, folder: Path, model: DynamicsModel, resume: bool, data: dict[str, Any]) -> None:
        assert self.checkpoints is not None
        if not resume:
            if (folder / "config.json").exists():
                raise KoopaxError(f"{str(folder)!r} already holds a run: resume it, or choose another folder.")
            write_config(folder, model, self.config, data)
            return
        check_recorded(folder, model, self.config, changeable=CHANGEABLE)
        if self.checkpoints.latest_step() is None:
            return  # stopped before its first checkpoint: start again
        self.state, memory = self.checkpoints.restore(self.state)
        self.seconds = memory["seconds"]
        self.last_logged = memory["last_logged"]
        self.validated_at = memory["validated_at"]
        self.best = float("inf") if memory["best"] is None else memory["best"]
        self.without_best = memory["without_best"]
        self.lines = memory["lines"]
        if (folder / "best.koopax").is_file():
            self.best_model = load_model(folder / "best.koopax")

    def _finish(self, step: int, stopped: str) -> Run:
        self._check_finite()
        if stopped != "interrupted":
            if self.last_logged < step:
                self._log(step)
            if self.validation is not None and self.validated_at < step:
                self._validate(step)
        self._save()
        model = self.state.model
        if self.folder is not None:
            if stopped != "interrupted":
                model.save(self.folder / "model.koopax")
            write_outcome(self.folder, {"step": step, "seconds": round(self.seconds, 3), "stopped": stopped})
        return Run(
            model=model,
            config=self.config,
            step=step,
            seconds=self.seconds,
            stopped=stopped,
            metrics=self.lines,
            best_model=self.best_model,
            folder=self.folder,
        )
