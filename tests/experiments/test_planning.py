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

from koopax.experiments import planning, planning_options
from koopax.experiments.planning import BUDGETS, PUBLISHED_RETURNS, cells, comparable_scores, curves, summarise
from koopax.experiments.returns import arm_styles

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
    assert len({cell.name for cell in found}) == len(found) == 4 * 5 * 4
    assert {cell.config.task for cell in found} == set(PUBLISHED_RETURNS)
    compared = found[: 4 * 5 * 2]
    assert {(cell.config.dynamics, cell.config.horizon) for cell in compared} == {("mlp", 5), ("koopman", 20)}
    assert {cell.config.samples for cell in found} == {512}


def test_aggregates_use_tasks_with_seeds_in_every_arm():
    found = [fake("cheetah-run", arm, seed, 500 + 100 * seed) for arm in planning.COMPARED for seed in range(2)]
    found += [fake("acrobot-swingup", arm, 0, 50) for arm in planning.COMPARED]
    scores = comparable_scores(found)
    np.testing.assert_allclose(scores["mlp H=5"], [[0.5], [0.6]])
    summary = summarise(found)
    aggregates = summary.document["aggregates"]
    assert aggregates["tasks"] == ["cheetah-run"]
    assert aggregates["arms"]["koopman H=20"]["mean"]["value"] == pytest.approx(0.55)
    assert "| cheetah-run | 550 (500, 600) | " in summary.sections[0]
    assert "| 603 | 2/2 |" in summary.sections[0]
    assert len(curves(found).axes) == 3


def test_a_figure_has_every_arm_in_one_colour_and_names_it():
    extra = [f"koopman H=20 rho={decay}" for decay in (*planning.DECAYS, 0.7, 0.8, 0.99)]
    found = [fake("cheetah-run", arm, seed, 500) for arm in (*planning.COMPARED, *extra) for seed in range(2)]
    found += [fake("acrobot-swingup", arm, 0, 50) for arm in ("mlp H=5", extra[-1])]
    figure = curves(found)
    (legend,) = figure.legends
    told = [text.get_text() for text in legend.get_texts()]
    assert told == [*planning.COMPARED, *extra, "TD-MPC, published"]
    first, second, profile = figure.axes
    colours = [{line.get_label(): line.get_color() for line in panel.lines} for panel in (first, second, profile)]
    assert colours[0][extra[-1]] == colours[1][extra[-1]]
    assert colours[0]["mlp H=5"] == colours[2]["mlp H=5"]
    assert extra[0] not in colours[2]


def test_cells_are_breadth_first_and_the_sweep_changes_rho_alone():
    found = cells(BUDGETS["cpu"])
    assert len({cell.name for cell in found}) == len(found)
    compared = [cell.labels for cell in found[: 2 * 4]]
    assert [label["seed"] for label in compared] == [0] * 8
    assert {label["task"] for label in compared} == set(PUBLISHED_RETURNS)
    swept = [cell.config for cell in found if "rho" in cell.name and cell.labels["seed"] == 0]
    assert [config.decay for config in swept] == list(planning.DECAYS)
    assert len({dataclasses.replace(config, decay=1.0) for config in swept}) == 1


def test_options_change_one_thing_at_a_time():
    chosen = planning_options.cells(planning_options.BUDGETS["cpu"])[: len(planning_options.ARMS)]
    found = {cell.labels["arm"]: cell.config for cell in chosen}
    assert set(found) == set(planning_options.ARMS)
    for label, config in found.items():
        base = found["koopman grown" if config.dynamics == "koopman" else "mlp H=5"]
        changed = {name for name, value in dataclasses.asdict(config).items() if value != getattr(base, name)}
        dynamics, name = label.split(" ", 1)
        expected = (
            planning_options.KOOPMAN[name] if dynamics == "koopman" else planning_options.BEYOND.get(name[4:], {})
        )
        assert changed <= set(expected), label
    assert found["koopman grown"].plan_length(4750) == 20


def test_options_are_told_with_plans_and_model_errors():
    found = [fake("cheetah-run", "koopman grown", seed, 90.0 + 10 * seed) for seed in range(2)]
    found[0]["curve"][-1] |= {"plan_length": 20, "consistency_errors": [0.1] * 20}
    found[1]["curve"][-1] |= {"plan_length": 10, "consistency_errors": [0.3] * 20}
    summary = planning_options.summarise(found)
    told = summary.document["cheetah-run"]["koopman grown"]
    assert (told["return"], told["plan_length"], told["seeds"]) == (95.0, 15.0, 2)
    assert told["errors"] == {"1": pytest.approx(0.2), "5": pytest.approx(0.2), "10": pytest.approx(0.2), "20": 0.2}
    assert told["training_return"] == pytest.approx(47.5)
    assert "| koopman grown | 95 (90, 100) |" in summary.sections[0]


def test_minutes_are_told_with_what_they_were_spent_on():
    cell = fake("cheetah-run", "mlp H=5", 0, 100.0) | {"seconds": 600.0}
    cell["made_of"]["config"]["horizon"] = 5
    cell["curve"][-1] |= {"spent": {"playing": 150.0, "learning": 300.0}, "plan_length": 5}
    cell["curve"][-2] |= {"plan_length": 4}
    (row,) = planning.time_spent([cell])
    assert row == {
        "task": "cheetah-run",
        "arm": "mlp H=5",
        "minutes": 10.0,
        "playing": 0.25,
        "learning": 0.5,
        "evaluating": 0.0,
        "whole_plans": 0.5,
    }


def test_no_two_arms_of_a_figure_look_alike():
    styles = arm_styles(list(planning_options.ARMS))
    looks = {(colour, marker) for colour, _, marker in styles.values()}
    assert len(looks) == len(styles) == len(planning_options.ARMS)


@pytest.mark.slow
def test_smoke_stops_and_goes_on(tmp_path):
    command = [KOOPAX, "reproduce", "planning", "--budget", "smoke"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    results = tmp_path / "results" / "planning" / "smoke"
    while not list(results.glob("cells/*.json")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 130, said
    before = {path.name: path.read_text() for path in results.glob("cells/*.json")}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert before.items() <= {path.name: path.read_text() for path in results.glob("cells/*.json")}.items()
    document = json.loads((results / "summary.json").read_text())
    assert set(document["tables"]["returns"]["cheetah-run"]) == {*planning.COMPARED, "koopman H=5"}
    assert (results / "figure.png").stat().st_size > 1000
    assert "optimality gap" in done.stdout
