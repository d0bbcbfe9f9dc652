"""Models of frames: pictures in, pictures out, with any core, through training, files and the command line."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import koopax
from koopax import DynamicsModel, Episodes, KoopaxError
from koopax.data import save
from koopax.reporting.predictions import choose_windows, errors_by_window

KOOPAX = Path(sys.executable).with_name("koopax")
SIDE = 28


def moving_square(episodes=6, steps=24, seed=0) -> Episodes:
    """A square that actions push to the left and to the right, with its place as the reward."""
    rng = np.random.default_rng(seed)
    frames, actions, rewards = [], [], []
    for _ in range(episodes):
        taken = rng.uniform(-1, 1, (steps, 1))
        places = np.clip(np.cumsum([rng.uniform(8, 20), *(3 * taken[:, 0])]), 4, SIDE - 4).astype(int)
        drawn = np.full((steps + 1, SIDE, SIDE, 3), 30, np.uint8)
        for frame, place in zip(drawn, places, strict=True):
            frame[10:18, place - 4 : place + 4] = (250, 120, 0)
        frames.append(drawn)
        actions.append(taken)
        rewards.append(places[:-1] / SIDE)
    return Episodes.from_arrays(frames, actions, rewards)


@pytest.fixture(scope="module")
def data():
    return moving_square()


@pytest.mark.slow
def test_a_model_of_frames_sees_the_frames_before_and_draws_those_to_come(data, tmp_path):
    model = DynamicsModel.create("koopman", data, latent_size=16, action_hidden=(8,), key=jax.random.key(0))
    assert model.config.history == 3
    episode = data.episode(0)
    seen, actions = episode.observations[:3], episode.actions
    prediction = model.rollout(seen, actions[2:8], past_actions=actions[:2])
    assert model.frames(prediction.states).shape == (6, SIDE, SIDE, 3)
    flat = model.rollout(seen.reshape(3, -1), actions[2:8], past_actions=actions[:2])
    np.testing.assert_array_equal(prediction.states, flat.states)
    # Another past is another prediction; where it is not known, the first frame stands for those before it.
    alone = model.rollout(seen[2], actions[2:8])
    assert np.abs(alone.states - prediction.states).max() > 1e-3
    standing = model.encode(np.stack([seen[2]] * 3))
    np.testing.assert_allclose(model.encode(seen[2]), standing, atol=1e-5)

    model.save(tmp_path / "model.koopax")
    again = koopax.load_model(tmp_path / "model.koopax")
    np.testing.assert_array_equal(again.rollout(seen[2], actions[2:8]).states, alone.states)


@pytest.mark.slow
def test_every_part_of_a_model_of_frames_learns(data):
    model = DynamicsModel.create("mlp", data, latent_size=8, hidden=8, history=2, key=jax.random.key(0))
    run = koopax.fit(
        model, data, horizon=4, steps=40, batch_size=8, seed=0, learning_rate=3e-3, log_every=10, progress=False
    )
    assert run.metrics[-1]["state"] < 0.97 * run.metrics[0]["state"]
    before, after = (jax.tree.leaves(m) for m in (model, run.model))
    trainable = jax.tree.leaves(model.trainable())
    assert all(jnp.any(a != b) for a, b, learned in zip(before, after, trainable, strict=True) if learned)
    error = koopax.prediction_error(run.model, data, horizon=4, windows=10)
    assert error.state.per_dimension.shape == (3,)  # channels


def test_the_report_knows_what_no_change_would_cost(data):
    """Differences of bytes wrap around."""
    model = DynamicsModel.create("koopman", data, latent_size=8, action_hidden=(8,), key=jax.random.key(0))
    windows = choose_windows(data, horizon=5, count=9, models=[model])
    told = errors_by_window(model, windows)["constant"].state_raw
    frames = np.concatenate([np.asarray(batch.states, float) for batch in windows.fixed], axis=1)
    np.testing.assert_allclose(told, ((frames[1:] - frames[0]) ** 2).mean(-1).T, rtol=1e-5)


def test_what_can_not_be_a_model_of_frames_is_refused(data):
    with pytest.raises(KoopaxError, match="dmdc is a regression, which takes no frames"):
        DynamicsModel.create("dmdc", data, key=jax.random.key(0))
    small = Episodes.from_arrays([np.zeros((4, 12, 12, 3), np.uint8)], [np.zeros((3, 1))])
    with pytest.raises(KoopaxError, match=r"images of 12×12 pixels don't suit 'patches'"):
        DynamicsModel.create("koopman", small, key=jax.random.key(0))
    with pytest.raises(KoopaxError, match="did you mean 'patches'"):
        DynamicsModel.create("koopman", data, image_encoder="patch", key=jax.random.key(0))
    vectors = Episodes.from_arrays([np.random.default_rng(0).normal(size=(9, 2))], [np.zeros((8, 1))])
    model = DynamicsModel.create("koopman", vectors, key=jax.random.key(0))
    with pytest.raises(KoopaxError, match="of vectors, not of frames"):
        model.frames(jnp.zeros((3, 2)))


@pytest.mark.slow
def test_frames_go_through_the_command_line_to_a_report_with_videos(tmp_path):
    save(moving_square(12, 30), tmp_path / "frames.npz")

    def call(*arguments):
        done = subprocess.run([KOOPAX, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout

    sizes = ["--latent-size", "16", "--horizon", "8", "--steps", "20", "--batch-size", "4"]
    for core in ("koopman", "gru"):
        call("train", "frames.npz", "--model", core, *sizes, "--out", f"runs/{core}")
    found = json.loads(call("evaluate", "runs/koopman", "--horizon", "8", "--json"))
    assert len(found["state"]["per_step"]) == 8
    assert len(found["state"]["per_dimension"]) == 3
    call("video", "runs/koopman", "--horizon", "8", "--out", "v.mp4")
    assert (tmp_path / "v.mp4").stat().st_size > 1000
    call("report", "runs/koopman", "runs/gru", "--horizon", "8", "--out", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "red, mean of the frame" in page
    assert "No video" not in page
