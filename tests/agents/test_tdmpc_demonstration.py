"""A trained agent at play, through the command line: a short real training, its plans and its film."""

import json
import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from koopax._errors import KoopaxError
from koopax.agents import tdmpc_arm, train_tdmpc
from koopax.agents.tdmpc.demonstration import demonstrate
from koopax.cli import main
from koopax.cli.agent_options import agent_options
from koopax.reporting.plan_film import PANEL, film, nearest_moments

KOOPAX = Path(sys.executable).with_name("koopax")
# An action is repeated 50 times, so that an episode has 20 decisions.
SIZES = {
    "latent_size": 8,
    "encoder_hidden": (8,),
    "reward_hidden": (8,),
    "hidden": (8, 8),
    "batch_size": 4,
    "horizon": 4,
    "samples": 8,
    "elites": 4,
    "iterations": 1,
    "proposals": 2,
    "seed_decisions": 20,
    "plan_growth": 10,
    "final_episodes": 2,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agent") / "run"
    return train_tdmpc(tdmpc_arm("koopman", task="cheetah-run", steps=2000, action_repeat=50, **SIZES), folder)


@pytest.fixture(scope="module")
def played(run):
    return demonstrate(run.folder, episodes=2)


@pytest.mark.slow
def test_as_many_episodes_as_in_the_last_evaluation_are_those_of_it(run, played):
    np.testing.assert_allclose(played.returns, run.metrics[-1]["evaluation_returns"])
    assert played.plan_length == 4
    assert played.foreseen_rewards.shape == (20, 4)
    assert played.foreseen_features.shape == (20, 5, 8 + 2 * 32)  # the modes and a pilot
    assert len(played.model_errors) == 4
    assert np.isfinite(played.model_errors).all()


def test_a_plan_foresees_from_what_is_observed(played):
    np.testing.assert_allclose(played.foreseen_features[:, 0], played.features[:-1], atol=1e-5)
    exact = np.stack([played.episodes[0].rewards[k : k + 17] for k in range(4)], axis=1)
    foreseen = np.concatenate([exact, np.full((3, 4), np.nan)])
    assert type(played)(**{**vars(played), "foreseen_rewards": foreseen}).reward_errors()[3] == 0


def test_a_film_shows_every_decision_and_finds_the_nearest_moment(played):
    pictures = np.zeros((21, PANEL[1], PANEL[0], 3), np.uint8)
    drawn = list(film(played, pictures))
    assert len(drawn) == 20
    assert len({picture.tobytes() for picture in drawn}) == 20
    features = np.random.default_rng(0).normal(size=(6, 3))
    np.testing.assert_array_equal(nearest_moments(features, features[[4, 2]] + 1e-3), [4, 2])


@pytest.mark.slow
def test_play_prints_one_document_and_leaves_a_film(run):
    command = [KOOPAX, "agent", "play", run.folder, "--plan-length", "2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["plan_length"] == 2
    assert len(found["returns"]) == 1
    assert found["mean_return"] == pytest.approx(found["returns"][0])
    assert len(found["reward_errors"]) == 2
    assert len(found["model_errors"]) == 2
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(found["video"])
    assert frames == 20
    assert seconds > 1


def test_what_cannot_be_played_is_refused(run, tmp_path):
    with pytest.raises(KoopaxError, match="plans of 1 to 4 steps"):
        demonstrate(run.folder, plan_length=5)
    with pytest.raises(KoopaxError, match="episodes is 0"):
        demonstrate(run.folder, episodes=0)
    with pytest.raises(KoopaxError, match="there is no run"):
        demonstrate(tmp_path)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("plan_lamda=0.8", "did you mean 'plan_lambda'"),
        ("plan_lambda=high", "plan_lambda"),
        ("plan_lambda=7", "at most 1"),
        ("horizon=3", "--horizon"),
        ("critics", "NAME=VALUE"),
        ("core.bilinaer=true", "bilinaer"),
    ],
)
def test_options_of_the_command_line_are_checked(option, message, tmp_path, capsys, monkeypatch):
    out = str(tmp_path / "run")
    monkeypatch.setattr(sys, "argv", ["koopax", "agent", "train", "tdmpc", "--option", option, "--out", out])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_options_of_the_command_line_reach_the_agent():
    found = agent_options([["plan_lambda=0.8", "value_points=4"], ["core.bilinear=true"]], ())
    config = tdmpc_arm("koopman", **found)
    assert (config.plan_lambda, config.value_points, config.all_core_options["bilinear"]) == (0.8, 4, True)


def test_an_option_may_be_a_list():
    config = tdmpc_arm("koopman", **agent_options([["reader=[8,4]", "value_at=[2,20]"]], ()))
    assert (config.reader, config.value_at) == ((8, 4), (2, 20))
    assert hash(config)  # a compiled function knows it by its hash
    plain = tdmpc_arm("koopman", **agent_options([["reader=null", "value_at=null", "loss_steps=null"]], ()))
    assert (plain.reader, plain.value_at, plain.loss_steps) == (None, None, None)
