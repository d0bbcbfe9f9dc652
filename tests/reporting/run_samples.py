"""Run folders at a small size: models that are trained, and agents as their training leaves them."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax

from koopax.agents import SACConfig, TDMPCConfig
from koopax.agents.config import AgentConfig
from koopax.data.fingerprint import fingerprint
from koopax.models.dynamics import DynamicsModel
from koopax.training.config import TrainConfig
from koopax.training.tasks import TrainTask, read_task, run_task, splits

HORIZON = 12
SMALL = {"latent_size": 8, "encoder_hidden": (8,), "decoder_hidden": (8,)}


def train(source: Path, model: str, folder: Path, seed: int = 0) -> Path:
    config = TrainConfig(horizon=HORIZON, steps=6, batch_size=4, seed=seed, log_every=2, validate_every=3)
    run_task(TrainTask(source=str(source), model=model, train=config, model_options=SMALL), folder)
    return folder


def untrained(like: Path, folder: Path, model: str, *, seed: int = 0, source: Path | None = None) -> Path:
    """A run folder as if `model` had been trained like another run; nothing is compiled, so it costs nothing."""
    document = json.loads((like / "config.json").read_text())
    document["train"]["seed"] = seed
    document["data"] |= {"model": model, "source": str(source or document["data"]["source"])}
    shutil.copytree(like, folder)
    (folder / "config.json").write_text(json.dumps(document))
    episodes = splits(read_task(folder)).train
    made = DynamicsModel.create(model, episodes, key=jax.random.key(seed), **SMALL)
    document["model"] = dataclasses.asdict(made.config)
    document["fingerprint"] = fingerprint(episodes)
    (folder / "config.json").write_text(json.dumps(document))
    made.save(folder / "model.koopax")
    return folder


def write_agent(folder: Path, document: dict, lines: list[dict], name: str = "metrics.jsonl") -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(document))
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def agent_document(config: AgentConfig) -> dict:
    """The config.json of an agent's run."""
    settings = {"agent": dataclasses.asdict(config), "commit": "0" * 40}
    return {"format": 1, "kind": config.kind, "task": config.environment, **settings}


def sac_run(folder: Path, *, seed: int = 0, level: float = 3000.0, env: str = "Hopper-v5") -> Path:
    """As `koopax agent train sac` leaves it."""
    lines = [
        {"environment_steps": 1000 * i, "decisions": 1000 * i, "seconds": 2.0 * i, "evaluation_return": level * i / 5}
        for i in range(1, 6)
    ]
    return write_agent(folder, agent_document(SACConfig(env=env, seed=seed)), lines)


def tdmpc_run(folder: Path, *, seed: int = 0, level: float = 500.0, task: str = "cheetah-run", dynamics="koopman"):
    """As `koopax agent train tdmpc` leaves it: a line per episode, of which every second was evaluated after."""
    lines = []
    for i in range(1, 7):
        line = {"environment_steps": 1000 * i, "decisions": 250 * i, "return": -1.0, "seconds": 3.0 * i}
        line |= {"plan_length": i, "consistency_errors": [0.1 * i, 0.2 * i]}
        lines.append(line if i % 2 else line | {"evaluation_return": level * i / 6})
    return write_agent(folder, agent_document(TDMPCConfig(task=task, dynamics=dynamics, seed=seed)), lines)


def old_sac_run(folder: Path) -> Path:
    """As it was left before agents shared a kind of folder: settings alone, and a curve."""
    lines = [
        {"steps": 1000 * i, "updates": 250 * i, "seconds": 2.0 * i, "return_mean": 600.0 * i, "return_min": 1.0}
        for i in range(1, 6)
    ]
    return write_agent(folder, dataclasses.asdict(SACConfig(env="Hopper-v5", seed=1)), lines, "curve.jsonl")


def old_tdmpc_run(folder: Path) -> Path:
    """The same of TD-MPC: settings under `config`, and other names in its metrics."""
    lines = []
    for i in range(1, 7):
        line = {"step": 1000 * i, "decisions": 250 * i, "env_steps": 1000 * i, "return": -1.0, "seconds": 3.0 * i}
        lines.append(line if i % 2 else line | {"evaluation_return": 80.0 * i})
    config = dataclasses.asdict(TDMPCConfig(task="cheetah-run", seed=1))
    return write_agent(folder, {"agent": "tdmpc", "config": config, "commit": "0" * 40}, lines)
