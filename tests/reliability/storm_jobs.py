"""What the storm interrupts: each job begins in a folder, or goes on there, and leaves results that can be compared.

python storm_jobs.py train FOLDER
"""

import json
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

TDMPC = {
    "task": "Pendulum-v1",
    "steps": 1200,
    "horizon": 3,
    "latent_size": 8,
    "encoder_hidden": (8,),
    "reward_hidden": (8,),
    "hidden": (8, 8),
    "batch_size": 8,
    "samples": 8,
    "elites": 4,
    "proposals": 2,
    "iterations": 1,
    "seed_decisions": 200,
    "evaluate_every": 400,
    "evaluate_episodes": 1,
    "final_episodes": 1,
    "updates_per_decision": 0.1,
}
PIXELS = {
    "task": "cartpole-swingup",
    "steps": 480,
    "image_size": 32,
    "shift": 2,
    "hidden": (16,),
    "latent_size": 16,
    "batch_size": 8,
    "random_decisions": 20,
    "updates_per_decision": 0.2,
    "replay_steps": 40,  # fewer than the decisions, so that old frames make room
    "evaluate_every": 240,
    "evaluate_episodes": 1,
    "final_episodes": 1,
    "processes": 1,
    "checkpoint_seconds": 0.0,
}
MODEL = {"latent_size": 8, "encoder_hidden": (8,), "decoder_hidden": (8,)}


def dataset(folder: Path) -> Path:
    """A small set of a pendulum-like system, made once."""
    from koopax.data import Episodes, save

    path = folder.parent / "data.npz"
    if not path.exists():
        rng = np.random.default_rng(0)
        states = np.cumsum(rng.normal(size=(10, 41, 2)), axis=1)
        save(Episodes.from_arrays(states, rng.normal(size=(10, 40, 1)), states[:, 1:, 0]), path)
    return path


def run_cli(*words: object) -> None:
    from koopax import cli

    sys.argv = ["koopax", *map(str, words)]
    cli.main()


def train(folder: Path) -> None:
    if (folder / "run" / "config.json").exists():
        run_cli("train", "--resume", folder / "run")
        return
    every = ("--checkpoint-every", 40, "--log-every", 20, "--validate-every", 30)
    sizes = ("--model", "koopman", "--latent-size", 8, "--horizon", 5, "--batch-size", 4, "--steps", 600)
    run_cli("train", dataset(folder), *sizes, *every, "--out", folder / "run")


def auto(folder: Path) -> None:
    if (folder / "run" / "auto.json").exists():
        run_cli("train", "--resume", folder / "run")
        return
    sizes = ("--model", "auto", "--horizon", 5, "--batch-size", 4, "--steps", 200, "--reencode-every", 5)
    run_cli("train", dataset(folder), *sizes, "--checkpoint-every", 40, "--out", folder / "run")


def seeds(folder: Path) -> None:
    if list(folder.glob("run/seed-*/config.json")):
        run_cli("train", "--resume", folder / "run")
        return
    sizes = ("--model", "mlp", "--latent-size", 8, "--horizon", 5, "--batch-size", 4, "--steps", 500, "--seeds", 4)
    run_cli("train", dataset(folder), *sizes, "--checkpoint-every", 100, "--out", folder / "run")


def tdmpc(folder: Path) -> None:
    from koopax.agents import TDMPCConfig, train_tdmpc
    from koopax.agents.run import holds_run

    result = train_tdmpc(TDMPCConfig(**TDMPC), folder / "run", resume=holds_run(folder / "run"))
    sys.exit(130 if result.interrupted else 0)


def pixels(folder: Path) -> None:
    from koopax.agents import pixel_arm, train_pixel_sac
    from koopax.agents.run import holds_run

    result = train_pixel_sac(pixel_arm("koopman", **PIXELS), folder / "run", resume=holds_run(folder / "run"))
    sys.exit(130 if result.interrupted else 0)


def collect(folder: Path) -> None:
    settings = ("--env", "Pendulum-v1", "--steps", 40_000, "--workers", 2)
    run_cli("data", "collect", *settings, "--out", folder / "set.npz", "--overwrite")


def grid(folder: Path) -> None:
    from koopax.experiments.experiment import Place
    from koopax.experiments.grid import Cell, Interrupted, Testing, run_grid
    from koopax.training.config import TrainConfig
    from koopax.training.tasks import TrainTask

    @contextmanager
    def silent(name: str, steps: Any, seconds: Any):
        yield lambda line: None

    settings = {"horizon": 5, "batch_size": 4, "steps": 300, "checkpoint_every": 50, "validate_every": 50}
    cells = [
        Cell(f"{core}-{seed}", {"core": core, "seed": seed}, TrainTask(str(dataset(folder)), core, config, {}, options))
        for core, options in (("koopman", MODEL), ("mlp", {"latent_size": 8}))
        for seed in (0, 1)
        for config in [TrainConfig(seed=seed, **settings)]
    ]
    place = Place(folder / "results", folder / "work", lambda text: None, silent)
    try:
        run_grid(cells, Testing(horizon=5, windows=16), place)
    except Interrupted:
        sys.exit(130)


JOBS: dict[str, Callable[[Path], None]] = {
    "train": train,
    "tdmpc": tdmpc,
    "pixels": pixels,
    "collect": collect,
    "grid": grid,
    "seeds": seeds,
    "auto": auto,
}


def import_everything() -> None:
    """Import what the jobs use, without a device being asked for anything: only then may the process fork."""
    import gymnasium.envs.classic_control.pendulum  # noqa: F401

    import koopax.agents
    import koopax.cli
    import koopax.experiments.grid
    import koopax.training.auto  # noqa: F401


CLOCK = ("seconds", "spent", "compile_seconds", "wall_seconds")
TIMES = (*CLOCK, "conditions", "versions", "commit", "machine", "outcome")


def results(folder: Path) -> dict[str, Any]:
    """All that a finished job has found, without times: equal for equal runs."""
    from koopax._checkpoint import Checkpoints

    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix in (".koopax", ".npz") and path.parent.name not in ("checkpoints", "replay"):
            found[name] = path.read_bytes()
        elif path.name == "metrics.jsonl":
            found[name] = [timeless(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.parent.name == "cells":
            found[name] = timeless(json.loads(path.read_text()))
        elif path.name == "checkpoints":
            checkpoint = Checkpoints(path).load()
            assert checkpoint is not None
            found[name] = {key: (array.dtype.str, array.tobytes()) for key, array in checkpoint.arrays.items()}
    return found


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: timeless(each) for name, each in value.items() if name not in (*TIMES, "made_of")}
    return [timeless(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    JOBS[sys.argv[1]](Path(sys.argv[2]))
