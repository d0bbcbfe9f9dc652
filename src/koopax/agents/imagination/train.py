"""The training loop: clone the data's behaviour, then imagine and learn; judged in the environment, resumable."""

import contextlib
import dataclasses
import importlib.metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from koopax._checkpoint import Checkpoint, restore_tree, tree_arrays
from koopax._errors import KoopaxError
from koopax.agents.imagination.agent import World, clone, imagine, learn
from koopax.agents.imagination.config import ImaginationConfig
from koopax.agents.run import AgentRun, TrainResult, Watch, check_finite
from koopax.agents.sac.agent import Learner, TrainState, make_state
from koopax.agents.sac.replay import ObservationStatistics, Replay, Transitions, make_replay
from koopax.agents.sac.train import actor_policy
from koopax.collection.policies import GaussianPolicy
from koopax.data.episodes import Episodes
from koopax.envs import action_bounds, episode_returns, make
from koopax.models.dynamics import DynamicsModel
from koopax.planning.protocol import Box
from koopax.simulation.simulator import make_simulator
from koopax.simulation.starts import make_starts
from koopax.training.run import seed_folders
from koopax.training.tasks import read_task, splits
from koopax.training.trained import load_trained

POLICY, CLONE = "policy.npz", "clone.npz"


@dataclasses.dataclass(frozen=True)
class ImaginationResult(TrainResult):
    """What `train_imagination` leaves behind."""

    policy: GaussianPolicy
    """The last policy."""


class Given(NamedTuple):
    """What is fixed: the models and the data that they were trained on."""

    models: list[DynamicsModel]
    episodes: Episodes


def train_imagination(
    config: ImaginationConfig,
    out: Path,
    *,
    given: Given | None = None,
    resume: bool = False,
    watch: Watch | None = None,
) -> ImaginationResult:
    """Train SAC in the models of `config.runs` from the data that they were trained on, and write the run to `out`.

    The environment only judges: a line of metrics stands for an evaluation in it. The first is of the cloned policy,
    before anything is imagined. `policy.npz` is the last policy and `clone.npz` the cloned one. `given` are the models
    and the data, where they are at hand. Ctrl-C or SIGTERM saves a checkpoint and returns; `resume` goes on from it.
    """
    told = watch and (lambda line: watch({**line, "step": line["decisions"]}))
    run = AgentRun(out, config, resume=resume, watch=told)
    training = ImaginationTraining(config, given or read_runs(config.runs))
    with run.begin(training):
        _loop(training, run)
        training.policy().save(run.folder / POLICY)
    return ImaginationResult(**vars(run.result()), policy=training.policy())


def read_runs(folders: tuple[str, ...]) -> Given:
    """The models of run folders, or of every seed in a folder of several, and the episodes they were trained on."""
    if not folders:
        raise KoopaxError("imagination needs a trained model: name one run or more.")
    runs = [seed for folder in folders for seed in (seed_folders(Path(folder)) or [Path(folder)])]
    models = [model for run in runs if isinstance(model := load_trained(run), DynamicsModel)]  # a seed's is one
    tasks = [read_task(run) for run in runs]
    data = {(task.source, repr(sorted(task.source_options.items())), task.split_seed) for task in tasks}
    if len(data) > 1:
        raise KoopaxError(f"the runs were trained on different data, {sorted(d[0] for d in data)}: name runs on one.")
    return Given(models, splits(tasks[0]).train)


class ImaginationTraining:
    """The moving parts of a run: what learns and what is imagined; and what stands still: models and data."""

    def __init__(self, config: ImaginationConfig, given: Given):
        self.config, self.given = config, given
        with contextlib.closing(make(config.env, seed=config.seed)) as env:
            self.low, self.high = action_bounds(env)
            found = (env.observation_space.shape[0], len(self.low))
        model = given.models[0]
        if found != (model.config.state_size, model.config.action_size):
            raise KoopaxError(
                f"{config.env!r} has {found[0]} observations and {found[1]} actions, but the model was trained on "
                f"{model.config.state_size} and {model.config.action_size}: name the environment of its data."
            )
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all()):
            raise KoopaxError(f"the actions of {config.env!r} have no bounds: choose an environment with some.")
        if given.episodes.image_shape is not None:
            raise KoopaxError("the data is of frames, and policies see states: imagine in models of states.")
        if not given.episodes.metadata.has_rewards:
            raise KoopaxError("the data has no rewards, so there is nothing to learn to do: train on data with some.")
        self.world = make_world(given, config, self.low, self.high)
        self.data = transitions(given.episodes, self.world.box)
        self.statistics = statistics_of(given.episodes)
        self.learner: Learner
        self.imagined: Replay
        self.steps = 0
        self.metrics: dict[str, Any] = {}

    def start(self) -> None:
        """Begin with fresh networks and nothing imagined."""
        sizes = self.data.observations.shape[1], self.data.actions.shape[1]
        self.learner = make_state(dataclasses.replace(self.config.sac(), replay_size=1), *sizes).learner
        self.imagined = make_replay(self.config.steps_per_dispatch * self.config.remembered, *sizes)

    def save(self) -> Checkpoint:
        """All that changes."""
        arrays = tree_arrays("learner", self.learner)
        arrays |= tree_arrays("imagined", self.imagined)
        return Checkpoint({}, arrays)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Return to a saved state."""
        self.start()
        self.learner = restore_tree("learner", self.learner, checkpoint.arrays)
        self.imagined = restore_tree("imagined", self.imagined, checkpoint.arrays)
        self.steps = checkpoint.header["progress"]["decisions"]

    def policy(self) -> GaussianPolicy:
        """The actor as it is now, for the environment's own action bounds, with its provenance."""
        state = TrainState(self.learner, self.imagined, self.statistics)
        provenance = {
            "env": self.config.env,
            "seed": self.config.seed,
            "imagined_steps": self.steps,
            "training_updates": int(self.learner.updates),
            "koopax": importlib.metadata.version("koopax"),
        }
        return dataclasses.replace(actor_policy(state, self.low, self.high), provenance=provenance)


def make_world(given: Given, config: ImaginationConfig, low: np.ndarray, high: np.ndarray) -> World:
    """The simulator and the states of the data.

    Where episodes of the data terminate, imagined ones do when they leave the range of the states that the data went on
    from; elsewhere they never do.
    """
    episodes, model = given.episodes, given.models[0]
    sizes = {"state_size": model.config.state_size, "action_size": model.config.action_size}
    starts = make_starts(episodes, **sizes, start_at="any")
    bounds = None
    if episodes.terminated.any():
        widened = 1e-3 * (np.max(starts, 0) - np.min(starts, 0)) + 1e-6
        bounds = (np.min(starts, 0) - widened, np.max(starts, 0) + widened)
    penalty = config.penalty * float(model.normaliser.reward_std) if len(given.models) > 1 else 0.0
    simulator = make_simulator(given.models, bounds=bounds, penalty=penalty)
    return World(simulator, jnp.asarray(starts), Box(low, high))


def transitions(episodes: Episodes, box: Box) -> Transitions:
    """Every step of the episodes, with actions in [−1, 1]."""
    observations, actions = np.asarray(episodes.observations), np.asarray(episodes.actions)
    last = np.asarray(episodes.starts[1:]) - 1
    taken = np.ones(len(observations), bool)
    taken[last] = False
    rows = np.flatnonzero(taken)
    continues = np.ones(len(observations), np.float32)
    continues[last - 1] = 1 - episodes.terminated.astype(np.float32)
    return Transitions(
        jnp.asarray(observations[rows]),
        box.to_unit(jnp.asarray(actions[rows])),
        jnp.asarray(np.asarray(episodes.rewards)[rows]),
        jnp.asarray(continues[rows]),
        jnp.asarray(observations[rows + 1]),
    )


def statistics_of(episodes: Episodes) -> ObservationStatistics:
    """Mean and deviation of the data's states, which imagination does not change."""
    found, count = episodes.statistics().state, float(len(episodes.observations))
    squares = jnp.asarray(found.std**2 * count, jnp.float32)
    return ObservationStatistics(jnp.float32(count), jnp.asarray(found.mean, jnp.float32), squares)


def _loop(training: ImaginationTraining, run: AgentRun) -> None:
    config = training.config
    if training.steps == 0 and int(training.learner.updates) == 0:
        if config.clone_updates:
            training.learner, loss = clone(
                training.learner, training.data, training.statistics, config.compiled(), config.clone_updates
            )
            training.metrics = {"clone_loss": loss}
        training.policy().save(run.folder / CLONE)
        _evaluate(training, run)
    while training.steps < config.steps and not run.stop.requested:
        before = training.steps
        _dispatch(training)
        # Every step is imagined: none is taken in the environment.
        run.progress.decisions = training.steps
        run.progress.updates = int(training.learner.updates)
        run.tick()
        if before // config.evaluate_every < training.steps // config.evaluate_every:
            _evaluate(training, run)
        run.save(training, at_least=config.checkpoint_seconds)
    run.save(training)


def _dispatch(training: ImaginationTraining) -> None:
    config = training.config.compiled()
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(config.seed), 4), training.steps)
    new, apart = imagine(training.world, training.learner, training.statistics, config, key=key)
    training.learner, training.imagined, metrics = learn(
        training.learner, training.imagined, new, training.data, training.statistics, config
    )
    training.metrics = {**metrics, "disagreement": apart, "imagined_reward": jnp.mean(new.rewards)}
    training.steps += config.steps_per_dispatch


def _evaluate(training: ImaginationTraining, run: AgentRun) -> None:
    """Play whole episodes with the mean action and write a line of metrics."""
    config = training.config
    metrics = {name: float(value) for name, value in training.metrics.items()}
    check_finite(metrics, run.progress.updates)
    policy = training.policy().with_deterministic(True)
    returns = episode_returns(config.env, policy, config.evaluate_episodes, seed=config.seed)
    run.write(**{"evaluation_return": float(np.mean(returns)), "evaluation_returns": returns.tolist(), **metrics})
