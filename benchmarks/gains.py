"""What each choice gains: a training step of the Koopman model as it is, and with one choice at a time undone.

python benchmarks/gains.py      writes results/speed-gains.json and prints the table of docs/performance.md
"""

import json
import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._provenance import provenance
from koopax.data import load
from koopax.data.windows import WindowSampler
from koopax.experiments.bench_clock import interleave, rounded, usable_cores
from koopax.models.dynamics import DynamicsModel
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import CORES, LatentDynamics
from koopax.models.presets import PRESETS
from koopax.training.config import TrainConfig
from koopax.training.state import initial_state, train_step

SOURCE, STEPS, ROUNDS = "koopax/halfcheetah/expert-v0", 100_000, 7
DEFAULT = TrainConfig(horizon=100, batch_size=256, learning_rate=1e-3, loss_stride=10)
EVERY_STEP = replace(DEFAULT, loss_stride=1)


class EveryLatent(KoopmanCore):
    """A Koopman core that visits every latent, also those that no loss looks at."""

    rollout_every = LatentDynamics.rollout_every


CORES["koopman-every-latent"] = "__main__:EveryLatent"


@dataclass(frozen=True)
class Arm:
    """A training step, and the arm that it is compared with."""

    config: TrainConfig = DEFAULT
    """Settings of training."""
    options: dict[str, Any] = field(default_factory=dict)
    """What differs from the default model."""
    preset: str = "koopman"
    """The model."""
    against: str = "default"
    """The arm that undoes nothing."""


ARMS = {
    "default": Arm(),
    "every latent visited, loss on every tenth": Arm(options={"core": "koopman-every-latent"}),
    "loss on every step": Arm(EVERY_STEP),
    "consistency on every step": Arm(replace(EVERY_STEP, consistency_steps=None), against="loss on every step"),
    "associative scan": Arm(EVERY_STEP, {"recurrence": "associative"}, against="loss on every step"),
    "FFT": Arm(EVERY_STEP, {"recurrence": "fft"}, against="loss on every step"),
    "action embedding of 64 instead of 16": Arm(options={"action_embedding": 64, "action_hidden": (128,)}),
    "published widths, loss on every step": Arm(EVERY_STEP, preset="koopman-paper", against="loss on every step"),
    "gradient in chunks of 20 steps": Arm(replace(EVERY_STEP, time_chunk=20), against="loss on every step"),
}


def compiled(arm: Arm, data) -> Any:
    """A function that takes so many training steps and waits for the last."""
    options = dict(PRESETS[arm.preset]) | arm.options
    model = DynamicsModel.create(options.pop("core"), data, key=jax.random.key(0), **options)
    fixed = WindowSampler(data, arm.config.horizon, time_major=True), jnp.full((), 0.5), jax.random.key(0)

    def advance(fixed, state):
        sampler, progress, key = fixed
        return train_step(state, sampler, progress, arm.config, key)

    state = initial_state(model, arm.config)
    step = eqx.filter_jit(advance, donate="all-except-first").lower(fixed, state).compile()

    def run(repeats: int) -> None:
        nonlocal state
        for _ in range(repeats):
            state = step(fixed, state)
        jax.block_until_ready(state.step)

    return run


def main() -> None:
    """Measure every arm in turns and write what was found."""
    data = load(SOURCE, steps=STEPS)
    seconds = interleave({name: compiled(arm, data) for name, arm in ARMS.items()}, rounds=ROUNDS)
    median = {name: 1e3 * statistics.median(times) for name, times in seconds.items()}
    found = {
        name: {
            "milliseconds": median[name],
            "spread": [1e3 * min(seconds[name]), 1e3 * max(seconds[name])],
            "against": arm.against,
            "slower_by": median[name] / median[arm.against],
        }
        for name, arm in ARMS.items()
    }
    document = rounded({"batch_size": DEFAULT.batch_size, "horizon": DEFAULT.horizon, "arms": found})
    path = Path("results/speed-gains.json")
    path.write_text(json.dumps(document | {"cores": usable_cores(), **provenance()}, indent=2) + "\n")
    for name, row in document["arms"].items():
        print(f"| {name} | {row['milliseconds']:.0f} ms | {row['slower_by']:.2f} × {row['against']} |")


if __name__ == "__main__":
    main()
