"""Episodes of frames: kept once as uint8, cut without copies, sampled with the frames before them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from episode_samples import assert_equal, mapped
from koopax._errors import KoopaxError
from koopax.data import Episodes, Normaliser, WindowSampler, fixed_windows, load, save, summarise
from koopax.data.fingerprint import fingerprint

DESTINATIONS = ["a.npz", "a.episodes", "mine/some/frames-v0", "./folder"]
"""One for every format that holds frames."""


def random_frames(lengths, *, seed=0, shape=(20, 16, 3), **options) -> Episodes:
    generator = np.random.default_rng(seed)
    return Episodes.from_arrays(
        [generator.integers(0, 256, (n + 1, *shape), np.uint8) for n in lengths],
        [generator.normal(size=(n, 2)) for n in lengths],
        [generator.normal(size=n) for n in lengths],
        **options,
    )


def numbered_frames(lengths) -> Episodes:
    """Frames of one pixel that says (episode, step)."""
    return Episodes.from_arrays(
        [
            np.stack([np.full(n + 1, e), np.arange(n + 1)], 1).astype(np.uint8)[:, None, None]
            for e, n in enumerate(lengths)
        ],
        [np.zeros((n, 1)) for n in lengths],
    )


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_frames_survive_every_format_that_holds_them(destination):
    episodes = random_frames([7, 1, 30], sources=["a", "b", "a"], environment="Pendulum-v1", step_seconds=0.05)
    save(episodes, destination)
    for again in (load(destination), load(destination, memory_map=True)):
        assert again.observations.dtype == np.uint8
        assert again.image_shape == (20, 16, 3)
        assert_equal(episodes, again)
        assert fingerprint(again) == fingerprint(episodes)


def test_a_table_does_not_hold_frames():
    with pytest.raises(KoopaxError, match=r"a table can't hold frames of 20×16×3: write an \.npz"):
        save(random_frames([3]), "a.parquet")


def test_npz_of_plain_arrays_holds_frames():
    frames = np.random.default_rng(0).integers(0, 256, (2, 5, 8, 6, 1), np.uint8)
    np.savez("several.npz", observations=frames, actions=np.ones((2, 4, 1)), rewards=np.ones((2, 4)))
    np.savez("one.npz", observations=frames[0], actions=np.ones((4, 1)), rewards=np.ones(4))
    several, one = load("several.npz"), load("one.npz")
    assert repr(several) == "Episodes(2 episodes, 8 steps, 1 action, frames of 8×6×1)"
    np.testing.assert_array_equal(several.episode(1).observations, frames[1])
    np.testing.assert_array_equal(one.episode(0).observations, frames[0])


def test_minari_reads_frames_that_others_wrote_and_those_we_write():
    import gymnasium
    import minari
    from minari.data_collector import EpisodeBuffer

    spaces = gymnasium.spaces
    frames = np.random.default_rng(0).integers(0, 256, (4, 16, 20, 3), np.uint8)
    rest = {"actions": np.zeros((3, 1)), "rewards": np.ones(3), "terminations": [False] * 3, "truncations": [0, 0, 1]}
    box, action = spaces.Box(0, 255, (16, 20, 3), np.uint8), spaces.Box(-1, 1, (1,))

    def create(name, space, observations):
        buffer = EpisodeBuffer(observations=observations, **rest)
        minari.create_dataset_from_buffers(name, [buffer], observation_space=space, action_space=action)

    create("their/frames-v0", box, frames)
    create("their/dict-v0", spaces.Dict({"pixels": box}), {"pixels": frames})
    both = spaces.Dict({"pixels": box, "speed": spaces.Box(-1, 1, (2,))})
    create("their/both-v0", both, {"pixels": frames, "speed": np.zeros((4, 2))})
    for name in ("their/frames-v0", "their/dict-v0"):
        np.testing.assert_array_equal(load(name).episode(0).observations, frames)
    with pytest.raises(KoopaxError, match="hold the picture 'pixels' beside other values"):
        load("their/both-v0")
    save(load("their/frames-v0"), "our/frames-v0")
    read = next(iter(minari.load_dataset("our/frames-v0").iterate_episodes()))
    np.testing.assert_array_equal(read.observations, frames)


def test_cutting_a_set_of_frames_copies_none(tmp_path):
    episodes = random_frames([5, 9, 2, 7])
    train, test = episodes.split(0.5, seed=0)
    joined = Episodes.concatenate([test, train[:1]])
    for part in (train, test, joined):
        assert all(np.shares_memory(piece, episodes.observations) for piece in part.observations.parts)
        assert not part.is_memory_mapped
    on_disk = mapped(episodes, tmp_path)
    assert on_disk.split(0.5, seed=0)[0].is_memory_mapped
    chosen = episodes[[3, 0]]
    np.testing.assert_array_equal(chosen.episode(0).observations, episodes.episode(3).observations)
    np.testing.assert_array_equal(
        np.asarray(joined.in_memory().observations), np.concatenate([episode.observations for episode in joined])
    )
    # A set of many pieces is gathered like one of a single piece.
    pieces = Episodes.concatenate([episodes[i : i + 1] for i in range(4)])
    rows = np.random.default_rng(0).integers(0, len(episodes.observations), (4, 5))
    np.testing.assert_array_equal(pieces.observations[rows], episodes.observations[rows])


def test_statistics_of_frames_are_those_of_their_numbers():
    episodes = random_frames([400, 3], shape=(4, 5, 2))
    frames = np.asarray(episodes.observations)
    frames[:, 0, 0] = 7
    frames[1, 0, 1, 0], frames[2:, 0, 1, 0], frames[0, 0, 1, 0] = 255, 254, 254
    found, numbers = episodes.statistics().state, frames.reshape(len(frames), -1).astype(np.float64)
    np.testing.assert_allclose(found.mean, numbers.mean(0), rtol=1e-14)
    np.testing.assert_allclose(found.std, numbers.std(0), rtol=1e-12)
    np.testing.assert_array_equal(found.minimum, numbers.min(0))
    np.testing.assert_array_equal(found.maximum, numbers.max(0))
    np.testing.assert_array_equal(found.constant, numbers.std(0) == 0)


def test_the_mean_frame_is_an_error_of_one():
    episodes = random_frames([30, 20], shape=(4, 5, 1))
    np.asarray(episodes.observations)[:, :2] = 9  # half of the pixels never move
    normaliser = Normaliser.fit(episodes)
    frames = jnp.asarray(np.asarray(episodes.observations).reshape(52, -1))
    normalised = normaliser.normalise_state(frames)
    assert normalised.dtype == jnp.float32
    np.testing.assert_allclose(np.mean(normalised**2), 1, rtol=1e-5)
    np.testing.assert_array_equal(normalised.reshape(52, 4, 5)[:, :2], 0)
    np.testing.assert_allclose(normaliser.denormalise_state(normalised), frames, atol=1e-3)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2**31))
@settings(max_examples=50)
def test_windows_come_with_the_frames_before_them(lengths, horizon, past, seed):
    episodes = numbered_frames(lengths)
    if max(lengths) < horizon:
        return
    fixed = fixed_windows(episodes, horizon, 100, seed, past=past).take(slice(None))
    sampler = WindowSampler(episodes, horizon, past=past)
    for windows in (fixed, sampler.sample(jax.random.key(seed), 5)):
        states = np.asarray(windows.states)
        assert windows.states.dtype == np.uint8
        assert (states[:, :, 0] == states[0, :, 0]).all()
        np.testing.assert_array_equal(np.diff(states[:, :, 1].astype(int), axis=0), 1)
        if past == 0:
            assert windows.past_states is None
            continue
        before = np.asarray(windows.past_states).astype(int)
        assert (before[:, :, 0] == states[0, :, 0]).all(), "frames of another episode"
        expected = np.maximum(states[0, :, 1].astype(int) - np.arange(past, 0, -1)[:, None], 0)
        np.testing.assert_array_equal(before[:, :, 1], expected)


def test_windows_are_the_same_from_disk_and_from_views(tmp_path):
    episodes = random_frames([9, 4, 12])
    pieces = Episodes.concatenate([episodes[:1], episodes[1:]])
    expected = WindowSampler(episodes, 4, past=2).sample(jax.random.key(0), 16)
    for other in (mapped(episodes, tmp_path), pieces):
        found = jax.jit(lambda sampler: sampler.sample(jax.random.key(0), 16))(WindowSampler(other, 4, past=2))
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_a_summary_tells_of_channels_not_of_pixels():
    episodes = random_frames([5, 6], shape=(4, 4, 3))
    np.asarray(episodes.observations)[:, 0] = 0
    found = summarise(episodes)
    assert found["image_shape"] == [4, 4, 3]
    assert [column["name"] for column in found["state"]] == ["red", "green", "blue"]
    red = np.asarray(episodes.observations)[..., 0]
    assert found["state"][0]["mean"] == pytest.approx(red.mean())
    assert found["state"][0]["std"] == pytest.approx(red.std())
    assert found["moving_pixels"] == 0.75
    assert found["bytes"] == 13 * (48 + 3 * 4)


BAD = {
    "frames of episode 1 are float64: give uint8": [np.zeros((3, 4, 4, 3), np.uint8), np.zeros((3, 4, 4, 3))],
    "episode 1 are frames of 4×5×3, those of episode 0 frames of 4×4×3": [
        np.zeros((3, 4, 4, 3), np.uint8),
        np.zeros((3, 4, 5, 3), np.uint8),
    ],
    "episode 1 are vectors, those of episode 0 frames of 4×4×3": [np.zeros((3, 4, 4, 3), np.uint8), np.zeros((3, 2))],
    r"have shape \(3, 4, 4\): give \[steps, columns\], or frames": [np.zeros((3, 4, 4), np.uint8)] * 2,
    "frame 2 of episode 0 is 4×5×3, frame 0 is 4×4×3": [
        [np.zeros((4, 4, 3), np.uint8)] * 2 + [np.zeros((4, 5, 3), np.uint8)],
        np.zeros((3, 4, 4, 3), np.uint8),
    ],
    "frame 1 of episode 0 is float32, frame 0 is uint8": [
        [np.zeros((4, 4, 3), dtype) for dtype in ("u1", "f4", "u1")],
        np.zeros((3, 4, 4, 3), np.uint8),
    ],
}


@pytest.mark.parametrize("message", BAD)
def test_bad_frames_are_one_sentence(message):
    with pytest.raises(KoopaxError, match=message):
        Episodes.from_arrays(BAD[message], [np.zeros((2, 1))] * 2)


def test_sets_of_unlike_frames_are_not_joined():
    with pytest.raises(KoopaxError, match="sets of frames of 20×16×3 and frames of 4×4×1 cannot be concatenated"):
        Episodes.concatenate([random_frames([2]), random_frames([2], shape=(4, 4, 1))])
