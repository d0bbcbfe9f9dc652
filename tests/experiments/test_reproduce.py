"""Every experiment at its smoke budget through the real command line, and what a grid promises."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from koopax import KoopaxError
from koopax.experiments import paper, prediction, search
from koopax.experiments.ablations import init_cells, latent_cells
from koopax.experiments.budgets import BUDGETS, budget
from koopax.experiments.grid import run_missing
from koopax.experiments.summaries import interval

KOOPAX = Path(sys.executable).with_name("koopax")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduce")


def reproduce(folder, name, data):
    return subprocess.run(
        [KOOPAX, "reproduce", name, "--budget", "smoke"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        env={**__import__("os").environ, "KOOPAX_DATA": str(data)},
    )


@pytest.mark.parametrize("name", ["latent-ablation", pytest.param("gradients", marks=pytest.mark.slow)])
def test_smoke(folder, name):
    done = reproduce(folder, name, folder / "data")
    assert done.returncode == 0, done.stderr
    results = folder / "results" / name / "smoke"
    assert {"table.md", "summary.json", "figure.png"} <= {path.name for path in results.iterdir()}
    summary = json.loads((results / "summary.json").read_text())
    assert {"command", "budget", "versions", "commit", "machine", "tables"} <= set(summary)
    if name == "gradients":
        return
    # Finished cells are not run again, and a missing one is.
    cells = sorted((results / "cells").iterdir())
    before = {path: path.stat().st_mtime_ns for path in cells}
    cells[0].unlink()
    assert reproduce(folder, name, folder / "data").returncode == 0
    assert sorted((results / "cells").iterdir()) == cells
    assert [path.stat().st_mtime_ns == before[path] for path in cells] == [False] + [True] * (len(cells) - 1)


def test_an_interrupted_grid_says_the_whole_command_to_go_on(monkeypatch, capsys, tmp_path):
    from koopax.cli.output import errors
    from koopax.cli.reproduce import reproduce as command
    from koopax.experiments import grid
    from koopax.experiments import reproduce as experiments

    def interrupted(*_, **__):
        raise grid.Interrupted

    monkeypatch.setattr(experiments, "run_grid", interrupted)
    errors.cache_clear()  # it would keep the stream from before the capture
    with pytest.raises(SystemExit):
        command("latent-ablation", budget="smoke", out=tmp_path / "out", work=tmp_path / "work")
    told = capsys.readouterr().err
    assert f"--budget smoke --out {tmp_path / 'out'} --work {tmp_path / 'work'}" in told


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arm"), [("prediction", "koopman"), ("init-ablation", "unitary"), ("search", "gru")])
def test_smoke_of_the_larger_grids(folder, name, arm):
    done = reproduce(folder, name, folder / "data")
    assert done.returncode == 0, done.stderr
    assert arm in (folder / "results" / name / "smoke" / "table.md").read_text()


@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.parametrize("cells", [prediction.cells, init_cells, latent_cells, search.cells])
def test_cells_have_names_of_their_own(name, cells):
    names = [cell.name for cell in cells(budget(name))]
    assert len(set(names)) == len(names)
    assert all("/" not in cell and " " not in cell for cell in names)


def test_the_prediction_grid_covers_the_paper():
    found = prediction.cells(budget("cpu"))
    places = {(c.labels["dataset"], c.labels["model"], c.labels["regime"]) for c in found}
    assert len({dataset for dataset, _, _ in places}) == 9
    for dataset in paper.STATE_ERROR:
        for model in paper.MODELS:
            for regime in prediction.REGIMES:
                assert (dataset, model, regime) in places
    expert_seeds = {c.labels["seed"] for c in found if c.labels["dataset"] == "hopper/expert"}
    assert expert_seeds == {0, 1, 2}
    assert {c.task.train.horizon for c in found if c.labels["model"] == "mlp"} == {10}
    assert {c.task.train.horizon for c in found if c.labels["model"] == "mlp@100"} == {100}


def fake_cell(dataset, model, regime, seed, state):
    error = None if state is None else {q: {"normalised": state, "raw": 10 * state} for q in ("state", "reward")}
    return {"labels": {"dataset": dataset, "model": model, "regime": regime, "seed": seed}, "error": error}


def test_the_winner_of_a_row_is_the_lowest_mean_and_divergence_loses():
    found = [
        fake_cell("hopper/expert", model, "time", seed, value)
        for model, values in {
            "koopman": (0.02, 0.03),
            "gru": (0.01, 0.05),
            "mlp": (None, 0.001),
            "dssm": (0.0252, 0.0252),
        }.items()
        for seed, value in enumerate(values)
    ]
    (row,) = prediction.summarise(found).document["state-time"]
    assert row["best"] == "koopman (level: dssm)"
    assert row["models"]["mlp"]["mean"] == float("inf")


def test_intervals_are_students():
    found = interval([1.0, 2.0, 3.0])
    assert found["mean"] == 2.0
    assert found["half_width"] == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert interval([1.0])["half_width"] is None


def test_only_some_cells_of_a_grid(tmp_path):
    made = []

    def run(number):
        made.append(number)
        return {"made_of": {"number": number}}

    names, settings = ["a-0", "a-1", "b-0"], [{"number": number} for number in range(3)]

    def grid(only):
        return run_missing(names, settings, run, tmp_path, report=lambda _: None, only=only)

    with pytest.raises(KoopaxError, match="--only"):
        grid("nothing")
    assert [cell["made_of"]["number"] for cell in grid("^a")] == [0, 1]
    assert [cell["made_of"]["number"] for cell in grid("nothing")] == [0, 1]
    assert [cell["made_of"]["number"] for cell in grid(None)] == [0, 1, 2]
    assert made == [0, 1, 2]
