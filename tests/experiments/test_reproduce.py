"""Every experiment at its smoke budget through the real command line, and what a grid promises."""

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from koopax import KoopaxError
from koopax.cli.reproduce import reproduce as reproduce_command
from koopax.experiments import (
    agent_grid,
    arms,
    first_steps,
    init_ablation,
    latent_ablation,
    longer_training,
    paper,
    planning,
    planning_options,
    prediction,
    search,
)
from koopax.experiments.experiment import Place
from koopax.experiments.grid import Interrupted, Job, finished, made_of, run_missing
from koopax.experiments.measurement import run_measurement
from koopax.experiments.registry import EXPERIMENTS
from koopax.experiments.summaries import Summary, interval
from koopax.training.config import FORMER_VALUES

KOOPAX = Path(sys.executable).with_name("koopax")


@contextmanager
def silent(name, steps, seconds):
    yield lambda line: None


def place_in(folder, only=None):
    return Place(folder, folder / "work", lambda _: None, silent, only)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduce")


def reproduce(folder, name, data):
    return subprocess.run(
        [KOOPAX, "reproduce", name, "--budget", "smoke"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "KOOPAX_DATA": str(data)},
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("latent-ablation", marks=pytest.mark.slow),
        pytest.param("gradients", marks=pytest.mark.slow),
        pytest.param("imagination", marks=pytest.mark.slow),
        pytest.param("sensors", marks=pytest.mark.slow),
    ],
)
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

    def interrupted(*_, **__):
        raise Interrupted

    monkeypatch.setitem(EXPERIMENTS, "latent-ablation", replace(latent_ablation.EXPERIMENT, run=interrupted))
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


GRIDS = (prediction, init_ablation, latent_ablation, search, planning, planning_options)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_the_three_budgets(name):
    assert EXPERIMENTS[name].name == name
    assert list(EXPERIMENTS[name].budgets) == ["smoke", "cpu", "paper"]
    with pytest.raises(KoopaxError, match="did you mean 'smoke'"):
        EXPERIMENTS[name].budget("smok")


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.EXPERIMENT.name)
@pytest.mark.parametrize("budget", ["smoke", "cpu", "paper"])
def test_cells_have_names_of_their_own(budget, grid):
    names = [cell.name for cell in grid.cells(grid.BUDGETS[budget])]
    assert len(set(names)) == len(names)
    assert all("/" not in cell and " " not in cell for cell in names)


def test_the_prediction_grid_covers_the_paper():
    found = prediction.cells(prediction.BUDGETS["cpu"])
    places = {(c.labels["dataset"], c.labels["model"], c.labels["regime"]) for c in found}
    assert len({dataset for dataset, _, _ in places}) == 9
    assert set(paper.PUBLISHED_MODELS) | {"koopman-paper"} == set(paper.MODELS)
    for dataset in paper.STATE_ERROR:
        for model in paper.MODELS:
            for regime in ("30s", "120s", "steps"):
                assert (dataset, model, regime) in places
        for model in prediction.REGRESSIONS:
            assert (dataset, model, "fitted") in places
    seeds = {c.labels["seed"] for c in found if (c.labels["dataset"], c.labels["regime"]) == ("hopper/expert", "120s")}
    assert seeds == {0, 1, 2}
    assert {c.task.train.horizon for c in found if c.labels["model"] == "mlp"} == {10}
    assert {c.task.train.horizon for c in found if c.labels["model"] == "mlp@100"} == {100}


def test_cells_at_equal_time_take_turns_with_all_models_of_their_dataset_and_seed():
    found = prediction.cells(prediction.BUDGETS["cpu"])
    for cell in found:
        mates = [c for c in found if c.group == cell.group] if cell.group else []
        assert bool(mates) == (cell.labels["regime"] in ("30s", "120s"))
        places = [tuple(c.labels[name] for name in ("dataset", "regime", "seed")) for c in (cell, *mates)]
        assert len(set(places)) == 1
        assert not mates or {c.labels["model"] for c in mates} >= set(paper.MODELS)


def test_the_init_ablation_is_of_the_published_model():
    found = init_ablation.cells(init_ablation.BUDGETS["cpu"])
    assert {c.labels["environment"] for c in found} == {"halfcheetah", "walker2d", "hopper"}
    assert {c.task.model for c in found} == {"koopman-paper"}
    spectra = [c.task.model_options for c in found if c.task.model_options["spectrum"].startswith("paper")]
    assert all(one["spectrum_options"]["mirrored"] for one in spectra)
    assert {one["spectrum_options"].get("decay") for one in spectra} == {None, 0.1, 0.3}
    assert {one["spectrum_options"].get("frequency_scale") for one in spectra} == {None, 0.5, 2.0}
    for environment in paper.INIT_ABLATION:
        assert set(paper.INIT_ABLATION[environment]) <= set(init_ablation.ARMS)


RESULTS = Path(__file__).parents[2] / "results"


SEARCHED = {"first-steps": first_steps, "longer-training": longer_training}


@pytest.mark.parametrize("name", ["prediction", "latent-ablation", "search", *SEARCHED])
def test_committed_cells_are_still_found(name):
    place = place_in(RESULTS / name / "cpu")
    if name in SEARCHED:
        wanted = arms.cells(SEARCHED[name].ARMS, SEARCHED[name].BUDGETS["cpu"])
    else:
        grid = {"prediction": prediction, "latent-ablation": latent_ablation, "search": search}[name]
        wanted = grid.cells(grid.BUDGETS["cpu"])
    found = [finished(Job(c.name, made_of(c)), place) for c in wanted]
    assert sum(document is not None for document in found) == len(list((RESULTS / name / "cpu" / "cells").glob("*")))


@pytest.mark.parametrize("grid", [planning, planning_options], ids=["planning", "planning-options"])
def test_committed_agents_are_still_found(grid):
    folder = RESULTS / grid.EXPERIMENT.name / "cpu"
    jobs = [Job(c.name, agent_grid.made_of(c), deciding=agent_grid.deciding) for c in grid.cells(grid.BUDGETS["cpu"])]
    found = [finished(job, place_in(folder)) for job in jobs]
    assert sum(document is not None for document in found) == len(list((folder / "cells").glob("*")))


def fake_cell(dataset, model, regime, seed, state, unchanged=1.5):
    if state is None:
        error = None
    else:
        curve = {"normalised": state, "raw": 10 * state, "per_step": [0.5 * state] * 10 + [2 * state] * 5}
        constant = {"state": {"normalised": unchanged}, "reward": {"normalised": 1.0}}
        error = {"state": curve, "reward": curve, "baselines": {"constant": constant}}
    return {"labels": {"dataset": dataset, "model": model, "regime": regime, "seed": seed}, "error": error}


def test_rows_of_models_that_were_tested_on_other_data_are_marked():
    same = [fake_cell("hopper/expert", model, "30s", 0, 0.1) for model in ("koopman", "gru")]
    other = [*same[:1], fake_cell("hopper/expert", "gru", "30s", 0, 0.1, unchanged=1.6)]
    summaries = {name: prediction.summarise(found) for name, found in {"same": same, "other": other}.items()}
    assert prediction.MIXED_NOTE in summaries["other"].sections[0]
    assert f"hopper/expert {prediction.MIXED}" in summaries["other"].sections[1]
    assert not any(prediction.MIXED in section for section in summaries["same"].sections)


def test_the_winner_of_a_row_is_the_lowest_mean_and_divergence_loses():
    found = [
        fake_cell("hopper/expert", model, "30s", seed, value)
        for model, values in {
            "koopman": (0.02, 0.03),
            "gru": (0.01, 0.05),
            "mlp": (None, 0.001),
            "dssm": (0.0252, 0.0252),
        }.items()
        for seed, value in enumerate(values)
    ]
    found.append(fake_cell("hopper/expert", "dmdc", "fitted", 0, 0.3))
    tables = prediction.summarise(found).document
    (row,), (early,) = tables["state-30s"], tables["state-first-steps-30s"]
    assert row["best"] == "koopman (level: dssm)"
    assert row["models"]["mlp"]["mean"] == float("inf")
    assert row["models"]["dmdc"]["mean"] == 0.3
    assert early["models"]["koopman"]["mean"] == pytest.approx(0.0125)


def test_intervals_are_students():
    found = interval([1.0, 2.0, 3.0])
    assert found["mean"] == 2.0
    assert found["half_width"] == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert interval([1.0])["half_width"] is None
    assert interval([1.0, 2.0])["text"] == "1.5 (1, 2)"
    many = interval([float(value) for value in range(12)])
    assert many["half_width"] == pytest.approx(2.201 * 13**0.5 / 12**0.5, rel=1e-3)


def jobs_and_run(made, groups=(None, None, None)):
    names = ["a-0", "a-1", "b-0"]
    jobs = [Job(name, {"number": n}, group) for n, (name, group) in enumerate(zip(names, groups, strict=True))]

    def run(numbers, place):
        made.append(list(numbers))
        for number in numbers:
            yield number, {"made_of": {"number": number}}

    return jobs, run


def test_only_some_cells_of_a_grid(tmp_path):
    made = []
    jobs, run = jobs_and_run(made)

    def grid(only):
        return [cell["made_of"]["number"] for cell in run_missing(jobs, run, place_in(tmp_path, only))]

    with pytest.raises(KoopaxError, match="--only"):
        grid("nothing")
    assert grid("^a") == [0, 1]
    assert grid("nothing") == [0, 1]
    assert grid(None) == [0, 1, 2]
    assert made == [[0], [1], [2]]


def test_what_is_missing_of_a_group_is_run_together(tmp_path):
    made = []
    jobs, run = jobs_and_run(made, groups=("g", None, "g"))
    assert len(run_missing(jobs, run, place_in(tmp_path))) == 3
    assert made == [[0, 2], [1]]
    (tmp_path / "cells" / "b-0.json").unlink()
    assert len(run_missing(jobs, run, place_in(tmp_path))) == 3
    assert made[2:] == [[2]]


def test_cells_that_were_finished_before_an_interrupt_are_kept(tmp_path):
    jobs, _ = jobs_and_run([], groups=("g", "g", "g"))

    def run(numbers, place):
        yield numbers[0], {"made_of": {"number": numbers[0]}}
        raise Interrupted

    with pytest.raises(Interrupted):
        run_missing(jobs, run, place_in(tmp_path))
    assert [path.name for path in (tmp_path / "cells").iterdir()] == ["a-0.json"]


@pytest.mark.parametrize(
    ("recorded", "today", "same"),
    [
        ({"train": {"time_chunk": 5}}, {"train": {"remat_steps": 5}}, True),
        ({"train": {"windows_together": None}}, {"train": {"microbatch_size": None}}, True),
        ({"train": {"time_chunk": 5}}, {"train": {"remat_steps": 6}}, False),
        ({"train": {"steps": 5}}, {"train": {"steps": 5, "new": None}}, True),
    ],
)
def test_cells_made_under_former_names_of_settings_are_found(tmp_path, recorded, today, same):
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "a.json").write_text(json.dumps({"made_of": recorded}))
    today = {"train": FORMER_VALUES | today["train"]}  # what was no setting yet is one today
    if same:
        assert finished(Job("a", today), place_in(tmp_path)) == {"made_of": recorded}
    else:
        with pytest.raises(KoopaxError, match="other settings than today's: delete it"):
            finished(Job("a", today), place_in(tmp_path))


@dataclass(frozen=True)
class Size:
    horizon: int


def test_a_measurement_of_another_size_is_refused(tmp_path):
    def measure(size):
        return {"found": size.horizon}

    assert run_measurement(measure, Size(3), place_in(tmp_path)) == {"found": 3, "made_of": {"horizon": 3}}
    assert run_measurement(lambda _: {}, Size(3), place_in(tmp_path))["found"] == 3
    with pytest.raises(KoopaxError, match="delete it to measure anew"):
        run_measurement(measure, Size(4), place_in(tmp_path))


def test_budgets_are_said_in_words(tmp_path):
    budget = {"steps": 200_000, "seconds": 2.0, "sizes": (16, 32), "seeds": {"hopper": 2}, "published": False, "x": {}}
    Summary("title", ["text"], {}).write(tmp_path, command="koopax", budget=budget)
    told = (tmp_path / "table.md").read_text()
    assert "Budget: steps 200 000; seconds 2; sizes 16, 32; seeds hopper 2; published no." in told


def test_the_command_names_every_experiment():
    told = re.search(r"experiment: (.*?)\n +budget:", reproduce_command.__doc__, re.DOTALL)[1]
    assert set(EXPERIMENTS) <= set(re.findall(r"[a-z-]+", told))
