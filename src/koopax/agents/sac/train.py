"""The training loop: step the environments, learn, evaluate, snapshot, checkpoint; resumable bit for bit."""

import contextlib
import dataclasses
import importlib.metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from koopax._checkpoint import Checkpoint, named_arrays, restore_tree, tree_arrays
from koopax.agents.run import (
    AgentRun,
    TrainResult,
    Watch,
    check_finite,
    check_sizes,
    load_checkpoint,
    read_config,
)
from koopax.agents.sac.agent import TrainState, make_state, remember, remember_and_learn
from koopax.agents.sac.config import SACConfig
from koopax.agents.sac.replay import Replay, Transitions
from koopax.collection.policies import GaussianPolicy, RandomPolicy
from koopax.envs import LockStep, action_bounds, episode_returns

SNAPSHOTS = "snapshots"


@dataclasses.dataclass(frozen=True)
class SACResult(TrainResult):
    """What `train_sac` leaves behind."""

    policy: GaussianPolicy
    """The last policy."""


def train_sac(config: SACConfig, out: Path, *, resume: bool = False, watch: Watch | None = None) -> SACResult:
    """Train SAC in `config.env` and write the run to `out`; Ctrl-C or SIGTERM saves a checkpoint and returns.

    With `resume=True` the newest checkpoint in `out` is continued, and the numbers are those of an uninterrupted run;
    then the config must be the recorded one, except for the fields in `SACConfig.changeable`. Besides what every
    agent's folder holds (see `koopax.agents.run`), `snapshots/` has the policy as it was every `config.snapshot_every`
    steps.

    A line of metrics stands for an evaluation: how far the run has come, the returns of the deterministic episodes and
    their mean, and, averaged over the last dispatch, the losses, the mean `q` of a batch, the policy's `entropy` and
    the `temperature` α. `watch` sees each line, and the counters in between.
    """
    run = AgentRun(out, config, resume=resume, watch=watch)
    with contextlib.closing(SACTraining(config)) as training, run.begin(training):
        _loop(training, run)
    return SACResult(**vars(run.result()), policy=training.policy())


class SACTraining:
    """The moving parts of a run: environments, and everything that learns or is learned from."""

    def __init__(self, config: SACConfig):
        self.config = config
        self.envs = LockStep(config.env, config.num_envs, seed=config.seed, unit_actions=True)
        self.state: TrainState
        self.steps = 0
        self.metrics: dict[str, jax.Array] = {}

    @property
    def sizes(self) -> tuple[int, int]:
        """Components of an observation and of an action."""
        return self.envs.observations.shape[1], len(self.envs.low)

    def start(self) -> None:
        """Begin with a fresh state."""
        self.state = make_state(self.config, *self.sizes)

    def save(self) -> Checkpoint:
        """The state without the replay's unused rows, and the environments."""
        replay = self.state.replay
        rows = replay.storage._asdict()
        filled = min(int(replay.inserted), replay.capacity)
        arrays = tree_arrays("learner", self.state.learner)
        arrays |= tree_arrays("statistics", self.state.observation_statistics)
        arrays |= {f"replay/{name}": np.asarray(array)[:filled] for name, array in rows.items()}
        arrays |= {f"environments/{name}": array for name, array in self.envs.save().items()}
        return Checkpoint({"inserted": int(replay.inserted), "sizes": self.sizes}, arrays)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Return to a saved state."""
        check_sizes(checkpoint, self.sizes)
        self.state = restore_state(self.config, checkpoint)
        self.envs.restore(named_arrays("environments", checkpoint.arrays))
        self.steps = checkpoint.header["progress"]["environment_steps"]

    def policy(self) -> GaussianPolicy:
        """The actor as it is now, for the environment's own action bounds, with its provenance."""
        provenance = {
            "env": self.config.env,
            "seed": self.config.seed,
            "training_steps": self.steps,
            "training_updates": int(self.state.learner.updates),
            "koopax": importlib.metadata.version("koopax"),
        }
        policy = actor_policy(self.state, *action_bounds(self.envs.envs[0].env))
        return dataclasses.replace(policy, provenance=provenance)

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()


def restore_state(config: SACConfig, checkpoint: Checkpoint) -> TrainState:
    """The state in a checkpoint; the replay has its full capacity again."""
    like = jax.eval_shape(lambda: make_state(config, *checkpoint.header["sizes"]))
    rows = named_arrays("replay", checkpoint.arrays)
    storage = Transitions(**{name: _grow(rows[name], full) for name, full in like.replay.storage._asdict().items()})
    return TrainState(
        restore_tree("learner", like.learner, checkpoint.arrays),
        Replay(storage, jnp.int32(checkpoint.header["inserted"])),
        restore_tree("statistics", like.observation_statistics, checkpoint.arrays),
    )


def _grow(rows: np.ndarray, like: jax.ShapeDtypeStruct) -> jax.Array:
    full = np.zeros(like.shape, like.dtype)
    full[: len(rows)] = rows
    return jnp.array(full)


def read_state(folder: Path) -> TrainState:
    """The state of a run's newest checkpoint."""
    return restore_state(read_config(folder, SACConfig), load_checkpoint(folder))


def _loop(training: SACTraining, run: AgentRun) -> None:
    config = training.config
    while training.steps < config.steps and not run.stop.requested:
        before = training.steps
        _dispatch(training)
        run.progress.environment_steps = run.progress.decisions = training.steps
        run.progress.updates = int(training.state.learner.updates)
        run.tick()
        if _passed(before, training.steps, config.evaluate_every):
            _evaluate(training, run)
        if config.snapshot_every and _passed(before, training.steps, config.snapshot_every):
            training.policy().save(run.folder / SNAPSHOTS / f"step-{training.steps:09d}.npz")
        run.save(training, at_least=config.checkpoint_seconds)
    run.save(training)


def _dispatch(training: SACTraining) -> None:
    """Step the environments, then learn from the replay with the new transitions in it."""
    config, learning = training.config, training.steps >= training.config.random_steps
    new = collect(training.envs, training.state if learning else None, config, training.steps)
    if learning:
        training.state, training.metrics = remember_and_learn(training.state, new, config.compiled())
    else:
        training.state = remember(training.state, new, config.compiled())
    training.steps += config.steps_per_dispatch


def collect(envs: LockStep, state: TrainState | None, config: SACConfig, steps: int) -> Transitions:
    """`config.steps_per_dispatch` transitions with the state's policy, or with uniform actions without one.

    Actions are in [−1, 1]. The noise depends on the seed and on the number of steps taken so far only.
    """
    # NumPy acts for a handful of environments in a tenth of the time that a dispatch to the device takes.
    low, high = envs.low, envs.high
    explorer = RandomPolicy(low, high) if state is None else actor_policy(state, low, high)
    blocks = []
    for i in range(config.lock_steps):
        rng = np.random.default_rng((config.seed, steps + i * config.num_envs))
        actions = explorer.act(envs.observations, rng)
        taken = envs.step(actions)
        continues = 1 - taken.terminated.astype(np.float32)
        blocks.append((taken.observations, actions, taken.rewards, continues, taken.next_observations))
    return Transitions(*(jnp.asarray(np.concatenate(parts)) for parts in zip(*blocks, strict=True)))


def _passed(before: int, after: int, every: int) -> bool:
    return before // every < after // every


def _evaluate(training: SACTraining, run: AgentRun) -> None:
    """Play whole episodes with the mean action and write a line of metrics."""
    config = training.config
    metrics = {name: float(value) for name, value in training.metrics.items()}
    check_finite(metrics, run.progress.updates)
    policy = training.policy().with_deterministic(True)
    returns = episode_returns(config.env, policy, config.evaluate_episodes, seed=config.seed + training.steps)
    run.write(**{"evaluation_return": float(np.mean(returns)), "evaluation_returns": returns.tolist(), **metrics})


def actor_policy(state: TrainState, low: np.ndarray, high: np.ndarray) -> GaussianPolicy:
    """A copy of the actor in NumPy, sampling actions between these bounds."""
    layers = jax.tree.map(np.array, (*state.learner.actor.layers, state.learner.actor.head))
    statistics = state.observation_statistics
    return GaussianPolicy(
        weights=tuple(layer.weight for layer in layers),
        biases=tuple(layer.bias for layer in layers),
        observation_mean=np.array(statistics.mean),
        observation_deviation=np.asarray(statistics.deviation()),
        low=low,
        high=high,
    )
