"""What one seed of a training has found so far, and the folder that keeps it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from koopax._errors import DivergedError, KoopaxError
from koopax._progress import Watcher
from koopax.models.dynamics import DynamicsModel
from koopax.models.files import load_model
from koopax.training.checkpoint import Checkpoints
from koopax.training.choice import Trial
from koopax.training.config import TrainConfig
from koopax.training.losses import loss_weights
from koopax.training.metrics import Sink, check_sinks, open_sinks
from koopax.training.run import Run, check_recorded, write_config, write_outcome
from koopax.training.state import TrainState

# What may change when a run is resumed; anything else would make it another run.
CHANGEABLE = ("steps", "seconds", "patience", "checkpoint_every", "microbatch_size")


@dataclass(frozen=True)
class Keeping:
    """Where a training is kept and who is told of it; the same for all its seeds."""

    resume: bool = False
    """Continue from the newest checkpoint."""
    sinks: tuple[str, ...] = ("jsonl",)
    """Where metrics go besides the returned run."""
    data: dict[str, Any] | None = None
    """Where the episodes came from."""
    fingerprint: str | None = None
    """Of the training episodes."""
    trials: Sequence[Trial] = ()
    """The short trainings that the windows were chosen by."""
    watch: Watcher | None = None
    """Called with every line of metrics, and before the first with the seconds of compilation."""


class Record:
    """Metrics, best model and checkpoints of one seed; in memory only, where there is no folder."""

    def __init__(self, model: DynamicsModel, config: TrainConfig, folder: Path | None, keeping: Keeping):
        """Claim the folder: a new one gets its config.json, one that is resumed must hold this run."""
        self.config = config
        self.folder = folder
        self.checkpoints = None if folder is None else Checkpoints(folder / "checkpoints")
        self.lines: list[dict[str, Any]] = []
        self.seconds = 0.0
        self.compile_seconds = 0.0
        self.wall_seconds = 0.0
        self.last_logged = 0
        self.best = float("inf")
        self.best_model: DynamicsModel | None = None
        self.without_best = 0
        self.validated_at = 0
        self._keeping = keeping
        self._sinks: list[Sink] = []
        if folder is None:
            return
        check_sinks(keeping.sinks)
        if keeping.resume:
            check_recorded(folder, model, config, keeping.fingerprint, changeable=CHANGEABLE)
        elif (folder / "config.json").exists():
            raise KoopaxError(f"{str(folder)!r} already holds a run: resume it, or choose another folder.")
        else:
            write_config(folder, model, config, keeping.data or {}, keeping.fingerprint, keeping.trials)

    def open(self, state: TrainState) -> TrainState:
        """Begin at `state`, or at the newest checkpoint of a run that is resumed."""
        if self.folder is None or self.checkpoints is None:
            return state
        if self._keeping.resume and self.checkpoints.steps():
            state, memory = self.checkpoints.restore(state)
            self.seconds = memory["seconds"]
            self.compile_seconds = memory.get("compile_seconds", 0.0)  # earlier checkpoints have neither
            self.wall_seconds = memory.get("wall_seconds", self.seconds)
            self.last_logged = memory["last_logged"]
            self.validated_at = memory["validated_at"]
            self.best = float("inf") if memory["best"] is None else memory["best"]
            self.without_best = memory["without_best"]
            self.lines = memory["lines"]
            if (self.folder / "best.koopax").is_file():
                self.best_model = load_model(self.folder / "best.koopax")
        self._sinks = open_sinks(self._keeping.sinks, self.folder, from_step=int(state.step), lines=self.lines)
        return state

    def close(self) -> None:
        """Close files and threads."""
        for sink in self._sinks:
            sink.close()
        if self.checkpoints is not None:
            self.checkpoints.close()

    def compiled(self, step: int, seconds: float) -> None:
        """The programs are there, after so many seconds: steps begin. Told to the watcher, and no line of metrics."""
        self.compile_seconds += seconds
        if self._keeping.watch is not None:
            now = {"step": step, "seconds": round(self.seconds, 3), "compile_seconds": round(seconds, 3)}
            self._keeping.watch({**now, "seed": self.config.seed})

    def log(self, step: int, sums: dict[str, float]) -> None:
        """One line of metrics: means since the last line."""
        count = step - self.last_logged
        self.last_logged = step
        self._emit(step, {name: total / count for name, total in sums.items()})

    def validated(self, step: int, model: DynamicsModel, errors: dict[str, float]) -> None:
        """One line of validation errors; the model is kept if it is the best so far."""
        weight = loss_weights(self.config)
        value = sum(weight[name] * error for name, error in errors.items())
        self.validated_at = step
        if value < self.best:
            self.best, self.without_best = value, 0
            # The next step donates these buffers.
            self.best_model = jax.tree.map(jnp.copy, model)
            if self.folder is not None:
                model.save(self.folder / "best.koopax")
        else:
            self.without_best += 1
        self._emit(step, {f"validation_{name}": error for name, error in errors.items()})

    def save(self, state: TrainState) -> None:
        """Write a checkpoint."""
        if self.checkpoints is None:
            return
        memory = {
            "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
            "wall_seconds": self.wall_seconds,
            "last_logged": self.last_logged,
            "validated_at": self.validated_at,
            "best": None if self.best == float("inf") else self.best,
            "without_best": self.without_best,
            "lines": self.lines,
        }
        self.checkpoints.save(state, memory)

    def finish(self, state: TrainState, stopped: str, settle: Callable[[DynamicsModel], DynamicsModel]) -> Run:
        """Write the last checkpoint, the model and how it ended; `settle` makes the final model of a trained one."""
        self.save(state)
        step, model = int(state.step), state.model
        times = {name: round(getattr(self, name), 3) for name in ("seconds", "compile_seconds", "wall_seconds")}
        if stopped != "interrupted":
            model = settle(model)
            self.best_model = None if self.best_model is None else settle(self.best_model)
        if self.folder is not None:
            if stopped != "interrupted":
                model.save(self.folder / "model.koopax")
                if self.best_model is not None:
                    self.best_model.save(self.folder / "best.koopax")
            write_outcome(self.folder, {"step": step, **times, "stopped": stopped})
        return Run(
            model=model,
            config=self.config,
            step=step,
            **times,
            stopped=stopped,
            metrics=self.lines,
            best_model=self.best_model,
            folder=self.folder,
            trials=tuple(self._keeping.trials),
        )

    def diverged(self, bad: int) -> DivergedError:
        """The error for a training that diverged: the loss is not finite at step `bad`."""
        # A checkpoint of step c holds the parameters that the loss of step c is taken with.
        good = [] if self.checkpoints is None else [step for step in self.checkpoints.steps() if step < bad]
        kept = f"the last checkpoint with a finite loss is step {good[-1]} in {self.folder}" if good else None
        return DivergedError(
            f"training diverged: the loss became non-finite at step {bad}; "
            f"{kept or 'no checkpoint was written before'}: lower learning_rate ({self.config.learning_rate}) or clip "
            f"({self.config.clip}), or shorten the horizon ({self.config.horizon})."
        )

    def _emit(self, step: int, metrics: dict[str, float]) -> None:
        line = {"step": step, "seconds": round(self.seconds, 3), **metrics}
        self.lines.append(line)
        for sink in self._sinks:
            sink.write(line)
        if self._keeping.watch is not None:
            self._keeping.watch({**line, "seed": self.config.seed})
