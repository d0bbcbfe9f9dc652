"""A folder of videos or pictures with a table of actions."""

import shutil
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from episode_samples import assert_equal
from koopax._errors import KoopaxError
from koopax.data import load

STEPS = {"a": 3, "b": 5}


def picture(step: int, size: tuple[int, int] = (20, 16)) -> np.ndarray:
    """A frame whose brightness tells the step."""
    return np.full((*size, 3), (40 * step, 10, 200), np.uint8)


def write_pictures(folder: Path, count: int, **kind) -> None:
    folder.mkdir(parents=True)
    for step in range(count):
        Image.fromarray(picture(step, **kind)).save(folder / f"frame{step}.png")


def write_video(path: Path, count: int) -> None:
    writer = imageio_ffmpeg.write_frames(
        str(path), (16, 20), codec="libx264rgb", pix_fmt_out="rgb24", macro_block_size=1, output_params=["-qp", "0"]
    )
    writer.send(None)
    for step in range(count):
        writer.send(picture(step))
    writer.close()


@pytest.fixture
def folder(tmp_path) -> Path:
    """Episode a as pictures, b as a video without loss."""
    path = tmp_path / "drive"
    rows = ["episode,action_push,reward"]
    for name, steps in STEPS.items():
        rows += [f"{name},{k / 10},{k}" for k in range(steps)] + [f"{name},,"]
    write_pictures(path / "a", STEPS["a"] + 1)
    write_video(path / "b.mkv", STEPS["b"] + 1)
    (path / "actions.csv").write_text("\n".join(rows))
    return path


def test_videos_and_pictures_become_episodes(folder):
    episodes = load(folder)
    assert repr(episodes) == "Episodes(2 episodes, 8 steps, 1 action, frames of 20×16×3)"
    for episode, steps in zip(episodes, STEPS.values(), strict=True):
        np.testing.assert_array_equal(episode.observations, np.stack([picture(k) for k in range(steps + 1)]))
        np.testing.assert_allclose(episode.actions[:, 0], np.arange(steps) / 10, rtol=1e-6)
        np.testing.assert_array_equal(episode.rewards, np.arange(steps))
    on_disk = load(folder, memory_map=True)
    assert on_disk.is_memory_mapped
    assert_equal(episodes, on_disk)


def test_twelve_pictures_are_in_the_order_of_their_numbers(folder):
    shutil.rmtree(folder / "a")
    write_pictures(folder / "a", 12)
    (folder / "actions.csv").write_text("episode,action_0\n" + "a,1\n" * 12)
    found = load(folder, reward="none").episode(0).observations[:, 0, 0, 0]
    np.testing.assert_array_equal(found, (40 * np.arange(12)) % 256)


def test_frames_are_scaled_by_their_mean(folder):
    striped = np.zeros((20, 16, 3), np.uint8)
    striped[:, ::2] = 200
    for step in range(4):
        Image.fromarray(striped).save(folder / "a" / f"frame{step}.png")
    episodes = load(folder, size=4)
    assert episodes.image_shape == (4, 4, 3)
    assert (episodes.episode(0).observations == 100).all()
    np.testing.assert_array_equal(episodes.episode(1).observations[2], picture(2, (4, 4)))


def test_grey_pictures_have_one_channel(folder):
    for step in range(4):
        Image.fromarray(picture(step)[..., 0]).save(folder / "a" / f"frame{step}.png")
    (folder / "actions.csv").write_text("episode,action_0\n" + "a,1\n" * 4)
    assert load(folder, reward="none").image_shape == (20, 16, 1)


def lose_a_frame(folder):
    (folder / "a" / "frame2.png").unlink()


def lose_the_last_frame(folder):
    (folder / "a" / "frame3.png").unlink()


def lose_a_video(folder):
    (folder / "b.mkv").unlink()


def spoil_a_video(folder):
    (folder / "b.mkv").write_bytes(b"nonsense" * 100)


def spoil_a_frame(folder):
    (folder / "a" / "frame1.png").write_bytes(b"nonsense")


def resize_a_frame(folder):
    Image.fromarray(picture(2, (10, 16))).save(folder / "a" / "frame2.png")


def resize_an_episode(folder):
    shutil.rmtree(folder / "a")
    write_pictures(folder / "a", 4, size=(10, 10))


def deepen_a_frame(folder):
    Image.fromarray(np.zeros((20, 16), np.uint16)).save(folder / "a" / "frame0.png")


def add_a_table(folder):
    (folder / "more.csv").write_text("episode\n")


BAD = {
    lose_a_frame: r"a frame is missing in .* between frame1\.png and frame3\.png",
    lose_the_last_frame: "episode 'a' of .* has 3 frames and 4 rows in the table",
    lose_a_video: "no frames of episode 'b' in .*: put a video b.mp4, or a folder b of pictures",
    spoil_a_video: r"b\.mkv' is not a readable video",
    spoil_a_frame: r"frame1\.png' is not a readable picture",
    resize_a_frame: "frame 2 of episode 'a' of .* is 10×16×3, frame 0 is 20×16×3",
    resize_an_episode: "frames of episode 'b' of .* are 20×16×3, those of 'a' 10×10×3: .*--size",
    deepen_a_frame: "has pixels of the kind 'I;16': give 8 bits",
    add_a_table: r"holds the tables actions\.csv, more\.csv",
}


@pytest.mark.parametrize("spoil", BAD)
def test_bad_folders_are_one_sentence(spoil, folder):
    spoil(folder)
    with pytest.raises(KoopaxError, match=BAD[spoil]) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_a_size_that_is_none_is_one_sentence(folder):
    with pytest.raises(KoopaxError, match="frames of 0 pixels to a side"):
        load(folder, size=0)
