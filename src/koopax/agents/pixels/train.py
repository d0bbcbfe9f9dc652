"""The training loop: step the environments while learning, evaluate, checkpoint; resumable bit for bit.

The loop's state between two decisions is the learner, the replay, the environments and a few counters; all randomness
is derived from the seed and these counters.
"""

import contextlib
import dataclasses
import warnings
from pathlib import Path

import jax
import numpy as np

from koopax._checkpoint import Checkpoint, named_arrays, restore_tree, tree_arrays
from koopax._errors import KoopaxWarning
from koopax._untrusted import from_json
from koopax.agents.pixels.agent import Keys, Learner, act, learn, make_learner
from koopax.agents.pixels.config import PixelSACConfig
from koopax.agents.pixels.play import Players, evaluate
from koopax.agents.pixels.replay import FrameReplay
from koopax.agents.pixels.replay_files import ReplayFiles, check_room
from koopax.agents.run import AgentRun, TrainResult, Watch, check_finite

REPLAY = "replay"
LOWEST_SPREAD, LOWEST_RANK = 0.01, 1.1
"""Below these, a representation has collapsed. Where agents learn, spreads are some tenths and ranks 1.3 or more."""


def train_pixel_sac(
    config: PixelSACConfig, out: Path, *, resume: bool = False, watch: Watch | None = None
) -> TrainResult:
    """Train SAC from pixels in `config.task` and write the run to `out`; Ctrl-C or SIGTERM saves a checkpoint first.

    With `resume=True` the newest checkpoint in `out` is continued, and the numbers are those of an uninterrupted run;
    then the config must be the recorded one, except for the fields in `PixelSACConfig.changeable`. Besides what every
    agent's folder holds (see `koopax.agents.run`), `replay/` has the frames.

    A line of metrics stands for an episode, with its `return` and `length` and the losses of the last update, or for an
    evaluation, with `evaluation_returns` and their mean. `spread` and `rank` tell how much representations differ, see
    `koopax.agents.pixels.losses`; a warning is given once they vanish. `watch` sees each line, and the counters in
    between.
    """
    run = AgentRun(out, config, resume=resume, watch=watch)
    check_room(config.rows_per_env * config.num_envs * config.frame_bytes, out)
    with contextlib.closing(PixelTraining(config, out)) as training, run.begin(training):
        _loop(training, run)
    return run.result()


@dataclasses.dataclass
class Counters:
    """What the loop remembers besides a run's progress."""

    evaluated: int = 0
    """How many times `evaluate_every` environment steps had passed at the last evaluation."""
    collapsed: bool = False
    """Whether a collapse was warned of."""
    losses: dict[str, float] = dataclasses.field(default_factory=dict)
    """What the last update found."""


class PixelTraining:
    """The moving parts of a run: the environments, and everything that learns or is learned from."""

    def __init__(self, config: PixelSACConfig, out: Path):
        self.config = config
        # Before any process is started, networks say whether they can take such images.
        jax.eval_shape(lambda: make_learner(config, 1))
        self.players = Players(config)
        self.files = ReplayFiles(Path(out) / REPLAY)
        self.replay = FrameReplay(
            config.num_envs,
            config.rows_per_env,
            config.image_size,
            self.players.action_size,
            frame_stack=config.frame_stack,
        )
        self.learner: Learner
        self.metrics: dict[str, jax.Array] = {}
        self.counters = Counters()

    def start(self) -> None:
        """Begin with a fresh learner and the first frames."""
        self.learner = make_learner(self.config, self.players.action_size)
        self.players.begin(self.replay)

    def save(self) -> Checkpoint:
        """Learner, environments and counters, and which files hold the replay."""
        self.fetch()  # the next line of metrics may come before the next update
        header, newest = self.files.save(self.replay)
        arrays = tree_arrays("learner", self.learner)
        arrays |= {f"environments/{name}": array for name, array in self.players.save().items()}
        arrays |= {f"newest/{name}": array for name, array in newest.items()}
        return Checkpoint({"counters": dataclasses.asdict(self.counters), "replay": header}, arrays)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Return to a saved state."""
        like = jax.eval_shape(lambda: make_learner(self.config, self.players.action_size))
        self.learner = restore_tree("learner", like, checkpoint.arrays)
        self.files.restore(self.replay, checkpoint.header["replay"], named_arrays("newest", checkpoint.arrays))
        self.players.restore(named_arrays("environments", checkpoint.arrays))
        self.counters = from_json(Counters, checkpoint.header["counters"])

    def fetch(self) -> None:
        """Wait for what the last update found."""
        if self.metrics:
            self.counters.losses = {name: float(value) for name, value in self.metrics.items()}

    def close(self) -> None:
        """End the processes that draw."""
        self.players.close()


def _loop(training: PixelTraining, run: AgentRun) -> None:
    config, progress = training.config, run.progress
    run.save(training)
    while True:
        # After the random decisions many updates are due at once.
        while progress.updates < config.due_updates(progress.decisions - config.num_envs) and not run.stop.requested:
            _learn(training, run)
            run.save(training, at_least=config.checkpoint_seconds)
        finished = progress.environment_steps >= config.steps
        if not run.stop.requested:
            _evaluate(training, run, finished)
        if finished or run.stop.requested:
            run.save(training)
            return
        run.save(training, at_least=config.checkpoint_seconds)
        _step(training, run)


def _step(training: PixelTraining, run: AgentRun) -> None:
    """A decision in every environment; what is due is learned while they draw."""
    config, progress = training.config, run.progress
    training.players.send(_actions(training, progress.decisions))
    while progress.updates < config.due_updates(progress.decisions):
        _learn(training, run)
    steps, lines = training.players.receive(training.replay)
    progress.decisions += config.num_envs
    progress.environment_steps += steps
    for line in lines:
        _look(training, run)
        run.write(**line, **training.counters.losses)
    run.tick()


def _actions(training: PixelTraining, decisions: int) -> np.ndarray:
    """Exploring actions in [−1, 1]ᴬ, uniform ones at first."""
    config, learner = training.config, training.learner
    if decisions < config.random_decisions:
        rng = np.random.default_rng((config.seed, decisions))
        return rng.uniform(-1, 1, (config.num_envs, training.players.action_size)).astype(np.float32)
    observed = np.stack([training.replay.observation(env) for env in range(config.num_envs)])
    key = Keys.of(config.seed).acting
    return np.asarray(act(learner.model, learner.actor, observed, decisions, config.compiled(), explore=True, key=key))


def _learn(training: PixelTraining, run: AgentRun) -> None:
    """The updates of one compiled call, which goes on in the background."""
    config, progress = training.config, run.progress
    batches = training.replay.sample(
        config.updates_per_dispatch,
        config.batch_size,
        discount=config.discount,
        return_steps=config.return_steps,
        windows=config.prediction_batch if config.predicts else 0,
        horizon=config.horizon,
        stride=config.stride,
        rng=np.random.default_rng((config.seed, progress.updates)),
    )
    key = Keys.of(config.seed).learning
    training.learner, training.metrics = learn(training.learner, batches, config.compiled(), key=key)
    progress.updates += config.updates_per_dispatch


def _look(training: PixelTraining, run: AgentRun) -> None:
    """Fetch what the last update found; complain if it is not finite, warn if representations have collapsed."""
    counters, config = training.counters, training.config
    training.fetch()
    check_finite(counters.losses, run.progress.updates)
    spread, rank = counters.losses.get("spread", 1.0), counters.losses.get("rank", LOWEST_RANK)
    if not counters.collapsed and (spread < LOWEST_SPREAD or rank < LOWEST_RANK):
        counters.collapsed = True
        warnings.warn(
            f"representations have collapsed after {run.progress.updates} updates (spread {spread:.2g}, rank "
            f"{rank:.2g}): lower {'prediction_weight or ' if config.predicts else ''}learning_rate.",
            KoopaxWarning,
            stacklevel=2,
        )


def _evaluate(training: PixelTraining, run: AgentRun, finished: bool) -> None:
    """Play whole episodes where it is time to, and write their line."""
    config, counters, steps = training.config, training.counters, run.progress.environment_steps
    passed = steps // config.evaluate_every
    if not finished and passed <= counters.evaluated:
        return
    counters.evaluated = passed
    _look(training, run)
    count = config.final_episodes if finished else config.evaluate_episodes
    returns = evaluate(config, training.learner, steps, count)
    run.write(
        **{"evaluation_return": float(np.mean(returns)), "evaluation_returns": returns, **training.counters.losses}
    )
