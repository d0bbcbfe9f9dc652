"""`--model auto`, through the command line: what is tried, what is kept, and that it goes on where it was stopped."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import koopax
from koopax.data import save
from koopax.experiments.small_data import Setting, episodes_of
from koopax.experiments.systems import simulate
from koopax.training.auto import Candidate, candidates, chosen_of, kept_weights
from koopax.training.config import TrainConfig
from koopax.training.tasks import TrainTask, run_task
from koopax.training.trained import load_trained

QUICK = ("--model", "auto", "--horizon", "10", "--steps", "4", "--batch-size", "4", "--validation-windows", "16")


def command(*words, cwd, check=True):
    program = Path(sys.executable).with_name("koopax")
    done = subprocess.run([program, *map(str, words)], cwd=cwd, capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("auto")
    save(simulate("duffing", 8, 60, seed=0), place / "duffing.npz")
    command("train", "duffing.npz", *QUICK, "--out", "run", cwd=place)
    return place


@pytest.mark.slow
def test_the_best_candidate_is_the_run(folder):
    found = json.loads((folder / "run" / "auto.json").read_text())
    errors = {each["name"]: each["error"] for each in found["candidates"]}
    assert errors[found["best"]] <= max(1.05 * min(errors.values()), 1e-10)
    assert found["best"].startswith("edmd")  # a cubic equation, and a network that took four steps
    assert {"dmdc", "edmd-3", "koopman"} <= set(errors)
    assert errors[found["best"]] < 1e-4 < errors["koopman"]
    model = load_trained(folder / "run")
    assert model.config.name == "edmd"
    assert model.config.reencode_every == 1
    document = json.loads(command("evaluate", "run", "--json", "--horizon", 30, cwd=folder).stdout)
    assert document["model"] == "edmd"
    assert document["state"]["normalised"] < 1e-4
    assert {path.name for path in (folder / "run" / "candidates").iterdir()} == set(errors)


def test_what_is_finished_is_not_tried_again(folder):
    made = {path: path.stat().st_mtime_ns for path in (folder / "run" / "candidates").glob("*/model.koopax")}
    (folder / "run" / "auto.json").unlink()
    refused = command("train", "duffing.npz", *QUICK, "--out", "run", cwd=folder, check=False)
    assert refused.returncode == 2
    assert "already holds a run" in refused.stderr
    task = json.loads((folder / "run" / "candidates" / "koopman" / "config.json").read_text())
    assert task["data"]["model"] == "koopman"
    assert made == {path: path.stat().st_mtime_ns for path in made}


@pytest.mark.slow
def test_a_run_goes_on_with_what_is_missing(folder, tmp_path):
    command("train", "duffing.npz", *QUICK, "--out", tmp_path / "run", cwd=folder)
    koopman = tmp_path / "run" / "candidates" / "koopman"
    before = (koopman / "model.koopax").read_bytes()
    (koopman / "model.koopax").unlink()
    document = json.loads((tmp_path / "run" / "auto.json").read_text())
    (tmp_path / "run" / "auto.json").write_text(json.dumps(document | {"best": None}))
    shown = command("train", "--resume", tmp_path / "run", cwd=folder)
    assert "is the best" in shown.stdout
    assert (koopman / "model.koopax").read_bytes() == before


@pytest.mark.parametrize(("states", "expected"), [(2, {2, 3, 5, 7}), (17, set())])
def test_regressions_suit_the_data(states, expected):
    rng = np.random.default_rng(0)
    data = koopax.Episodes.from_arrays([rng.normal(size=(1201, states))], [rng.normal(size=(1200, 6))])
    found = candidates(TrainTask("x", "auto", TrainConfig()), data)
    degrees = {int(name.removeprefix("edmd-")) for name in found if name.startswith("edmd") and "refined" not in name}
    assert degrees == expected
    refined = {name for name in found if name.endswith("-refined")}
    assert refined == {"dmdc-refined", *(f"edmd-{degree}-refined" for degree in expected & {2, 3})}
    assert [*found][:: len(found) - 1] == ["dmdc", "koopman"]


def tried(**errors):
    return [Candidate(name.replace("_", "-"), error, 1.0, 10, None, "model.koopax") for name, error in errors.items()]


@pytest.mark.parametrize(
    ("errors", "episodes", "expected"),
    [
        # A network that is twice as good on one episode may be so by chance; on a hundred it is not.
        ({"dmdc": 0.9, "edmd_3": 0.02, "koopman": 0.01}, 1, "edmd-3"),
        ({"dmdc": 0.9, "edmd_3": 0.02, "koopman": 0.01}, 100, "koopman"),
        ({"dmdc": 0.9, "edmd_3": 0.02, "koopman": 0.001}, 1, "koopman"),
        # Of regressions the cheapest that is as good as the best; a network that is as good as they are costs more.
        ({"dmdc": 0.0205, "edmd_3": 0.02, "koopman": 0.02}, 100, "dmdc"),
        ({"dmdc": 3e-11, "edmd_3": 1e-13, "koopman": 1e-12}, 100, "dmdc"),
        ({"dmdc": float("inf"), "koopman": 0.5}, 1, "koopman"),
        ({"koopman": 0.5}, 1, "koopman"),
    ],
)
def test_a_network_is_kept_where_validation_can_tell(errors, episodes, expected):
    assert chosen_of(tried(**errors), episodes).name == expected


@pytest.mark.parametrize(
    ("earlier", "episodes", "expected"),
    [(0.8, 1, "model"), (0.5, 1, "best"), (0.8, 25, "best"), (0.96, 10_000, "model"), (None, 1, "model")],
)
def test_earlier_weights_are_kept_where_validation_can_tell(earlier, episodes, expected):
    errors = {"model.koopax": 1.0} | ({} if earlier is None else {"best.koopax": earlier})
    assert kept_weights(errors, episodes) == f"{expected}.koopax"


@pytest.mark.slow
def test_noise_is_refined_away(tmp_path):
    """Least squares is biased by noisy states; gradient steps over windows come nearer to the clean system."""
    episodes = episodes_of(Setting("duffing", 500, 30.0, seed=0))
    found = candidates(TrainTask("x", "auto", TrainConfig(steps=600)), episodes.train)
    errors = {}
    for name in ("edmd-3", "edmd-3-refined"):
        run = run_task(found[name], tmp_path / name, episodes=episodes)
        errors[name] = koopax.prediction_error(run.model, episodes.test, horizon=100, windows=200).state.normalised
    assert errors["edmd-3-refined"] < 0.5 * errors["edmd-3"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "auto", "--latent-size", "8"), "need a model"),
        (("--model", "auto", "--seeds", "2"), "need a model"),
    ],
)
def test_options_of_a_model_need_one(folder, words, message):
    done = command("train", "duffing.npz", *words, cwd=folder, check=False)
    assert done.returncode == 2
    assert message in done.stderr
