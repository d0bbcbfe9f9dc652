"""Runs that are resumed from a stranger's checkpoint: the digests are right, and nothing else need be."""

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from mutations import mutate_arrays, mutate_json

from koopax._checkpoint import Checkpoint, Checkpoints
from koopax.agents import TDMPCConfig
from koopax.agents.run import AgentRun
from koopax.agents.tdmpc.train import TDMPCTraining
from koopax.models.dynamics import DynamicsModel
from koopax.training.config import TrainConfig
from koopax.training.loop import fresh_state
from koopax.training.record import Keeping, Record
from koopax.training.settings import resolved

TDMPC = TDMPCConfig(
    task="Pendulum-v1",
    dynamics="mlp",
    horizon=2,
    latent_size=4,
    encoder_hidden=(4,),
    reward_hidden=(4,),
    hidden=(4, 4),
    replay_size=500,
)


@functools.cache
def beginning() -> tuple[DynamicsModel, TrainConfig, Any]:
    from targets import model

    one, config = model(), resolved(TrainConfig(horizon=2, steps=5), "koopman")
    return one, config, fresh_state(one, config)


def make_training(folder: Path) -> Path:
    """A run folder with a checkpoint, without the training."""
    model, config, state = beginning()
    record = Record(model, config, folder / "run", Keeping())
    try:
        record.open(state)
        record.validated(0, model, {"state": 0.5, "reward": 0.5})
        record.save(state)
    finally:
        record.close()
    return folder / "run"


def resume_training(folder: Path) -> Any:
    """Return to the checkpoint, as far as the first step."""
    model, config, state = beginning()
    record = Record(model, config, folder, Keeping(resume=True))
    try:
        return record.open(state)
    finally:
        record.close()


def make_tdmpc(folder: Path) -> Path:
    """An agent's run folder with a checkpoint after one episode, without any learning."""
    training = TDMPCTraining(TDMPC)
    run = AgentRun(folder / "run", TDMPC, resume=False)
    with run.begin(training):
        rng = np.random.default_rng(0)
        training.replay.add(rng.normal(size=(6, 3)), rng.normal(size=(5, 1)), rng.normal(size=5), False)
        training.counters.losses, training.counters.pending = {"loss": 0.5}, {"return": 1.0}
        run.write(evaluation_return=1.0)
        run.save(training)
    training.close()
    return folder / "run"


def resume_tdmpc(folder: Path) -> Any:
    """Return to the checkpoint, as far as the first decision."""
    training = TDMPCTraining(TDMPC)
    try:
        with AgentRun(folder, TDMPC, resume=True).begin(training):
            return training.replay.filled
    finally:
        training.close()


def spoil_content(path: Path, rng: np.random.Generator) -> None:
    """Another header or other arrays in the newest checkpoint, with the right digests."""
    checkpoints = Checkpoints(path / "checkpoints")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = checkpoints.load()
    assert found is not None
    header, arrays = dict(found.header), found.arrays
    if rng.random() < 0.7:
        header = mutate_json(header, rng)
    else:
        arrays = mutate_arrays(arrays, rng)
    checkpoints.save(
        Checkpoint(header, {name or "nameless": array for name, array in arrays.items()}), checkpoints.last
    )
