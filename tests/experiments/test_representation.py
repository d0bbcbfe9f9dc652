"""The representation grid: its cells, its summary, and a smoke run of every arm through the registry."""

import contextlib
import json

import numpy as np
import pytest

from koopax._errors import KoopaxError
from koopax.agents import pixel_arm
from koopax.experiments.agent_grid import AgentCell, deciding, made_of
from koopax.experiments.experiment import away
from koopax.experiments.grid import Job, finished, path_of
from koopax.experiments.representation import ARMS, BUDGETS, PUBLISHED_RETURNS, cells, curves, summarise
from koopax.experiments.reproduce import reproduce
from koopax.training.run import write_json


def fake(task, arm, seed, value):
    curve = [{"env_steps": 1000 * (i + 1), "return": value * i / 9} for i in range(10)]
    curve += [{"env_steps": 10_000 * (i + 1), "evaluation_return": value * i / 3} for i in range(4)]
    return {
        "labels": {"task": task, "arm": arm, "seed": seed},
        "made_of": {"config": {"steps": 100_000}},
        "return": value,
        "curve": curve,
    }


def test_the_paper_budget_is_the_papers_grid():
    found = cells(BUDGETS["paper"])
    assert len({cell.name for cell in found}) == len(found) == 5 * 5 * 4
    compared = {(cell.config.dynamics, cell.config.horizon) for cell in found[: 5 * 5 * 3]}
    assert compared == {("none", 5), ("mlp", 5), ("koopman", 5)}
    assert {(cell.config.dynamics, cell.config.horizon) for cell in found[5 * 5 * 3 :]} == {("koopman", 20)}
    assert {(cell.config.image_size, cell.config.batch_size) for cell in found} == {(84, 512)}


def test_the_grid_goes_breadth_first():
    names = [cell.name for cell in cells(BUDGETS["cpu"])]
    assert names[:3] == [f"cartpole-swingup-{arm}-seed0" for arm in ("sac", "mlp-K=5", "koopman-K=5")]
    assert len({name.split("-seed")[0] for name in names[:15]}) == 15
    assert all("seed0" in name for name in names[:15])


def test_the_plain_arm_is_not_measured_again_for_a_setting_of_predictions(tmp_path):
    place = away(tmp_path)

    def kept(dynamics, weight):
        cell = AgentCell("cell", {}, pixel_arm(dynamics, prediction_weight=weight))
        return Job(cell.name, made_of(cell), deciding=deciding)

    for dynamics in ("none", "koopman"):
        write_json(path_of(kept(dynamics, 1.0), place), {"made_of": kept(dynamics, 1.0).made_of})
        assert finished(kept(dynamics, 1.0), place) is not None
        if dynamics == "none":
            assert finished(kept(dynamics, 0.1), place) is not None
        else:
            with pytest.raises(KoopaxError, match="other settings"):
                finished(kept(dynamics, 0.1), place)


def test_one_seed_has_no_interval_and_the_ablation_does_not_narrow_the_comparison():
    tasks, arms = list(PUBLISHED_RETURNS), list(ARMS)
    found = [fake(task, arm, 0, 100.0 * (i + 1)) for i, arm in enumerate(arms[:3]) for task in tasks]
    found += [fake(tasks[0], arms[3], 0, 400.0)]
    summary = summarise(found)
    aggregates = summary.document["aggregates"]
    assert (aggregates["tasks"], aggregates["runs"], list(aggregates["arms"])) == (tasks, 1, arms[:3])
    assert aggregates["arms"]["koopman K=5"]["iqm"]["value"] == pytest.approx(0.3)
    assert "| koopman K=5 | 0.300 | 0.300 | 0.700 |" in summary.sections[1]
    assert "| cartpole-swingup | 100 | 200 | 300 | 400 | 419 | 582 | 759 | 799 | 1/1/1/1 |" in summary.sections[0]
    assert len(curves(found).axes) == 6


@pytest.mark.slow
def test_a_smoke_run_of_every_arm(tmp_path):
    def watcher(*_):
        return contextlib.nullcontext(lambda line: None)

    def run():
        folders = {"results": tmp_path / "results", "work": tmp_path / "work"}
        return reproduce("representation", "smoke", **folders, report=lambda told: None, watcher=watcher)

    folder = run()
    documents = [json.loads(path.read_text()) for path in (folder / "cells").iterdir()]
    assert len(documents) == 2 * 4
    assert all(np.isfinite(document["return"]) for document in documents)
    assert (folder / "figure.png").stat().st_size > 10_000
    before = (folder / "summary.json").read_text()
    assert json.loads(before)["tables"]["aggregates"]["runs"] == 2
    run()
