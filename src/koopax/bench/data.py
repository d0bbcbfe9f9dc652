"""How long it takes to load a D4RL file of a million steps and to draw a batch of windows, beside a training step."""

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import h5py
import jax
import numpy as np

from koopax._errors import KoopaxError
from koopax.bench.clock import Watch, interleave
from koopax.bench.document import document
from koopax.data.episodes import Episodes
from koopax.data.loading import load
from koopax.data.windows import WindowSampler
from koopax.models.dynamics import DynamicsModel
from koopax.models.presets import preset
from koopax.training.config import TrainConfig
from koopax.training.loop import fresh_state
from koopax.training.programs import Programs
from koopax.training.settings import resolved

STATE, ACTION, EPISODE = 17, 6, 1000
MODEL = "koopman"


def measure(
    *,
    steps: int = 1_000_000,
    batch_size: int = 256,
    horizon: int = 100,
    rounds: int = 5,
    watch: Watch = lambda done, total: None,
) -> dict[str, Any]:
    """The document that `koopax bench data --json` prints.

    Args:
        steps: environment steps in the file, in episodes of 1000.
        batch_size: windows in a batch.
        horizon: steps of a window.
        rounds: interleaved rounds; the median counts.
        watch: told how many visits are done, and of how many.
    """
    if min(batch_size, horizon, rounds) < 1 or steps < EPISODE:
        raise KoopaxError(
            f"{steps} steps in batches of {batch_size} × {horizon}, {rounds} rounds: give a whole episode of {EPISODE} "
            "steps and one or more of the others."
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "halfcheetah_expert-v2.hdf5"
        write_d4rl(path, steps)
        data = load(str(path))
        cases = {
            "load": _repeated(lambda: load(str(path))),
            "sample": _sampling(data, batch_size, horizon),
            "train": _training(data, batch_size, horizon),
        }
        taken = interleave(cases, rounds=rounds, watch=watch)
    median = {name: statistics.median(seconds) for name, seconds in taken.items()}
    settings = {"steps": steps, "batch_size": batch_size, "horizon": horizon, "rounds": rounds, "model": MODEL}
    found = {
        "load_seconds": median["load"],
        "sample_milliseconds": 1e3 * median["sample"],
        "training_step_milliseconds": 1e3 * median["train"],
        "sample_share_of_step": median["sample"] / median["train"],
        "spread": {name: [min(seconds), max(seconds)] for name, seconds in taken.items()},
    }
    return document("data", settings, found)


def write_d4rl(path: Path, steps: int) -> None:
    """A file of HalfCheetah's shape in D4RL's format: episodes of 1000 steps."""
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(steps, STATE)).astype(np.float32)
    with h5py.File(path, "w") as file:
        file["observations"] = observations
        file["next_observations"] = np.roll(observations, -1, axis=0)
        file["actions"] = rng.uniform(-1, 1, size=(steps, ACTION)).astype(np.float32)
        file["rewards"] = rng.normal(size=steps).astype(np.float32)
        file["terminals"] = np.zeros(steps, bool)
        file["timeouts"] = np.arange(1, steps + 1) % EPISODE == 0


def _repeated(function: Callable[[], Any]) -> Callable[[int], None]:
    def run(repeats: int) -> None:
        for _ in range(repeats):
            function()

    return run


def _sampling(data: Episodes, batch_size: int, horizon: int) -> Callable[[int], None]:
    sampler = WindowSampler(data, horizon)
    draw = eqx.filter_jit(lambda sampler, key: sampler.sample(key, batch_size))
    return _repeated(lambda: jax.block_until_ready(draw(sampler, jax.random.key(0))))


def _training(data: Episodes, batch_size: int, horizon: int) -> Callable[[int], None]:
    config = resolved(TrainConfig(horizon=horizon, batch_size=batch_size), MODEL)
    model = DynamicsModel.create(data=data, key=jax.random.key(0), **preset(MODEL))
    programs, key, state = Programs(data, None, config), jax.random.key(0), fresh_state(model, config)
    programs.compile(state, key)

    def run(repeats: int) -> None:
        nonlocal state
        state = programs.advance(state, [0.5] * repeats, key)

    return run
