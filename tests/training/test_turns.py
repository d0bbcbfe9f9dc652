"""Trainings that take turns: each is what it would be alone, and time is shared evenly."""

import os
import signal

import numpy as np
import pytest

from koopax.data import save
from koopax.data.episodes import Episodes
from koopax.training.config import TrainConfig
from koopax.training.run import Run
from koopax.training.tasks import TrainTask, run_task, splits
from koopax.training.turns import run_tasks_in_turns

SMALL = {
    "koopman": {"latent_size": 8, "encoder_hidden": (8,), "decoder_hidden": (8,), "action_history": 1},
    "mlp": {"latent_size": 8, "hidden": 8, "encoder_hidden": (8,), "decoder_hidden": (8,)},
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    rng = np.random.default_rng(0)
    episodes = [(rng.normal(size=(41, 3)), rng.uniform(-1, 1, size=(40, 1)), rng.normal(size=40)) for _ in range(8)]
    path = tmp_path_factory.mktemp("turns") / "data.npz"
    save(Episodes.from_arrays(*map(list, zip(*episodes, strict=True))), path)
    return str(path)


def task(source, model, **settings):
    config = TrainConfig(horizon=4, batch_size=2, validation_windows=8, **settings)
    return TrainTask(source=source, model=model, model_options=SMALL[model], train=config)


@pytest.mark.slow
def test_a_turn_leaves_the_run_that_it_would_be_alone(source, tmp_path):
    tasks = [task(source, model, steps=12, log_every=5) for model in SMALL]
    folders = [tmp_path / model for model in SMALL]
    seen = []
    turns = run_tasks_in_turns(tasks, folders, splits(tasks[0]), slice_seconds=1e-6, watch=seen.append)
    for one, turn, model in zip(tasks, turns, SMALL, strict=True):
        assert isinstance(turn.outcome, Run)
        assert turn.outcome.stopped == "finished"
        assert turn.slices > 1
        alone = run_task(one, tmp_path / f"{model}-alone")
        states = np.zeros(3), np.ones((4, 1))
        np.testing.assert_array_equal(turn.outcome.model.rollout(*states).states, alone.model.rollout(*states).states)
    assert seen[-1]["step"] == 24


def test_time_is_shared_and_every_clock_counts_its_own(source, tmp_path):
    tasks = [task(source, model, seconds=0.4) for model in SMALL]
    turns = run_tasks_in_turns(tasks, [tmp_path / m for m in SMALL], splits(tasks[0]), slice_seconds=0.1)
    for turn in turns:
        assert isinstance(turn.outcome, Run)
        assert turn.outcome.stopped == "time"
        assert turn.outcome.seconds >= 0.4
        assert 1 <= turn.slices <= 5  # a slice of 0.1 s or more, however slow the machine


@pytest.mark.slow
def test_an_interrupt_ends_all_and_a_second_call_goes_on(source, tmp_path):
    tasks = [task(source, model, steps=12, log_every=5) for model in SMALL]
    folders, episodes = [tmp_path / model for model in SMALL], splits(tasks[0])

    def interrupt(line):
        if line["step"] < 20:
            os.kill(os.getpid(), signal.SIGTERM)

    turns = run_tasks_in_turns(tasks, folders, episodes, slice_seconds=1e-6, watch=interrupt)
    assert [turn.outcome.stopped for turn in turns] == ["interrupted"] * 2
    turns = run_tasks_in_turns(tasks, folders, episodes, slice_seconds=1e-6)
    assert [(turn.outcome.stopped, turn.outcome.step) for turn in turns] == [("finished", 12)] * 2
