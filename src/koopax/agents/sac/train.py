"""The training loop: step the environments, learn, evaluate, snapshot, checkpoint; resumable bit for bit."""

import contextlib
import dataclasses
import importlib.metadata
import json
import math
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError
from koopax._interrupt import StopRequest
from koopax.agents.sac.agent import TrainState, make_state, remember, remember_and_learn
from koopax.agents.sac.checkpoint import CHECKPOINT, load_checkpoint, read_header, save_checkpoint
from koopax.agents.sac.config import SACConfig
from koopax.agents.sac.replay import Transitions
from koopax.collection.policies import GaussianPolicy, RandomPolicy
from koopax.envs import LockStep, episode_returns

CURVE = "curve.jsonl"
CONFIG = "config.json"
SNAPSHOTS = "snapshots"
CHANGEABLE = ("steps", "evaluate_every", "evaluate_episodes", "snapshot_every", "checkpoint_seconds")
"""Settings that may differ when a run is resumed."""


class TrainResult(NamedTuple):
    """What `train` leaves behind: the folder, the last policy and how far it came."""

    out: Path
    policy: GaussianPolicy
    steps: int
    curve: list[dict[str, Any]]
    interrupted: bool


@dataclasses.dataclass
class _Run:
    """The moving parts of a run."""

    config: SACConfig
    out: Path
    envs: LockStep
    state: TrainState
    steps: int = 0
    seconds: float = 0.0
    metrics: dict[str, jax.Array] = dataclasses.field(default_factory=dict)

    def policy(self) -> GaussianPolicy:
        return export_policy(self.state, self.config, self.envs.low, self.envs.high, steps=self.steps)


def train(config: SACConfig, out: Path, *, resume: bool = False) -> TrainResult:
    """Train SAC in `config.env` and write the run to `out`; Ctrl-C or SIGTERM saves a checkpoint and returns.

    `out` gets `config.json`, `curve.jsonl` (a line per evaluation), `checkpoint.npz` and `snapshots/` with
    the policy as it was every `config.snapshot_every` steps. With `resume=True` the checkpoint in `out` is
    continued, and the numbers are those of an uninterrupted run; then the config must be the recorded one
    (`read_config(out)`), except for the fields in `CHANGEABLE`, which don't touch what is learnt.

    A line of the curve has the environment `steps` and critic `updates` so far, the wall-clock `seconds`, mean,
    lowest and highest return of the deterministic evaluation episodes, and, averaged over the last dispatch, the
    losses, the mean `q` of a batch, the policy's `entropy` and the `temperature` α.
    """
    out = Path(out)
    run = _resume(config, out) if resume else _start(config, out)
    with contextlib.closing(run.envs), StopRequest() as stop:
        _loop(run, stop)
    return TrainResult(out, run.policy(), run.steps, read_curve(out), stop.requested)


def _start(config: SACConfig, out: Path) -> _Run:
    if (out / CHECKPOINT).exists():
        raise KoopaxError(f"{str(out)!r} already holds a run; resume it or choose another folder.")
    envs = LockStep(config.env, config.num_envs, seed=config.seed)
    out.mkdir(parents=True, exist_ok=True)
    (out / CURVE).write_text("")
    (out / CONFIG).write_text(json.dumps(dataclasses.asdict(config), indent=2) + "\n")
    state = make_state(config, envs.observations.shape[1], len(envs.low))
    return _Run(config, out, envs, state)


def _resume(config: SACConfig, out: Path) -> _Run:
    recorded = read_config(out)
    for field in dataclasses.fields(config):
        old, new = getattr(recorded, field.name), getattr(config, field.name)
        if old != new and field.name not in CHANGEABLE:
            raise KoopaxError(f"{field.name} is {new!r} but {str(out)!r} was trained with {old!r}; resume with that.")
    (out / CONFIG).write_text(json.dumps(dataclasses.asdict(config), indent=2) + "\n")
    envs = LockStep(config.env, config.num_envs, seed=config.seed)
    like = jax.eval_shape(lambda: make_state(config, envs.observations.shape[1], len(envs.low)))
    state, env_state, header = load_checkpoint(out, like)
    envs.restore(env_state)
    kept = [line for line in read_curve(out) if line["steps"] <= header["steps"]]
    (out / CURVE).write_text("".join(json.dumps(line) + "\n" for line in kept))
    return _Run(config, out, envs, state, header["steps"], header["seconds"])


def _loop(run: _Run, stop: StopRequest) -> None:
    config, started, saved = run.config, time.monotonic() - run.seconds, time.monotonic()
    while run.steps < config.steps and not stop.requested:
        before = run.steps
        _dispatch(run)
        run.seconds = time.monotonic() - started
        if _passed(before, run.steps, config.evaluate_every):
            _evaluate(run)
        if config.snapshot_every and _passed(before, run.steps, config.snapshot_every):
            run.policy().save(run.out / SNAPSHOTS / f"step-{run.steps:09d}.npz")
        if time.monotonic() - saved > config.checkpoint_seconds:
            _save(run)
            saved = time.monotonic()
    _save(run)


def _dispatch(run: _Run) -> None:
    """Step the environments, then learn from the replay with the new transitions in it."""
    config, learning = run.config, run.steps >= run.config.random_steps
    new = collect(run.envs, run.state if learning else None, config, run.steps)
    # The compiled functions know the config; what they don't use must not make them compile again.
    compiled = dataclasses.replace(config, **{name: getattr(SACConfig, name) for name in CHANGEABLE})
    if learning:
        run.state, run.metrics = remember_and_learn(run.state, new, compiled)
    else:
        run.state = remember(run.state, new, compiled)
    run.steps += config.steps_per_dispatch


def collect(envs: LockStep, state: TrainState | None, config: SACConfig, steps: int) -> Transitions:
    """`config.steps_per_dispatch` transitions with the state's policy, or with uniform actions without one.

    The noise depends on the seed and on the number of steps taken so far only.
    """
    ones = np.ones_like(envs.low)
    # NumPy acts for a handful of environments in a tenth of the time that a dispatch to the device takes.
    explorer = RandomPolicy(-ones, ones) if state is None else actor_policy(state, -ones, ones)
    blocks = []
    for i in range(config.lock_steps):
        rng = np.random.default_rng((config.seed, steps + i * config.num_envs))
        actions = explorer.act(envs.observations, rng)
        taken = envs.step(envs.low + 0.5 * (envs.high - envs.low) * (actions + 1))
        continues = 1 - taken.terminated.astype(np.float32)
        blocks.append((taken.observations, actions, taken.rewards, continues, taken.next_observations))
    return Transitions(*(jnp.asarray(np.concatenate(parts)) for parts in zip(*blocks, strict=True)))


def _passed(before: int, after: int, every: int) -> bool:
    return before // every < after // every


def _evaluate(run: _Run) -> None:
    """Append a line to the curve and print it to standard error."""
    config = run.config
    metrics = {name: float(value) for name, value in run.metrics.items()}
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise KoopaxError(
                f"training diverged: {name} is {value} after {run.steps} steps; lower learning_rate and start again."
            )
    policy = run.policy().with_deterministic(True)
    returns = episode_returns(config.env, policy, config.evaluate_episodes, seed=config.seed + run.steps)
    line = {
        "steps": run.steps,
        "updates": int(run.state.learner.updates),
        "seconds": round(run.seconds, 1),
        "return_mean": float(np.mean(returns)),
        "return_min": float(np.min(returns)),
        "return_max": float(np.max(returns)),
        **metrics,
    }
    with open(run.out / CURVE, "a") as file:
        file.write(json.dumps(line) + "\n")
    print(
        f"{config.env} {line['steps']:>8} steps {line['updates']:>8} updates {line['seconds']:>7.0f} s  "
        f"return {line['return_mean']:8.1f} [{line['return_min']:.0f}, {line['return_max']:.0f}]",
        file=sys.stderr,
        flush=True,
    )


def _save(run: _Run) -> None:
    header = {"config": dataclasses.asdict(run.config), "steps": run.steps, "seconds": run.seconds}
    save_checkpoint(run.out, run.state, run.envs.save(), header)


def read_config(out: Path) -> SACConfig:
    """The config of the checkpoint in a run's folder."""
    recorded = read_header(Path(out))["config"]
    return SACConfig(**recorded | {"hidden_sizes": tuple(recorded["hidden_sizes"])})


def read_curve(out: Path) -> list[dict[str, Any]]:
    """The lines of a run's curve."""
    return [json.loads(line) for line in (Path(out) / CURVE).read_text().splitlines()]


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


def export_policy(
    state: TrainState, config: SACConfig, low: np.ndarray, high: np.ndarray, *, steps: int
) -> GaussianPolicy:
    """The actor as a policy for the environment's action bounds, with its provenance."""
    provenance = {
        "env": config.env,
        "seed": config.seed,
        "training_steps": steps,
        "training_updates": int(state.learner.updates),
        "koopax": importlib.metadata.version("koopax"),
    }
    return dataclasses.replace(actor_policy(state, low, high), provenance=provenance)
