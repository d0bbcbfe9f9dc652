"""The planning grid: its cells, and a smoke run through the real command line with a stop in the middle."""

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from koopax.experiments import planning, planning_decay
from koopax.experiments.planning import BUDGETS, PUBLISHED_RETURNS, cells, comparable_scores, curves, summarise

KOOPAX = Path(sys.executable).with_name("koopax")


def fake(task, arm, seed, value):
    config = {"steps": 100_000, "seed_decisions": 10}
    curve = [
        {"env_steps": 1000 * (i + 1), "decisions": 250 * (i + 1), "return": value * i / 9}
        | ({"evaluation_return": value * i / 9} if i % 3 == 0 else {})
        for i in range(10)
    ]
    return {
        "labels": {"task": task, "arm": arm, "seed": seed},
        "made_of": {"config": config},
        "return": value,
        "curve": curve,
    }


def test_the_paper_budget_is_the_papers_grid():
    found = cells(BUDGETS["paper"])
    assert len({cell.name for cell in found}) == len(found) == 4 * 5 * 3
    assert {cell.config.task for cell in found} == set(PUBLISHED_RETURNS)
    compared = found[: 4 * 5 * 2]
    assert {(cell.config.dynamics, cell.config.horizon) for cell in compared} == {("mlp", 5), ("koopman", 20)}
    assert {cell.config.samples for cell in found} == {512}


def test_aggregates_use_tasks_with_seeds_in_every_arm():
    found = [fake("cheetah-run", arm, seed, 500 + 100 * seed) for arm in ("a", "b") for seed in range(2)]
    found += [fake("acrobot-swingup", arm, 0, 50) for arm in ("a", "b")]
    scores = comparable_scores(found)
    np.testing.assert_allclose(scores["a"], [[0.5], [0.6]])
    summary = summarise(found)
    aggregates = summary.document["aggregates"]
    assert aggregates["tasks"] == ["cheetah-run"]
    assert aggregates["arms"]["b"]["mean"]["value"] == pytest.approx(0.55)
    assert "| cheetah-run | 550 ± " in summary.sections[0]
    assert "| 603 | 2/2 |" in summary.sections[0]
    assert len(curves(found).axes) == 3


def test_sweep_reports_training_returns_after_the_random_ones():
    budget = planning_decay.BUDGETS["cpu"]
    found = [fake("cheetah-run", f"rho={decay}", 0, 90.0) for decay in budget.decays]
    document = planning_decay.summarise(found).document
    assert document["rho=0.9"] == {"return": 90.0, "training_return": pytest.approx(45.0)}
    swept = planning_decay.cells(budget)
    assert [cell.config.decay for cell in swept] == list(budget.decays)
    assert len({dataclasses.replace(cell.config, decay=1.0) for cell in swept}) == 1


@pytest.mark.slow
def test_smoke_stops_and_goes_on(tmp_path):
    command = [KOOPAX, "reproduce", "planning", "--budget", "smoke"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    results = tmp_path / "results" / "planning" / "smoke"
    while not list(results.glob("cells/*.json")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    before = {path.name: path.read_text() for path in results.glob("cells/*.json")}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert before.items() <= {path.name: path.read_text() for path in results.glob("cells/*.json")}.items()
    document = json.loads((results / "summary.json").read_text())
    assert set(document["tables"]["returns"]["cheetah-run"]) == set(planning.ARMS)
    assert (results / "figure.png").stat().st_size > 1000
    assert "optimality gap" in done.stdout
