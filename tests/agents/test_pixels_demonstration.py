"""An agent from pixels at play: a short real training, what it sees, and its film through the command line."""

import json
import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from koopax._errors import KoopaxError
from koopax.agents import pixel_arm, train_pixel_sac
from koopax.agents.pixels.demonstration import demonstrate
from koopax.cli import main
from koopax.reporting.film_parts import CHART, PANEL
from koopax.reporting.pixel_film import film

pytestmark = pytest.mark.slow  # the compilation of an agent, and a renderer
KOOPAX = Path(sys.executable).with_name("koopax")
# An action is repeated 50 times, so that an episode has 20 decisions.
SIZES = {
    "task": "cartpole-swingup",
    "steps": 1_500,
    "action_repeat": 50,
    "image_size": 32,
    "hidden": (16,),
    "latent_size": 16,
    "batch_size": 8,
    "horizon": 3,
    "random_decisions": 10,
    "updates_per_decision": 0.2,
    "replay_steps": 100,
    "evaluate_every": 1_500,
    "final_episodes": 2,
    "processes": 1,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train_pixel_sac(pixel_arm("koopman", **SIZES), tmp_path_factory.mktemp("agent") / "run")


@pytest.fixture(scope="module")
def played(run):
    return demonstrate(run.folder, episodes=2)


def test_as_many_episodes_as_in_the_last_evaluation_are_those_of_it(run, played):
    np.testing.assert_allclose(played.returns, run.metrics[-1]["evaluation_returns"])
    np.testing.assert_allclose(played.rewards.sum(), played.returns[0])


def test_what_it_sees_is_kept_beside_what_people_see(played):
    assert played.frames.shape == (21, 32, 32, 3)
    assert played.pictures.shape == (21, 240, 320, 3)
    assert played.actions.shape == (20, 1)
    assert len({frame.tobytes() for frame in played.frames}) > 10  # it moves
    # Both show the same moment: the frame is the picture's middle square, drawn smaller.
    middle = played.pictures[5][:, 40:280].reshape(16, 15, 16, 15, 3).mean((1, 3))
    small = played.frames[5].reshape(16, 2, 16, 2, 3).mean((1, 3))
    assert np.corrcoef(middle.ravel(), small.ravel())[0, 1] > 0.8


def test_errors_of_predictions_are_finite_and_one_per_step(played):
    assert len(played.prediction_errors) == SIZES["horizon"]
    assert np.isfinite(played.prediction_errors).all()
    assert min(played.prediction_errors) > 0


def test_a_film_has_a_picture_for_every_decision(played):
    drawn = list(film(played))
    assert len(drawn) == 20
    assert drawn[0].shape == (PANEL[1] + CHART, 3 * PANEL[0], 3)
    assert len({picture.tobytes() for picture in drawn}) == 20


def test_play_prints_one_document_and_leaves_a_film(run):
    done = subprocess.run([KOOPAX, "agent", "play", run.folder, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["returns"]) == 1
    assert (found["task"], found["dynamics"]) == ("cartpole-swingup", "koopman")
    frames, _ = imageio_ffmpeg.count_frames_and_secs(found["video"])
    assert frames == 20


def test_bad_input_is_one_sentence(run, monkeypatch, capsys):
    with pytest.raises(KoopaxError, match="episodes is 0"):
        demonstrate(run.folder, episodes=0)
    monkeypatch.setattr("sys.argv", ["koopax", "agent", "play", str(run.folder), "--plan-length", "3"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "makes no plans" in capsys.readouterr().err
