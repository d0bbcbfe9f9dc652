"""The page as a file: whole, small, safe, and the same numbers as the evaluation."""

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from koopax._errors import KoopaxError
from koopax.reporting import page as page_module
from koopax.reporting.page import page as make_page

KOOPAX = Path(sys.executable).with_name("koopax")


def document_of(path):
    text = path.read_text()
    return json.loads(re.search(r'id="document">(.*?)</script>', text, re.DOTALL)[1])


@pytest.fixture(scope="module")
def document(page):
    return document_of(page)


def test_holds_everything_in_less_than_eight_megabytes(page, document):
    assert page.stat().st_size < 8_000_000
    hopper, pendulum = document["data"]
    koopman, mlp = hopper["models"]
    assert (koopman["tested"], koopman["interval_over"]) == (2, "seeds")
    # One of its two runs is not finished: its curve is shown, but it predicts nothing.
    assert (mlp["tested"], mlp["interval_over"]) == (1, "test episodes")
    assert [run["seed"] for run in mlp["training"]] == [0, 1]
    assert {"error", "gradient", "spectrum", "training"} <= set(koopman)
    assert "spectrum" not in mlp
    assert [base64.b64decode(video["mp4"])[4:8] for video in hopper["videos"]] == [b"ftyp"] * 2
    assert "does not name its environment" in pendulum["video_note"]
    assert document["agents"][0]["groups"][0]["seeds"] == [0, 1]
    assert document["aggregates"]["agents"][0]["runs"] == 2


def test_tells_of_folders_that_it_could_not_use(document):
    told = {Path(problem["run"]).name: problem["message"] for problem in document["problems"]}
    assert "format 99" in told["future"]
    assert "no finished model" in told["unfinished"]


def test_numbers_are_those_of_the_evaluation(document, folders):
    from koopax.evaluation.prediction import prediction_error
    from koopax.training.trained import model_and_test_episodes

    model, episodes = model_and_test_episodes(folders["mlp"], None)
    found = document["data"][0]
    expected = prediction_error(model, episodes, horizon=found["horizon"], windows=40)
    mlp = found["models"][1]
    np.testing.assert_allclose(mlp["error"]["state"]["mean"], expected.state.per_step, rtol=1e-3)
    np.testing.assert_allclose(mlp["overall"]["reward"]["mean"][0], expected.reward.normalised, rtol=1e-3)


def test_the_spectrum_before_training_is_that_of_step_0(document, folders):
    import jax

    from koopax.evaluation.spectrum import analyse_spectrum
    from koopax.models.dynamics import DynamicsModel
    from koopax.training.tasks import read_task, splits
    from koopax.training.trained import load_trained

    task = read_task(folders["koopman-0"])
    fresh = DynamicsModel.create("koopman", splits(task).train, key=jax.random.key(0), **task.model_options)
    spectrum = document["data"][0]["models"][0]["spectrum"]
    np.testing.assert_allclose(spectrum["before"]["real"], analyse_spectrum(fresh).discrete.real, atol=1e-3)
    trained = analyse_spectrum(load_trained(folders["koopman-0"]))
    np.testing.assert_allclose(spectrum["after"]["imag"], trained.discrete.imag, atol=1e-3)


def tiny(**more):
    return {"title": ["x"], "subtitle": "", "reading": [], "data": [], "agents": [], "runs": [], **more}


def test_names_can_not_become_markup():
    evil = "</script><script>alert(1)</script>\u2028"
    text = make_page(tiny(title=[evil], reading=[evil], problems=[{"run": evil, "message": evil}]))
    assert "<script>alert" not in text
    assert "{{" not in text.split("<template")[0]


def test_videos_give_way_when_the_page_grows_too_large(monkeypatch):
    monkeypatch.setattr(page_module, "_plotly", lambda: "")
    monkeypatch.setattr(page_module, "LIMIT", 200_000)
    data = [{"name": name, "videos": [{"mp4": "A" * 40_000}, {"mp4": "A" * 40_000}]} for name in "abc"]
    text = make_page(tiny(data=data))
    assert len(text) < 200_000
    kept = [len(one["videos"]) for one in data]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] > 0
    assert kept[-1] == 0
    assert "left out" in data[-1]["video_note"]
    with pytest.raises(KoopaxError, match="report on fewer runs"):
        make_page(tiny(data=[{"name": "n" * 300_000}]))


def koopax(*arguments, cwd):
    return subprocess.run([KOOPAX, *map(str, arguments)], cwd=cwd, capture_output=True, text=True)


def test_the_command(folders, tmp_path):
    done = koopax("report", folders["sac"], folders["future"], "--out", "made/r.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "made/r.html"
    assert "format 99" in done.stderr
    assert [Path(problem["run"]).name for problem in document_of(tmp_path / "made/r.html")["problems"]] == ["future"]


def test_no_run_at_all_is_one_sentence(folders, tmp_path):
    done = koopax("report", folders["future"], "nowhere", cwd=tmp_path)
    assert done.returncode == 2
    assert not done.stdout
    assert done.stderr.startswith("error: there is no run to report on (and 1 more): ")
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


RUNS = {
    "model": "train data.npz --model mlp --horizon 10 --steps 4 --batch-size 4",
    "sac": "agent train sac --task Pendulum-v1 --steps 960 --evaluate-every 480 --evaluate-episodes 1",
    "tdmpc": "agent train tdmpc --task Pendulum-v1 --dynamics mlp --steps 400 --horizon 2 --samples 8 --iterations 1 "
    "--latent-size 8 --batch-size 4 --seed-decisions 250 --evaluate-episodes 1",
}


@pytest.mark.slow
def test_a_model_and_both_agents_in_one_report(tmp_path):
    """Trained through the command line, with the folders as it leaves them."""
    done = koopax(*["data", "collect", "--env", "Pendulum-v1", "--steps", "1000", "--out", "data.npz"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name, command in RUNS.items():
        done = koopax(*command.split(), "--out", f"runs/{name}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        recorded = json.loads((tmp_path / "runs" / name / "config.json").read_text())
        assert recorded["kind"] == name
        assert recorded["outcome"]["stopped"] == "finished"
    done = koopax(*["report", "runs", "--horizon", "10", "--windows", "8", "--out", "report.html"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = document_of(tmp_path / "report.html")
    # Pendulum's returns are below zero, so scores have no scale there.
    assert [problem["run"] for problem in document["problems"]] == ["aggregates"]
    assert [data["name"] for data in document["data"]] == ["data.npz"]
    (task,) = document["agents"]
    assert (task["task"], [group["label"] for group in task["groups"]]) == ("Pendulum-v1", ["sac", "tdmpc · mlp"])
    assert [run["kind"] for run in document["runs"]] == ["model", "agent", "agent"]
    assert all(run["provenance"] for run in document["runs"])
