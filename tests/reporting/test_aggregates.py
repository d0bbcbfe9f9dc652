"""Scores of agents, their aggregates, and the command that prints them."""

import json

import numpy as np
import pytest
from run_samples import sac_run, tdmpc_run, write_agent

from koopax._errors import KoopaxError
from koopax.reporting.aggregates import describe, gather
from koopax.reporting.runs import read_runs


@pytest.fixture
def agents(tmp_path):
    for dynamics, level in (("koopman", 600.0), ("mlp", 300.0)):
        for task in ("cheetah-run", "walker-walk"):
            for seed in range(3):
                name = f"{dynamics}-{task}-{seed}"
                tdmpc_run(tmp_path / name, seed=seed, level=level + 10 * seed, task=task, dynamics=dynamics)
    return tmp_path


def test_scores_are_shares_of_the_best_return(agents):
    scores = gather(read_runs([agents]).agents)
    assert scores.tasks == ("cheetah-run", "walker-walk")
    np.testing.assert_allclose(scores.matrices["tdmpc · koopman"], [[0.6] * 2, [0.61] * 2, [0.62] * 2])
    early = gather(read_runs([agents]).agents, at=4500.0)
    np.testing.assert_allclose(early.matrices["tdmpc · mlp"][0], [0.2, 0.2])


def test_aggregates_by_hand(agents):
    document = describe(gather(read_runs([agents]).agents), repetitions=200)
    koopman, mlp = document["agents"]
    assert koopman["agent"] == "tdmpc · koopman"
    assert koopman["mean"]["value"] == pytest.approx(0.61)
    assert koopman["optimality_gap"]["value"] == pytest.approx(0.39)
    assert koopman["iqm"]["low"] <= koopman["iqm"]["value"] <= koopman["iqm"]["high"]
    above = np.array(koopman["profile"]["value"])
    assert above[0] == 1
    assert above[-1] == 0
    assert mlp["mean"]["high"] < koopman["mean"]["low"]


def test_runs_are_compared_where_all_have_come(tmp_path):
    sac_run(tmp_path / "long", level=3234)
    lines = [{"environment_steps": 2000, "evaluation_return": 100.0}]
    document = json.loads((tmp_path / "long" / "config.json").read_text())
    document["agent"]["seed"] = 1
    write_agent(tmp_path / "short", document, lines)
    scores = gather(read_runs([tmp_path]).agents)
    assert scores.steps == (2000,)
    np.testing.assert_allclose(scores.matrices["sac"], [[0.4], [100 / 3234]])


def test_tasks_that_not_all_tried_are_left_out(agents):
    tdmpc_run(agents / "more", task="acrobot-swingup")
    scores = gather(read_runs([agents]).agents)
    assert "acrobot-swingup" not in scores.tasks
    assert any("acrobot-swingup" in note for note in scores.notes)


def test_unknown_tasks_are_scaled_by_the_best_run(tmp_path):
    sac_run(tmp_path / "a", env="Mine-v0", level=40)
    sac_run(tmp_path / "b", env="Mine-v0", level=20, seed=1)
    scores = gather(read_runs([tmp_path]).agents)
    np.testing.assert_allclose(scores.matrices["sac"], [[1.0], [0.5]])
    assert "1 is the best return of these runs" in scores.notes[0]


def test_nothing_in_common(tmp_path, folders):
    sac_run(tmp_path / "a")
    tdmpc_run(tmp_path / "b")
    with pytest.raises(KoopaxError, match="no task was tried by all agents"):
        gather(read_runs([tmp_path]).agents)
    with pytest.raises(KoopaxError, match="no runs of agents"):
        gather(read_runs([folders["mlp"]]).agents)
