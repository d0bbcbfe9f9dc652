"""How long it takes to load a D4RL file of a million steps and to draw a batch of windows, beside a training step.

python benchmarks/data_speed.py      writes results/data-speed.json
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

import equinox as eqx
import h5py
import jax
import numpy as np

import koopax
from koopax._provenance import provenance
from koopax.data.windows import WindowSampler
from koopax.training.config import TrainConfig
from koopax.training.fit import resolved
from koopax.training.loop import Programs, fresh_state

STEPS, STATE, ACTION = 1_000_000, 17, 6
BATCH, HORIZON = 256, 100


def write_d4rl(path: Path) -> None:
    """A file of HalfCheetah's shape in D4RL's format: episodes of 1000 steps."""
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(STEPS, STATE)).astype(np.float32)
    with h5py.File(path, "w") as file:
        file["observations"] = observations
        file["next_observations"] = np.roll(observations, -1, axis=0)
        file["actions"] = rng.uniform(-1, 1, size=(STEPS, ACTION)).astype(np.float32)
        file["rewards"] = rng.normal(size=STEPS).astype(np.float32)
        file["terminals"] = np.zeros(STEPS, bool)
        file["timeouts"] = np.arange(1, STEPS + 1) % 1000 == 0


def median_seconds(function, rounds: int) -> float:
    """Of so many rounds, after one that is not counted."""
    function()
    samples = []
    for _ in range(rounds):
        began = time.perf_counter()
        function()
        samples.append(time.perf_counter() - began)
    return statistics.median(samples)


def main() -> None:
    """Measure and write."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "halfcheetah_expert-v2.hdf5"
        write_d4rl(path)
        load = median_seconds(lambda: koopax.load(str(path)), 3)
        data = koopax.load(str(path))

    sampler = WindowSampler(data, HORIZON)
    draw = eqx.filter_jit(lambda sampler, key: sampler.sample(key, BATCH))
    sample = median_seconds(lambda: jax.block_until_ready(draw(sampler, jax.random.key(0))), 20)

    config = resolved(TrainConfig(horizon=HORIZON, batch_size=BATCH), "koopman")
    model = koopax.DynamicsModel.create("koopman", data, key=jax.random.key(0))
    programs, key = Programs(data, None, config), jax.random.key(0)
    programs.compile(fresh_state(model, config), key)
    states = iter([fresh_state(model, config) for _ in range(6)])
    train = median_seconds(lambda: programs.advance(next(states), [0.5] * 10, key), 5) / 10

    found = {
        "command": "python benchmarks/data_speed.py",
        "load_seconds": round(load, 3),
        "sample_milliseconds": round(1000 * sample, 3),
        "training_step_milliseconds": round(1000 * train, 1),
        "sample_share_of_step": round(sample / train, 4),
        **provenance(),
    }
    Path("results/data-speed.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps({name: value for name, value in found.items() if "second" in name or "share" in name}, indent=2))


if __name__ == "__main__":
    main()
