"""The replay of frames against a slow twin that keeps whole episodes, and its files."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koopax._errors import KoopaxError
from koopax.agents.pixels.replay import FrameReplay
from koopax.agents.pixels.replay_files import ReplayFiles, check_room

SIZE = 2


def filled(lengths, rows, *, stack=3, envs=1, terminated=True):
    """A replay after episodes of these lengths in every environment; frame, action and reward tell where they are."""
    replay = FrameReplay(envs, rows, SIZE, 1, frame_stack=stack)
    for env in range(envs):
        number = 0
        for length in lengths:
            replay.begin(env, picture(env, number))
            for step in range(length):
                number += 1
                ends = terminated and step == length - 1
                replay.add(env, np.array([number], np.float32), float(number), ends, picture(env, number))
            number += 1
    return replay


def picture(env, number):
    frame = np.zeros((SIZE, SIZE, 3), np.uint8)
    frame[..., 0], frame[..., 1], frame[..., 2] = number % 256, number // 256, env
    return frame


def number_of(frames):
    return frames[..., 0, 0, 0].astype(int) + 256 * frames[..., 0, 0, 1].astype(int)


@given(
    lengths=st.lists(st.integers(1, 9), min_size=3, max_size=12),
    rows=st.integers(12, 60),
    horizon=st.integers(1, 7),
    stride=st.integers(1, 3),
    steps=st.integers(1, 4),
    terminated=st.booleans(),
    seed=st.integers(0, 99),
)
def test_what_is_sampled_is_what_the_episodes_hold(lengths, rows, horizon, stride, steps, terminated, seed):
    replay = filled(lengths, rows, envs=2, terminated=terminated)
    starts = np.cumsum([0, *(length + 1 for length in lengths)])
    options = {"discount": 0.5, "return_steps": steps, "windows": 8, "horizon": horizon, "stride": stride}
    batch = replay.sample(3, 16, **options, rng=np.random.default_rng(seed))
    newest = starts[-1] - 1
    for count in range(3):
        for i in range(16):
            now = int(number_of(batch.frames[count, i, -1]))
            episode = int(np.searchsorted(starts, now, side="right")) - 1
            begin, end = starts[episode], starts[episode + 1] - 1
            assert newest - rows < now < end
            stacked = [max(now - 2, begin), max(now - 1, begin), now]
            assert number_of(batch.frames[count, i]).tolist() == stacked
            # An action and its reward are called like the frame that it leads to.
            assert batch.actions[count, i, 0] == now + 1
            later = min(now + steps, end)
            assert number_of(batch.next_frames[count, i]).tolist() == [max(later - back, begin) for back in (2, 1, 0)]
            assert batch.rewards[count, i] == pytest.approx(sum(0.5**k * (now + 1 + k) for k in range(later - now)))
            assert batch.discounts[count, i] == (0 if terminated and later == end else 0.5 ** (later - now))
            assert len({*batch.frames[count, i, :, 0, 0, 2]}) == 1
            if i >= 8:
                continue
            first = int(batch.first[count])
            assert 0 <= first < stride
            for step, wanted in enumerate(range(first + 1, first + 1 + stride * -(-horizon // stride), stride)):
                inside = wanted <= horizon and now + wanted <= end
                assert batch.inside[count, step, i] == inside
                if inside:
                    seen = [max(now + wanted - back, begin) for back in (2, 1, 0)]
                    assert number_of(batch.future_frames[count, step, i]).tolist() == seen
            for step in range(min(horizon, end - now)):
                assert batch.future_actions[count, step, i, 0] == now + step + 1


def test_every_transition_that_is_left_is_drawn_equally_often():
    replay = filled([4, 5, 6], rows=12)
    options = {"discount": 0.9, "return_steps": 1, "windows": 0, "horizon": 1, "stride": 1}
    drawn = replay.sample(1, 20_000, **options, rng=np.random.default_rng(0))
    numbers, counts = np.unique(number_of(drawn.frames[0, :, -1]), return_counts=True)
    # 18 rows were written, 12 are left, and the first two of them lack frames before them.
    assert numbers.tolist() == [8, 9, 11, 12, 13, 14, 15, 16]
    assert counts.min() > 0.9 * counts.max()


def test_the_newest_observation_is_the_stack_that_an_agent_sees():
    replay = filled([3], rows=10)
    assert number_of(replay.observation(0)).tolist() == [1, 2, 3]
    replay.begin(0, picture(0, 77))
    assert number_of(replay.observation(0)).tolist() == [77, 77, 77]


def test_frames_are_stored_once():
    replay = FrameReplay(1, 1_000, 84, 6, frame_stack=3)
    others = sum(array.nbytes for name, array in replay.arrays.items() if name != "frames")
    assert replay.arrays["frames"].nbytes == 1_000 * 84 * 84 * 3
    # A hundred thousand of these are below 2.5 GiB.
    assert 100 * (replay.arrays["frames"].nbytes + others) < 2.5 * 2**30


@settings(max_examples=6)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=8), st.integers(8, 40), st.integers(1, 4))
def test_a_replay_is_restored_from_its_files(tmp_path_factory, lengths, rows, every):
    folder = tmp_path_factory.mktemp("replay")
    files = ReplayFiles(folder)
    replay = FrameReplay(2, rows, SIZE, 1, frame_stack=3)
    for env in range(2):
        replay.begin(env, picture(env, 0))
    header, newest = files.save(replay)
    for number in range(1, sum(lengths)):
        for env in range(2):
            replay.add(env, np.array([number], np.float32), float(number), False, picture(env, number))
            if number % 5 == 4:
                replay.begin(env, picture(env, 100 + number))
        if number % every == 0:
            header, newest = files.save(replay)
            there = {name: array.copy() for name, array in replay.arrays.items()}
            again = FrameReplay(2, rows, SIZE, 1, frame_stack=3)
            ReplayFiles(folder).restore(again, header, newest)
            np.testing.assert_array_equal(again.inserted, replay.inserted)
            for name, array in there.items():
                np.testing.assert_array_equal(again.arrays[name], array, err_msg=name)


def test_old_files_are_removed_and_damage_is_found(tmp_path):
    files, replay = ReplayFiles(tmp_path), filled([20], rows=10)
    for number in range(60):
        header, newest = files.save(replay)
        replay.add(0, np.zeros(1, np.float32), 0.0, False, picture(0, number))
    assert len(list(tmp_path.glob("*.npz"))) <= 12
    path = tmp_path / header["files"][-1]["name"]
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(KoopaxError, match="missing or damaged"):
        ReplayFiles(tmp_path).restore(filled([1], rows=10), header, newest)


def test_a_damaged_file_leaves_the_checkpoint_before_it_whole(tmp_path):
    files, replay = ReplayFiles(tmp_path), filled([20], rows=10)
    saved = []
    for number in range(15):
        saved.append((*files.save(replay), replay.inserted.copy(), {n: a.copy() for n, a in replay.arrays.items()}))
        replay.add(0, np.zeros(1, np.float32), 0.0, False, picture(0, number))
    (tmp_path / saved[-1][0]["files"][-1]["name"]).unlink()
    again = FrameReplay(1, 10, SIZE, 1, frame_stack=3)
    with pytest.raises(KoopaxError, match="missing or damaged"):
        ReplayFiles(tmp_path).restore(again, *saved[-1][:2])
    header, newest, inserted, arrays = saved[-2]
    ReplayFiles(tmp_path).restore(again, header, newest)
    np.testing.assert_array_equal(again.inserted, inserted)
    for name, array in arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array, err_msg=name)


@pytest.mark.parametrize("spoilt", [{"end": 10**12}, {"start": -5}, {"name": "../../x"}, {"env": 3}])
def test_a_header_of_wrong_rows_takes_no_memory(tmp_path, spoilt):
    files, replay = ReplayFiles(tmp_path), filled([20], rows=10)
    header, newest = files.save(replay)
    header["files"][0] |= spoilt
    with pytest.raises((KoopaxError, ValueError, IndexError)):
        ReplayFiles(tmp_path).restore(FrameReplay(1, 10, SIZE, 1, frame_stack=3), header, newest)


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(KoopaxError, match=r"does not fit into memory, of which .* GiB are free: lower replay_steps"):
        check_room(2**50, tmp_path / "run")
    with pytest.raises(KoopaxError, match="holds no transition"):
        FrameReplay(1, 4, SIZE, 1, frame_stack=3)
    with pytest.raises(KoopaxError, match=r"a frame has shape \(3, 3, 3\) where all before had \(2, 2, 3\)"):
        filled([1], rows=10).begin(0, np.zeros((3, 3, 3), np.uint8))
