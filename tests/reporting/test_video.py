"""Videos are made by the real simulator and encoder, and read back."""

import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from run_samples import HORIZON

from koopax._errors import KoopaxError
from koopax.reporting.video import Panel, Rendering, write_video

KOOPAX = Path(sys.executable).with_name("koopax")


def read(path):
    frames = imageio_ffmpeg.read_frames(str(path))
    about = next(frames)
    width, height = about["size"]
    return about, [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in frames]


def test_true_and_predicted_motion_side_by_side(folders, tmp_path):
    done = subprocess.run(
        [KOOPAX, "video", folders["mlp"], "--horizon", str(HORIZON), "--window", "2", "--out", "v.mp4"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "v.mp4"
    about, frames = read(tmp_path / "v.mp4")
    assert about["codec"] == "h264"
    assert about["pix_fmt"].startswith("yuv420p")
    assert len(frames) == HORIZON + 1
    assert (tmp_path / "v.mp4").stat().st_size < 1_000_000
    half = frames[0].shape[1] // 2
    left, right = frames[0][30:, :half].astype(int), frames[0][30:, half:].astype(int)
    # Both begin in the same pose, in other colours: grey on the left, blue on the right.
    coloured = [np.ptp(side, axis=2) > 60 for side in (left, right)]
    assert coloured[0].mean() < 0.001 < 0.005 < coloured[1].mean()
    assert np.abs(frames[-1].astype(int) - frames[0]).max() > 60


def test_the_ground_has_no_end(tmp_path):
    states = np.zeros((6, 11))
    states[:, 0], states[:, 5] = 1.25, 20_000.0  # metres per second: beyond any floor at the second frame
    video = Rendering("Hopper-v5", [Panel("true", "#646a73", states)]).result()
    (tmp_path / "v.mp4").write_bytes(video)
    _, frames = read(tmp_path / "v.mp4")
    contrast = [np.ptp(frame[-60:-20, :100].astype(int)) for frame in frames]  # of the tiles beside the foot
    assert min(contrast) > 15, contrast


def test_a_prediction_that_leaves_the_finite_numbers_is_shown_as_such(tmp_path):
    states = np.zeros((4, 11))
    states[:, 0] = 1.25
    broken = states.copy()
    broken[2:] = np.nan
    video = Rendering("Hopper-v5", [Panel("true", "#646a73", states), Panel("mlp", "#0072b2", broken)]).result()
    (tmp_path / "v.mp4").write_bytes(video)
    _, frames = read(tmp_path / "v.mp4")
    half = frames[0].shape[1] // 2
    body = [(np.ptp(frame[40:, half:].astype(int), axis=2) > 60).sum() for frame in frames]
    assert min(body[:2]) > 100
    assert max(body[2:]) < 20


def test_data_can_not_run_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("evil", "gymnasium"):
        (tmp_path / f"{name}.py").write_text("open('harm', 'w')")
    with pytest.raises(KoopaxError, match="only a name that you type may import a module"):
        Rendering("evil:Nice-v0", [Panel("true", "#646a73", np.zeros((4, 11)))]).result()
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("environment", [None, "Pendulum-v1", "Nowhere-v0"])
def test_what_can_not_be_rendered_is_one_sentence(environment):
    with pytest.raises(KoopaxError) as caught:
        Rendering(environment, [Panel("true", "#646a73", np.zeros((3, 3)))]).result()
    assert "\n" not in str(caught.value)


def test_a_machine_without_graphics_gets_the_reason(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disable")
    with pytest.raises(KoopaxError, match="there is no video"):
        Rendering("Hopper-v5", [Panel("true", "#646a73", np.zeros((3, 11)))]).result()


def test_a_window_that_is_not_there(folders, tmp_path):
    with pytest.raises(KoopaxError, match="window is 100000"):
        write_video(folders["mlp"], tmp_path / "v.mp4", window=100_000, horizon=HORIZON)
