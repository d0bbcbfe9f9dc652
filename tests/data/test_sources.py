import dataclasses
import subprocess
import sys

import h5py
import numpy as np
import pytest

from episode_samples import DESTINATIONS, assert_equal, files_under, random_episodes, write_hdf5, write_table
from koopax.collection import convert
from koopax.data import Episodes, load, save

NAMED = {
    "state_names": ("x", "angle", "speed"),
    "action_names": ("left", "right"),
    "units": {"x": "m", "angle": "rad"},
    "environment": "Pendulum-v1",
    "step_seconds": 0.05,
    "extra": {"seed": 3},
}


def test_d4rl_episodes_lengths_and_last_states(d4rl_file):
    episodes = load(d4rl_file)
    with h5py.File(d4rl_file) as file:
        raw = {name: file[name][:] for name in ("observations", "next_observations", "actions", "rewards")}
    np.testing.assert_array_equal(episodes.lengths, [5, 4, 3])
    np.testing.assert_array_equal(episodes.terminated, [True, False, False])
    for i, (first, end) in enumerate([(0, 5), (5, 9), (9, 12)]):
        episode = episodes.episode(i)
        np.testing.assert_array_equal(episode.observations[:-1], raw["observations"][first:end])
        np.testing.assert_array_equal(episode.observations[-1], raw["next_observations"][end - 1])
        np.testing.assert_array_equal(episode.actions, raw["actions"][first:end])
        np.testing.assert_array_equal(episode.rewards, raw["rewards"][first:end])
    np.testing.assert_array_equal(episodes.episode(0).observations[-1], [10, 11, 12, 13])
    np.testing.assert_array_equal(episodes.episode(1).observations[-1], [20, 21, 22, 23])


def test_d4rl_pieces_are_joined_in_order(d4rl_file, monkeypatch):
    from koopax.data.sources import d4rl

    whole = load(d4rl_file)
    monkeypatch.setattr(d4rl, "_PIECE_ROWS", 4)
    assert len(list(d4rl.read(d4rl_file))) == 3
    assert_equal(whole, load(d4rl_file))
    on_disk = load(d4rl_file, memory_map=True)
    assert on_disk.is_memory_mapped
    assert_equal(whole, on_disk)


def test_d4rl_without_next_observations_drops_the_last_transition(d4rl_file):
    with h5py.File(d4rl_file, "a") as file:
        del file["next_observations"]
        file["terminals"][5] = True  # an episode of one step vanishes
        observations = file["observations"][:]
    episodes = load(d4rl_file)
    np.testing.assert_array_equal(episodes.lengths, [4, 2, 2])
    assert not episodes.terminated.any()
    np.testing.assert_array_equal(episodes.episode(0).observations, observations[:5])
    np.testing.assert_array_equal(episodes.episode(1).observations, observations[6:9])


def test_d4rl_without_timeouts_ends_episodes_at_jumps(d4rl_file):
    whole = load(d4rl_file)
    with h5py.File(d4rl_file, "a") as file:
        del file["timeouts"]
    assert_equal(whole, load(d4rl_file))


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_a_d4rl_file_survives_every_format(d4rl_file, destination):
    original = load(d4rl_file)
    convert(d4rl_file, destination)
    assert_equal(original, load(destination))
    assert_equal(original, load(destination, memory_map=True))


@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("irregular", [False, True])
def test_round_trip_is_exact(destination, irregular):
    sources = ["good", "bad", "good", "unsure"]
    episodes = random_episodes([7, 1, 30, 4], irregular=irregular, sources=sources, **NAMED)
    save(episodes, destination)
    again = load(destination)
    csv = destination.endswith(".csv")  # has no place for the other metadata
    assert_equal(episodes, again, metadata=not csv)
    assert again.metadata.state_names == NAMED["state_names"]
    assert again.metadata.source_names == ("good", "bad", "unsure")


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_a_set_without_rewards_survives_every_format(destination):
    episodes = Episodes.from_arrays([[[0], [1], [2]], [[3], [4]]], [[[5], [6]], [[7]]])
    save(episodes, destination)
    csv = destination.endswith(".csv")  # has no place to say so
    again = load(destination, **{"reward": "none"} if csv else {})
    assert_equal(episodes, again)
    assert not again.has_rewards


def test_arrays_without_rewards_can_be_read():
    np.savez("a.npz", observations=np.ones((2, 4, 3)), actions=np.ones((2, 3, 1)))
    assert repr(load("a.npz", reward="none")) == "Episodes(2 episodes, 6 steps, 3 states, 1 action, no rewards)"
    save(random_episodes([3, 4]), "b.npz")
    without = load("b.npz", reward="none")
    assert not without.has_rewards
    assert not without.rewards.any()


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_split_sets_on_disk_can_be_written(destination, tmp_path):
    episodes = random_episodes([5] * 10, sources=list("abababcccc"))
    on_disk = load(save(episodes, tmp_path / "big.episodes"), memory_map=True)
    train, test = on_disk.split(0.5, 0)
    joined = Episodes.concatenate([test, train])
    save(joined, destination)
    again = load(destination)
    assert [again.episode(i).source for i in range(10)] == [joined.episode(i).source for i in range(10)]
    assert_equal(joined.select(range(10)), dataclasses.replace(again, sources=joined.sources, metadata=joined.metadata))


def test_extreme_floats_survive_csv():
    tiny, huge = np.float32(1e-45), np.finfo(np.float32).max
    values = np.array([[tiny], [huge], [-huge], [1 / 3], [16777217.0]], np.float32)
    values = np.concatenate([values, np.random.default_rng(0).normal(size=(5000, 1)).astype("f4") * 1e-3])
    episodes = Episodes.from_arrays([values], [values[1:]], [values[1:, 0]])
    save(episodes, "a.csv")
    assert_equal(episodes, load("a.csv"))


def test_minari_reads_what_we_write():
    import minari

    episodes = random_episodes([7, 3], environment="Pendulum-v1", extra={"action_low": [-2, -2], "action_high": [2, 2]})
    save(episodes, "mine/pendulum/test-v0")
    assert list(minari.list_local_datasets()) == ["mine/pendulum/test-v0"]
    dataset = minari.load_dataset("mine/pendulum/test-v0")
    assert (dataset.total_episodes, dataset.total_steps, dataset.env_spec.id) == (2, 10, "Pendulum-v1")
    assert dataset.action_space.high.tolist() == [2, 2]
    for i, read in enumerate(dataset.iterate_episodes()):
        episode = episodes.episode(i)
        np.testing.assert_array_equal(read.observations, episode.observations)
        np.testing.assert_array_equal(read.actions, episode.actions)
        np.testing.assert_array_equal(read.rewards, episode.rewards)
        assert read.terminations[-1] == episode.terminated
        assert read.truncations[-1] != episode.terminated
        assert not read.terminations[:-1].any()


def test_minari_datasets_of_others_are_read():
    import gymnasium
    import minari
    from minari.data_collector import EpisodeBuffer

    spaces = gymnasium.spaces
    space = spaces.Dict({"goal": spaces.Box(-1, 1, (2,)), "arm": spaces.Dict({"pose": spaces.Box(-1, 1, (2, 2))})})
    generator = np.random.default_rng(0)
    buffers, expected = [], []
    for steps in (3, 5):
        goal, pose = generator.random((steps + 1, 2)), generator.random((steps + 1, 2, 2))
        choice = generator.integers(0, 3, steps)
        flags = np.arange(steps) == steps - 1
        buffers.append(
            EpisodeBuffer(
                observations={"goal": goal, "arm": {"pose": pose}},
                actions=choice,
                rewards=np.ones(steps),
                terminations=flags,
                truncations=np.zeros(steps, bool),
            )
        )
        expected.append((np.concatenate([pose.reshape(-1, 4), goal], 1), np.eye(3)[choice]))
    minari.create_dataset_from_buffers(
        "theirs/arm-v1", buffers, observation_space=space, action_space=spaces.Discrete(3)
    )
    episodes = load("theirs/arm-v1")
    assert episodes.terminated.all()
    for i, (observations, actions) in enumerate(expected):
        np.testing.assert_allclose(episodes.episode(i).observations, observations, rtol=1e-6)
        np.testing.assert_array_equal(episodes.episode(i).actions, actions)


def test_reading_files_needs_no_environment_library(d4rl_file):
    episodes = load(d4rl_file)
    for name in ("a.npz", "a.csv", "a.parquet", "a.episodes"):
        save(episodes, name)
    code = (
        "import sys; sys.modules.update(gymnasium=None, minari=None, mujoco=None)\n"
        "from koopax.data import load\n"
        f"for f in ['a.npz', 'a.csv', 'a.parquet', 'a.episodes', {str(d4rl_file)!r}]: assert load(f).num_steps == 12\n"
        "try: load('some/id-v0')\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'koopax[mujoco]'" in done.stdout


def test_foreign_npz_layouts(d4rl_file):
    generator = np.random.default_rng(0)
    arrays = [generator.normal(size=shape).astype("f4") for shape in ((4, 11, 3), (4, 10, 2), (4, 10))]
    np.savez("cube.npz", observations=arrays[0], actions=arrays[1], rewards=arrays[2])
    assert_equal(load("cube.npz"), Episodes.from_arrays(*arrays))
    np.savez("one.npz", observations=arrays[0][0], actions=arrays[1][0], rewards=arrays[2][0])
    assert_equal(load("one.npz"), Episodes.from_arrays(*(a[:1] for a in arrays)))
    with h5py.File(d4rl_file) as file:
        np.savez("flat.npz", **{name: file[name][:] for name in file if name != "infos"})
    assert_equal(load("flat.npz"), load(d4rl_file))


def test_chosen_columns_scattered_rows_and_times():
    write_table("t.parquet")
    episodes = load("t.parquet", episode="trial", state=["x", "v"], action="force", reward="gain", time="clock")
    np.testing.assert_array_equal(episodes.lengths, [2, 1])
    np.testing.assert_array_equal(episodes.episode(0).observations, [[1, 0], [2, 1], [3, 3]])
    np.testing.assert_array_equal(episodes.episode(1).observations, [[10, 2], [20, 4]])
    np.testing.assert_allclose(episodes.episode(0).actions[:, 0], [0.1, 0.2])
    np.testing.assert_allclose(episodes.episode(0).durations, [1, 2], rtol=1e-5)
    assert episodes.metadata.step_seconds == pytest.approx(0.1)
    assert episodes.metadata.state_names == ("x", "v")
    free = load("t.parquet", episode="trial", state="x, v", action="force", reward="none")
    assert not free.rewards.any()
    assert free.durations is None


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_systems_without_actions(destination):
    episodes = random_episodes([4, 6], actions=0)
    save(episodes, destination)
    # A CSV file can't say that there are none; a Parquet file that we wrote does.
    assert_equal(episodes, load(destination, **({"action": "none"} if destination.endswith(".csv") else {})))


def test_regular_times_are_no_durations():
    write_table("t.parquet", clock=[0.0, 0.1, 5.0, 0.2, 5.1])
    options = {"episode": "trial", "state": "x", "action": "force", "reward": "gain", "time": "clock"}
    assert load("t.parquet", **options).durations is None
    coarse = load("t.parquet", **options, step_seconds=0.2)
    np.testing.assert_allclose(coarse.episode(0).durations, 0.5, rtol=1e-5)


def test_guessed_columns():
    with open("g.csv", "w") as file:
        file.write("episode,obs_x,obs_y,action_u,reward,terminated\n")
        file.write("7,1,2,0.5,1,false\n7,3,4,,,true\n9,5,6,1,1,false\n9,7,8,,,false\n")
    episodes = load("g.csv")
    assert (episodes.metadata.state_names, episodes.metadata.action_names) == (("x", "y"), ("u",))
    np.testing.assert_array_equal(episodes.terminated, [True, False])
    np.testing.assert_array_equal(episodes.observations, [[1, 2], [3, 4], [5, 6], [7, 8]])


def test_the_same_episodes_give_the_same_bytes():
    episodes = random_episodes([3, 4], environment="x")
    for suffix in ("npz", "parquet", "csv"):
        assert save(episodes, f"a.{suffix}").read_bytes() == save(episodes, f"b.{suffix}").read_bytes()
    folders = [save(episodes, f"{name}.episodes") for name in "ab"]
    assert files_under(folders[0]) == files_under(folders[1])
    for name in files_under(folders[0]):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_a_million_steps_load_from_d4rl(tmp_path):
    steps = 1_000_000
    timeouts = np.arange(steps) % 1000 == 999
    zeros = np.zeros((steps, 17), np.float32)
    write_hdf5(
        tmp_path / "halfcheetah_expert-v2.hdf5",
        observations=zeros,
        next_observations=zeros,
        actions=zeros[:, :6],
        rewards=zeros[:, 0],
        terminals=np.zeros(steps, bool),
        timeouts=timeouts,
    )
    episodes = load(tmp_path / "halfcheetah_expert-v2.hdf5")
    assert (episodes.num_episodes, episodes.num_steps) == (1000, steps)
