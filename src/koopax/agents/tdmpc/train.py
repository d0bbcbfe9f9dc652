"""The training loop: play an episode, learn from it, evaluate, checkpoint; resumable bit for bit.

The loop's state after an episode is the learner, the replay and a few counters; all randomness is derived from the seed
and these counters.
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from koopax._checkpoint import Checkpoint, named_arrays, restore_tree, tree_arrays
from koopax._untrusted import from_json
from koopax.agents.run import AgentRun, TrainResult, Watch, check_finite, check_sizes
from koopax.agents.tdmpc.agent import Keys, Learner, learn, make_learner
from koopax.agents.tdmpc.config import TDMPCConfig
from koopax.agents.tdmpc.play import evaluate, play
from koopax.agents.tdmpc.replay import Replay
from koopax.agents.tdmpc.tasks import Task
from koopax.data.episodes import Episode

# Many updates at once are saved in between, this often.
LEARNING_SECONDS = 60.0
ERROR_RATE = 0.1
"""Of the moving average of the model's errors, per compiled call of updates."""


def train_tdmpc(config: TDMPCConfig, out: Path, *, resume: bool = False, watch: Watch | None = None) -> TrainResult:
    """Train TD-MPC in `config.task` and write the run to `out`; Ctrl-C or SIGTERM ends it at the last checkpoint.

    With `resume=True` the newest checkpoint in `out` is continued, and the numbers are those of an uninterrupted run;
    then the config must be the recorded one, except for the fields in `TDMPCConfig.changeable`.

    A line of metrics stands for an episode: how far the run has come, the number of the `episode`, its training
    `return` and `length` (with exploration), where the schedules stand, the losses of the last updates, and
    `evaluation_returns` and their mean where an evaluation followed. `watch` sees each line, and the counters in
    between.
    """
    run = AgentRun(out, config, resume=resume, watch=watch)
    with contextlib.closing(TDMPCTraining(config)) as training, run.begin(training):
        _loop(training, run)
    return run.result()


@dataclasses.dataclass
class Counters:
    """What the loop remembers besides a run's progress."""

    episodes: int = 0
    evaluated: int = 0
    """How many times `evaluate_every` decisions had passed at the last evaluation."""
    losses: dict[str, float] = dataclasses.field(default_factory=dict)
    """What the last updates found."""
    model_errors: list[float] = dataclasses.field(default_factory=list)
    """The model's consistency error at each step of a window, averaged over the last updates."""
    spent: dict[str, float] = dataclasses.field(default_factory=dict)
    """Seconds of playing, learning and evaluating."""
    pending: dict[str, Any] | None = None
    """The line of an episode from which nothing has been learned yet."""


class TDMPCTraining:
    """The moving parts of a run: the environment, and everything that learns or is learned from."""

    def __init__(self, config: TDMPCConfig):
        self.config = config
        self.task = Task(config.task, seed=config.seed, action_repeat=config.action_repeat)
        self.learner: Learner
        self.replay: Replay
        self.counters = Counters()

    def start(self) -> None:
        """Begin with a fresh learner and an empty replay, whose memory is taken as it fills."""
        self.learner = make_learner(self.config, self.task.state_size, self.task.action_size)
        self.replay = make_replay(self.config, self.task.state_size, self.task.action_size)

    def save(self) -> Checkpoint:
        """Learner, replay and counters. Generators need no state: all randomness comes from the seed and counters."""
        arrays = tree_arrays("learner", self.learner)
        arrays |= {f"replay/{name}": array for name, array in self.replay.save().items()}
        sizes = self.task.state_size, self.task.action_size
        return Checkpoint({"counters": dataclasses.asdict(self.counters), "sizes": sizes}, arrays)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Return to a saved state."""
        check_sizes(checkpoint, (self.task.state_size, self.task.action_size))
        self.learner, self.replay = restore_state(self.config, checkpoint)
        self.counters = from_json(Counters, checkpoint.header["counters"])

    def close(self) -> None:
        """Close the environment."""
        self.task.close()


def make_replay(config: TDMPCConfig, state_size: int, action_size: int) -> Replay:
    """An empty replay."""
    exponents = {"alpha": config.priority_exponent, "beta": config.importance_exponent}
    return Replay(config.replay_size, state_size, action_size, **exponents)


def restore_state(config: TDMPCConfig, checkpoint: Checkpoint) -> tuple[Learner, Replay]:
    """The learner and the replay in a checkpoint."""
    sizes = checkpoint.header["sizes"]
    like = jax.eval_shape(lambda: make_learner(config, *sizes))
    replay = make_replay(config, *sizes)
    replay.restore(named_arrays("replay", checkpoint.arrays))
    return restore_tree("learner", like, checkpoint.arrays), replay


def _loop(training: TDMPCTraining, run: AgentRun) -> None:
    config = training.config
    run.save(training)
    while True:
        with _timed(training.counters, "learning"):
            _learn(training, run)
        if run.stop.requested:
            run.save(training)
            return
        finished = run.progress.environment_steps >= config.steps
        if training.counters.pending is not None:
            _report(training, run, finished)
            run.save(training, at_least=0.0 if finished else config.checkpoint_seconds)
        if finished:
            return
        number, decisions = training.counters.episodes, run.progress.decisions
        errors = training.counters.model_errors
        with _timed(training.counters, "playing"):
            played = play(training.task, training.learner, number, decisions, config, run.stop, errors)
        if played is None:  # what is left of it is not enough to go on from; it is played again
            return
        _remember(training, run, *played)


def _remember(training: TDMPCTraining, run: AgentRun, episode: Episode, environment_steps: int) -> None:
    """Take a finished episode into the replay and the counters."""
    config, progress = training.config, run.progress
    training.replay.add(episode.observations, episode.actions, episode.rewards, episode.terminated)
    training.counters.pending = {
        "episode": training.counters.episodes,
        "return": float(np.sum(episode.rewards, dtype=float)),
        "length": len(episode.rewards),
        "terminated": episode.terminated,
        "plan_length": config.plan_length(progress.decisions, training.counters.model_errors),
        "std_bound": config.std_bound(progress.decisions),
    }
    progress.decisions += len(episode.rewards)
    progress.environment_steps += environment_steps
    training.counters.episodes += 1
    run.tick()
    run.save(training, at_least=config.checkpoint_seconds)


def _learn(training: TDMPCTraining, run: AgentRun) -> None:
    """The updates that are due, some in each compiled call; the host waits once per call."""
    config, key = training.config, Keys.of(training.config.seed).learning
    count, progress = config.updates_per_dispatch, run.progress
    while progress.updates < config.due_updates(progress.decisions) and not run.stop.requested:
        rng = np.random.default_rng((config.seed, progress.updates))
        sample = training.replay.sample(count, config.batch_size, config.horizon, rng)
        training.learner, errors, metrics = learn(training.learner, sample.windows, config.compiled(), key=key)
        training.replay.set_priorities(sample.rows, np.asarray(errors))
        progress.updates += count
        _note(training.counters, metrics)
        check_finite(training.counters.losses, progress.updates)
        run.tick()
        run.save(training, at_least=max(LEARNING_SECONDS, config.checkpoint_seconds))


def _note(counters: Counters, metrics: dict[str, Any]) -> None:
    """Remember what updates found; errors over the horizon decide on plans, so they are averaged over some calls."""
    errors = between_known(np.asarray(metrics["consistency_errors"], float))
    before = np.array(counters.model_errors) if counters.model_errors else errors
    counters.model_errors = (before + ERROR_RATE * (errors - before)).tolist()
    counters.losses = {name: float(value) for name, value in metrics.items() if name != "consistency_errors"}


def between_known(errors: np.ndarray) -> np.ndarray:
    """The errors of all steps, where one at which no loss was taken errs as those around it do; all NaN stay so."""
    known = np.flatnonzero(np.isfinite(errors))
    return np.interp(np.arange(len(errors)), known, errors[known]) if len(known) else errors


def _report(training: TDMPCTraining, run: AgentRun, finished: bool) -> None:
    """Evaluate where it is time to, and write the line of the last episode."""
    config, counters = training.config, training.counters
    line = {**(counters.pending or {}), **counters.losses}
    if counters.model_errors:
        line["consistency_errors"] = [float(f"{error:.4g}") for error in counters.model_errors]
    passed = run.progress.decisions // config.evaluate_every
    if finished or passed > counters.evaluated:
        counters.evaluated = passed
        count = config.final_episodes if finished else config.evaluate_episodes
        with _timed(counters, "evaluating"):
            returns = evaluate(config, training.learner, run.progress.decisions, count, counters.model_errors)
        line |= {"evaluation_return": float(np.mean(returns)), "evaluation_returns": returns}
    run.write(**line, spent={what: round(seconds, 1) for what, seconds in counters.spent.items()})
    counters.pending = None


@contextlib.contextmanager
def _timed(counters: Counters, what: str) -> Iterator[None]:
    """Count the seconds of the block."""
    started = time.monotonic()
    yield
    counters.spent[what] = counters.spent.get(what, 0.0) + time.monotonic() - started
