"""The training loop: play an episode, learn from it, evaluate, checkpoint; resumable bit for bit.

A run's folder holds `config.json`, `metrics.jsonl` and `checkpoint.npz`. The loop's state after an episode is
the learner, the replay and a few counters; all randomness is derived from the seed and these counters.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from koopax._errors import DivergedError, KoopaxError
from koopax._interrupt import StopRequest
from koopax._provenance import provenance
from koopax.agents.tdmpc.agent import Keys, Learner, learn, make_learner
from koopax.agents.tdmpc.checkpoint import CHECKPOINT, load_checkpoint, read_header, save_checkpoint
from koopax.agents.tdmpc.config import CHANGEABLE, TDMPCConfig
from koopax.agents.tdmpc.play import Episode, evaluate, play
from koopax.agents.tdmpc.replay import Replay
from koopax.agents.tdmpc.tasks import Task
from koopax.training.metrics import JsonLines, read_json_lines
from koopax.training.run import write_json

METRICS = "metrics.jsonl"
# Many updates at once are saved in between, this often.
LEARNING_SECONDS = 60.0
Watch = Callable[[dict[str, Any]], None]


class TrainResult(NamedTuple):
    """What `train` leaves behind."""

    out: Path
    env_steps: int
    lines: list[dict[str, Any]]
    """The lines of `metrics.jsonl`."""
    interrupted: bool


@dataclasses.dataclass
class Progress:
    """Counters of a run, as its checkpoint has them."""

    decisions: int = 0
    env_steps: int = 0
    episodes: int = 0
    evaluated: int = 0
    """How many times `evaluate_every` decisions had passed at the last evaluation."""
    lines: int = 0
    seconds: float = 0.0
    losses: dict[str, float] = dataclasses.field(default_factory=dict)
    """What the last updates found."""
    pending: dict[str, Any] | None = None
    """The line of an episode from which nothing has been learned yet."""


@dataclasses.dataclass
class _Run:
    """The moving parts of a run."""

    config: TDMPCConfig
    out: Path
    task: Task
    learner: Learner
    replay: Replay
    progress: Progress
    sink: JsonLines
    watch: Watch
    saved: float = -math.inf


def train(config: TDMPCConfig, out: Path, *, resume: bool = False, watch: Watch = lambda _: None) -> TrainResult:
    """Train TD-MPC in `config.task` and write the run to `out`; Ctrl-C or SIGTERM ends it at the last checkpoint.

    With `resume=True` the checkpoint in `out` is continued, and the numbers are those of an uninterrupted run; then
    the config must be the recorded one (`read_config(out)`), except for the fields in `CHANGEABLE`.

    A line of `metrics.jsonl` stands for an episode: `decisions` and `env_steps` so far, `episode`, `updates`,
    wall-clock `seconds`, the training `return` and `length` (with exploration), where the schedules stand, the losses
    of the last updates, and `evaluation_returns` and their mean where an evaluation followed. `watch` sees each line.
    """
    out = Path(out)
    run = _resume(config, out, watch) if resume else _start(config, out, watch)
    with contextlib.closing(run.task), contextlib.closing(run.sink), StopRequest() as stop:
        _loop(run, stop)
    return TrainResult(out, run.progress.env_steps, read_json_lines(out / METRICS), stop.requested)


def _start(config: TDMPCConfig, out: Path, watch: Watch) -> _Run:
    if (out / CHECKPOINT).exists() or (out / "config.json").exists():
        raise KoopaxError(f"{str(out)!r} already holds a run; resume it or choose another folder.")
    task = make_task(config)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "config.json", {"agent": "tdmpc", "config": dataclasses.asdict(config), **provenance()})
    learner = make_learner(config, task.state_size, task.action_size)
    sink = JsonLines(out, from_step=0, lines=[])
    run = _Run(config, out, task, learner, make_replay(config, task), Progress(), sink, watch)
    _save(run)
    return run


def _resume(config: TDMPCConfig, out: Path, watch: Watch) -> _Run:
    recorded = read_config(out)
    for field in dataclasses.fields(config):
        old, new = getattr(recorded, field.name), getattr(config, field.name)
        if old != new and field.name not in CHANGEABLE:
            raise KoopaxError(f"{field.name} is {new!r} but {str(out)!r} was trained with {old!r}; resume with that.")
    task = make_task(config)
    replay = make_replay(config, task)
    like = jax.eval_shape(lambda: make_learner(config, task.state_size, task.action_size))
    learner, header = load_checkpoint(out, like, replay)
    progress = Progress(**header["progress"])
    # Lines that the checkpoint does not know of are written again.
    sink = JsonLines(out, from_step=0, lines=read_json_lines(out / METRICS)[: progress.lines])
    return _Run(config, out, task, learner, replay, progress, sink, watch)


def make_task(config: TDMPCConfig) -> Task:
    """The environment to train in."""
    return Task(config.task, seed=config.seed, action_repeat=config.action_repeat)


def make_replay(config: TDMPCConfig, task: Task) -> Replay:
    """An empty replay; its memory is taken as it fills."""
    return Replay(
        config.replay_size,
        task.state_size,
        task.action_size,
        alpha=config.priority_exponent,
        beta=config.importance_exponent,
    )


def read_config(out: Path) -> TDMPCConfig:
    """The config of the run in a folder."""
    return TDMPCConfig.from_json(read_header(Path(out))["config"])


def _loop(run: _Run, stop: StopRequest) -> None:
    started = time.monotonic() - run.progress.seconds
    while True:
        _learn(run, stop)
        run.progress.seconds = time.monotonic() - started
        if stop.requested:
            _save(run)
            return
        finished = run.progress.env_steps >= run.config.steps
        if run.progress.pending is not None:
            _report(run, finished)
            run.progress.seconds = time.monotonic() - started
            _save(run, at_least=0.0 if finished else run.config.checkpoint_seconds)
        if finished:
            return
        episode = play(run.task, run.learner, run.progress.episodes, run.progress.decisions, run.config, stop)
        if episode is None:  # what is left of it is not enough to go on from; it is played again
            return
        run.progress.seconds = time.monotonic() - started
        _remember(run, episode)


def _remember(run: _Run, episode: Episode) -> None:
    """Take a finished episode into the replay and the counters."""
    config, progress = run.config, run.progress
    run.replay.add(episode.observations, episode.actions, episode.rewards, episode.terminated)
    progress.pending = {
        "episode": progress.episodes,
        "return": episode.total,
        "length": len(episode.rewards),
        "terminated": episode.terminated,
        "plan_length": config.plan_length(progress.decisions),
        "std_bound": config.std_bound(progress.decisions),
    }
    progress.decisions += len(episode.rewards)
    progress.env_steps += episode.env_steps
    progress.episodes += 1
    _save(run, at_least=config.checkpoint_seconds)


def _learn(run: _Run, stop: StopRequest) -> None:
    """The updates that are due, some in each compiled call; the host waits once per call."""
    config, key = run.config, Keys.of(run.config.seed).learning
    count, done = config.updates_per_dispatch, int(run.learner.updates)
    while done < config.due_updates(run.progress.decisions) and not stop.requested:
        rng = np.random.default_rng((config.seed, done))
        sample = run.replay.sample(count, config.batch_size, config.horizon, rng)
        run.learner, errors, metrics = learn(run.learner, sample.windows, config.compiled(), key=key)
        run.replay.set_priorities(sample.rows, np.asarray(errors))
        done += count
        run.progress.losses = {name: float(value) for name, value in metrics.items()}
        for name, value in run.progress.losses.items():
            if not math.isfinite(value):
                raise DivergedError(f"training diverged: {name} is {value} after {done} updates; lower learning_rate.")
        _save(run, at_least=max(LEARNING_SECONDS, config.checkpoint_seconds))


def _report(run: _Run, finished: bool) -> None:
    """Evaluate where it is time to, and write the line of the last episode."""
    config, progress = run.config, run.progress
    line = {
        "step": progress.env_steps,
        "decisions": progress.decisions,
        "env_steps": progress.env_steps,
        "updates": int(run.learner.updates),
        "seconds": round(progress.seconds, 1),
        **(progress.pending or {}),
        **progress.losses,
    }
    passed = progress.decisions // config.evaluate_every
    if finished or passed > progress.evaluated:
        progress.evaluated = passed
        count = config.final_episodes if finished else config.evaluate_episodes
        returns = evaluate(config, run.learner, progress.decisions, count)
        line |= {"evaluation_returns": returns, "evaluation_return": float(np.mean(returns))}
    run.sink.write(line)
    run.watch(line)
    progress.lines += 1
    progress.pending = None


def _save(run: _Run, *, at_least: float = 0.0) -> None:
    """Write a checkpoint, unless the last one is younger than that many seconds."""
    if time.monotonic() - run.saved < at_least:
        return
    header = {"config": dataclasses.asdict(run.config), "progress": dataclasses.asdict(run.progress)}
    save_checkpoint(run.out, run.learner, run.replay, header)
    run.saved = time.monotonic()
