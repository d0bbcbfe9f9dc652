"""What one seed of a training has found so far, and the folder that keeps it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._checkpoint import Checkpoint, Checkpoints, restore_tree, tree_arrays
from koopax._claim import Claim
from koopax._errors import DivergedError, KoopaxError
from koopax._progress import Watcher
from koopax._untrusted import from_json
from koopax.models.dynamics import DynamicsModel
from koopax.models.files import RUN_MODEL
from koopax.training.choice import Trial
from koopax.training.config import TrainConfig
from koopax.training.losses import loss_weights
from koopax.training.metrics import Sink, check_sinks, open_sinks
from koopax.training.run import BEST, DIVERGED, Run, check_recorded, read_config, write_config, write_outcome
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
    seeds: tuple[int, int] | None = None
    """The first seed and the number of seeds, in a training of several."""
    watch: Watcher | None = None
    """Called with every line of metrics, and before the first with the seconds of compilation and the steps to come."""

    def of(self, folder: Path | None) -> "Keeping":
        """For the folder of one seed: what was not begun before the others were stopped is begun when they resume."""
        begun = self.seeds is None or folder is None or (folder / "config.json").exists()
        return replace(self, resume=self.resume and begun)


@dataclass(frozen=True)
class Memory:
    """What a checkpoint remembers besides the state of training."""

    seconds: float
    last_logged: int
    validated_at: int
    best: float | None
    without_best: int
    lines: tuple[dict[str, Any], ...]
    compile_seconds: float = 0.0  # earlier checkpoints have neither
    wall_seconds: float | None = None


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
        self._saved: int | None = None
        self._keeping = keeping
        self._sinks: list[Sink] = []
        self._claim: Claim | None = None
        if folder is None:
            return
        check_sinks(keeping.sinks)
        if keeping.resume:
            read_config(folder)  # a folder that holds nothing is not made
        self._claim = Claim(folder)
        try:
            self._begin(model, folder)
        except BaseException:
            self.close()
            raise

    def _begin(self, model: DynamicsModel, folder: Path) -> None:
        """Record what the run is, or see that it is what was recorded."""
        config, keeping = self.config, self._keeping
        if keeping.resume:
            check_recorded(folder, model, config, keeping.fingerprint, changeable=CHANGEABLE)
        elif (folder / "config.json").exists():
            raise KoopaxError(f"{str(folder)!r} already holds a run: resume it, or choose another folder.")
        else:
            document = {"data": keeping.data or {}, "fingerprint": keeping.fingerprint, "seeds": keeping.seeds}
            document |= {"trials": [asdict(trial) for trial in keeping.trials]}
            write_config(folder, model, config, document)

    def open(self, state: TrainState) -> TrainState:
        """Begin at `state`, or at the newest checkpoint of a run that is resumed."""
        if self.folder is None or self.checkpoints is None:
            return state
        if self._keeping.resume:
            state = self._resumed(state, self.folder, self.checkpoints)
            if self.best_model is not None:
                self.best_model.save(self.folder / BEST)
        self._sinks = open_sinks(self._keeping.sinks, self.folder, from_step=int(state.step), lines=self.lines)
        return state

    def _resumed(self, begin: TrainState, folder: Path, checkpoints: Checkpoints) -> TrainState:
        """The state of the newest whole checkpoint; `begin` where a run was stopped before its first."""
        state = begin

        def restore(found: Checkpoint) -> None:
            nonlocal state
            arrays, rest = eqx.partition(begin, eqx.is_array)
            state = eqx.combine(restore_tree("state", arrays, found.arrays), rest)
            self._saved = int(state.step)
            self._remember(from_json(Memory, found.header))
            best = math.isfinite(self.best)
            self.best_model = restore_tree("best", state.model, found.arrays) if best else None

        found = checkpoints.load(restore)
        if found is None and read_config(folder).get("outcome", {}).get("stopped") not in (None, DIVERGED):
            raise KoopaxError(
                f"the run {str(folder)!r} has ended before, but holds no checkpoint that this koopax reads: "
                "train into a new folder."
            )
        return state

    def _remember(self, memory: Memory) -> None:
        self.seconds, self.compile_seconds = memory.seconds, memory.compile_seconds
        self.wall_seconds = memory.seconds if memory.wall_seconds is None else memory.wall_seconds
        self.last_logged, self.validated_at = memory.last_logged, memory.validated_at
        self.best = float("inf") if memory.best is None else memory.best
        self.without_best, self.lines = memory.without_best, list(memory.lines)

    def close(self) -> None:
        """Close files and let the folder go."""
        for sink in self._sinks:
            sink.close()
        if self._claim is not None:
            self._claim.release()

    def compiled(self, step: int, seconds: float) -> None:
        """The programs are there, after so many seconds: steps begin. Told to the watcher, and no line of metrics."""
        self.compile_seconds += seconds
        if self._keeping.watch is not None:
            now = {"step": step, "seconds": round(self.seconds, 3), "compile_seconds": round(seconds, 3)}
            self._keeping.watch({**now, "steps": self.config.steps, "seed": self.config.seed})

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
                model.save(self.folder / BEST)
        else:
            self.without_best += 1
        self._emit(step, {f"validation_{name}": error for name, error in errors.items()})

    def save(self, state: TrainState) -> None:
        """Write a checkpoint, under the number of its step; one that was written or loaded just now is left."""
        step = int(state.step)
        if self.checkpoints is None or step == self._saved:
            return
        memory = Memory(
            seconds=self.seconds,
            compile_seconds=self.compile_seconds,
            wall_seconds=self.wall_seconds,
            last_logged=self.last_logged,
            validated_at=self.validated_at,
            best=None if self.best == float("inf") else self.best,
            without_best=self.without_best,
            lines=tuple(self.lines),
        )
        # Steps between this and the next checkpoint may be taken twice, so the best so far belongs to it as well.
        arrays = tree_arrays("state", eqx.filter(state, eqx.is_array)) | tree_arrays("best", self.best_model)
        self.checkpoints.save(Checkpoint(asdict(memory), arrays), step)
        self._saved = step

    def finish(self, state: TrainState, stopped: str, settle: Callable[[DynamicsModel], DynamicsModel]) -> Run:
        """Write the last checkpoint, the model and how it ended; `settle` makes the final model of a trained one."""
        self.save(state)
        step, model = int(state.step), state.model
        times = {name: round(getattr(self, name), 3) for name in ("seconds", "compile_seconds", "wall_seconds")}
        if stopped != "interrupted":
            last_is_best = self.without_best == 0 and self.validated_at == step
            model = settle(model)
            if self.best_model is not None:
                self.best_model = model if last_is_best else settle(self.best_model)
        if self.folder is not None:
            if stopped != "interrupted":
                model.save(self.folder / RUN_MODEL)
                if self.best_model is not None:
                    self.best_model.save(self.folder / BEST)
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
        """The error for a training that diverged: the loss is not finite at step `bad`; no checkpoint from there on."""
        # A checkpoint of step c holds the parameters that the loss of step c is taken with.
        good = [] if self.checkpoints is None else self.checkpoints.drop(bad)
        if self.folder is not None:
            write_outcome(self.folder, {"step": bad, "seconds": round(self.seconds, 3), "stopped": DIVERGED})
        kept = "no checkpoint was written before"
        if good:
            kept = (
                f"the last checkpoint with a finite loss is step {good[-1]} in {self.folder}, and resuming begins there"
            )
        return DivergedError(
            f"training diverged: the loss became non-finite at step {bad}; {kept}: lower learning_rate "
            f"({self.config.learning_rate}) or clip ({self.config.clip}), or begin anew with a shorter horizon than "
            f"{self.config.horizon}."
        )

    def _emit(self, step: int, metrics: dict[str, float]) -> None:
        line = {"step": step, "seconds": round(self.seconds, 3), **metrics}
        self.lines.append(line)
        for sink in self._sinks:
            sink.write(line)
        if self._keeping.watch is not None:
            self._keeping.watch({**line, "seed": self.config.seed})
