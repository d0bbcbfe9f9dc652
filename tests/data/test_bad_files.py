"""Bad files, bad requests and a full disk: one clear sentence, nothing half-written left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from episode_samples import DESTINATIONS, assert_equal, files_under, random_episodes, write_hdf5, write_table
from koopax._errors import KoopaxError
from koopax.data import load, save


def truncated(path):
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])


@pytest.mark.parametrize("suffix", [".hdf5", ".npz", ".parquet", ".csv"])
def test_garbage_is_one_sentence(suffix, tmp_path):
    path = tmp_path / f"garbage{suffix}"
    for content in (b"", b"\x00\xff\xfenonsense" * 100):
        path.write_bytes(content)
        with pytest.raises(KoopaxError) as caught:
            load(path)
        assert "garbage" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_truncated_files_are_one_sentence(d4rl_file, tmp_path):
    episodes = load(d4rl_file)
    paths = [save(episodes, tmp_path / name) for name in ("a.npz", "a.parquet")]
    folder = save(episodes, tmp_path / "a.episodes")
    minari = save(episodes, tmp_path / "folder")
    for damaged in (d4rl_file, *paths, folder / "observations.npy", minari / "data" / "main_data.hdf5"):
        truncated(damaged)
    for source in (d4rl_file, *paths, folder, minari):
        with pytest.raises(KoopaxError) as caught:
            load(source)
        assert source.name in str(caught.value)
        assert "\n" not in str(caught.value)


def test_bad_d4rl_contents():
    nothing = {"observations": np.ones((0, 2)), "actions": np.ones((0, 1)), "rewards": [], "terminals": []}
    flat = {"observations": np.ones((3, 2)), "actions": np.ones((3, 1)), "rewards": np.ones(3), "terminals": np.ones(3)}
    cases = [
        ({"x": np.ones(3)}, "holds x and no D4RL arrays"),
        ({k: v for k, v in flat.items() if k != "rewards"}, "has no 'rewards'"),
        (flat | {"actions": np.ones((2, 1))}, "3 observations and 2 actions"),
        (nothing, "is empty"),
        (flat | {"observations": np.ones(3)}, r"shape \(3,\)"),
        (flat, "neither next_observations nor an episode of two steps"),
        (
            flat | {"next_observations": np.full((3, 2), np.nan)},
            r"observations of episode 0 hold nan \(row 1, column 0\)",
        ),
    ]
    for i, (arrays, message) in enumerate(cases):
        write_hdf5(f"{i}.hdf5", **arrays)
        with pytest.raises(KoopaxError, match=message):
            load(f"{i}.hdf5")


def test_bad_npz_contents():
    np.savez("a.npz", observations=np.ones((3, 2)), actions=np.ones((2, 1)))
    with pytest.raises(KoopaxError, match=r"no array 'rewards': it holds actions, observations .*--reward none"):
        load("a.npz")
    with pytest.raises(KoopaxError, match="not 'money'"):
        load("a.npz", reward="money")
    np.savez("b.npz", observations=np.ones((3, 2)), actions=np.ones((3, 1)), rewards=np.ones(3))
    with pytest.raises(KoopaxError, match="one row more"):
        load("b.npz")
    np.savez("c.npz", observations=np.ones((3, 2)), actions=np.ones((2, 1)), rewards=np.ones(2), lengths=[3])
    with pytest.raises(KoopaxError, match="lengths ask for 4"):
        load("c.npz")
    np.savez("d.npz", observations=np.array([None, "x"]), actions=np.ones(1), rewards=np.ones(1))
    with pytest.raises(KoopaxError, match="plain arrays"):
        load("d.npz")


@pytest.mark.parametrize("kind", ["group", "text", "texts", "number", "list"])
@pytest.mark.parametrize("name", ["observations", "actions", "rewards", "terminals"])
def test_what_is_no_array_in_hdf5_is_one_sentence(kind, name):
    import h5py

    flat = {"observations": np.ones((3, 2)), "actions": np.ones((3, 1)), "rewards": np.ones(3), "terminals": np.ones(3)}
    write_hdf5("a.hdf5", **flat)
    with h5py.File("a.hdf5", "a") as file:
        del file[name]
        if kind == "group":
            file.create_group(name)
        elif kind == "list":
            file.create_dataset(name, (3,), h5py.vlen_dtype(np.float32))
        else:
            file[name] = {"text": "words", "texts": ["a", "b", "c"], "number": 3.0}[kind]
    with pytest.raises(KoopaxError, match=rf"a\.hdf5|{name}") as caught:
        load("a.hdf5")
    assert "\n" not in str(caught.value)


def test_an_array_alone_is_no_npz():
    with open("a.npz", "wb") as file:
        np.save(file, np.ones((3, 2)))
    with pytest.raises(KoopaxError, match=r"a\.npz") as caught:
        load("a.npz")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["trial", "clock", "x", "force", "gain"])
def test_columns_of_lists_are_one_sentence(name):
    write_table("t.parquet", **{name: [[1.0], [2.0], [3.0], [], [4.0, 5.0]]})
    columns = {"episode": "trial", "time": "clock", "state": "x,v", "action": "force", "reward": "gain"}
    with pytest.raises(KoopaxError, match=name) as caught:
        load("t.parquet", **columns)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", '{"total_episodes": "many"}', None])
def test_a_minari_folder_without_its_description_is_read_or_one_sentence(content, d4rl_file, tmp_path):
    minari = save(load(d4rl_file), tmp_path / "folder")
    metadata = minari / "data" / "metadata.json"
    metadata.unlink() if content is None else metadata.write_text(content)
    said = ""
    try:
        load(minari)
    except KoopaxError as error:
        said = str(error)
    assert "\n" not in said


def test_bad_tables():
    write_table("t.parquet")
    columns = {"episode": "trial", "state": "x", "action": "force", "reward": "gain"}
    with pytest.raises(
        KoopaxError,
        match=r"no episode column: name it by episode= \(on the command line --episode\), of trial, clock, x, v, force",
    ):
        load("t.parquet")
    with pytest.raises(KoopaxError, match=r"no reward column: name it by reward= .* --reward\), of .*say `none` if"):
        load("t.parquet", **{name: column for name, column in columns.items() if name != "reward"})
    with pytest.raises(KoopaxError, match="state column 'x' is named 2 times"):
        load("t.parquet", **columns | {"state": "x,v,x"})
    with pytest.raises(KoopaxError, match="no state column"):
        load("t.parquet", episode="trial")
    with pytest.raises(KoopaxError, match=r"unknown state column 'y'.*clock"):
        load("t.parquet", **columns | {"state": ["x", "y"]})
    with pytest.raises(KoopaxError, match="unknown option of the table format 'colour'"):
        load("t.parquet", colour="red")
    with pytest.raises(KoopaxError, match="not made of numbers"):
        load("t.parquet", **columns | {"state": "trial"})
    write_table("n.parquet", force=[0.1, None, 0.3, None, None])
    with pytest.raises(KoopaxError, match=r"actions of episode 0 hold nan \(row 1, column 0\)"):
        load("n.parquet", **columns)
    write_table("s.parquet", trial=["a", "a", "a", "a", "b"])
    with pytest.raises(KoopaxError, match=r"episode b of 's\.parquet' has a single row"):
        load("s.parquet", **columns)
    write_table("e.parquet", trial=["a", "a", None, "a", "b"])
    with pytest.raises(KoopaxError, match="1 empty cells"):
        load("e.parquet", **columns)
    write_table("c.parquet", clock=[0.3, 0.1, 5.0, 0.0, 5.1])
    with pytest.raises(KoopaxError, match="times must increase"):
        load("c.parquet", **columns, time="clock")


def test_two_columns_of_one_name_are_refused_where_they_are_meant(tmp_path):
    path = tmp_path / "twice.csv"
    path.write_text("episode,state_x,state_x,action_u,reward,note,note\n" + "0,1,2,3,4,5,6\n" * 3)
    with pytest.raises(KoopaxError, match=r"2 columns called 'state_x': give each its own name"):
        load(path)
    path.write_text("episode,state_x,state_y,action_u,reward,note,note\n" + "0,1,2,3,4,5,6\n" * 3)
    np.testing.assert_array_equal(load(path).observations, [[1, 2]] * 3)


def test_complex_numbers_are_refused():
    plain = {"observations": np.ones((3, 2)), "actions": np.ones((2, 1)), "rewards": np.ones(2)}
    flags = {"terminals": np.zeros(3), "actions": np.ones((3, 1)), "rewards": np.ones(3)}
    for number, arrays in enumerate((plain, plain | {"lengths": [2]}, plain | flags)):
        np.savez(f"{number}.npz", **arrays | {"observations": np.ones((3, 2)) + 1j})
        with pytest.raises(KoopaxError, match=r"observations.* are complex: give their real and imaginary parts"):
            load(f"{number}.npz")
    write_hdf5("a.hdf5", **plain | flags | {"actions": np.ones((3, 1)) + 1j})
    with pytest.raises(KoopaxError, match=r"actions.* are complex"):
        load("a.hdf5")


def test_unknown_sources():
    for name, message in (
        ("nowhere.npz", "there is no file or folder 'nowhere.npz'"),
        ("./nowhere", "there is no file or folder"),
        ("no such thing", "neither a file nor a dataset's name"),
        ("koopax/hopper/expert-v0", "collected, not read: use koopax.load"),
    ):
        with pytest.raises(KoopaxError, match=message):
            load(name)
    with open("a.xyz", "w") as file:
        file.write("x")
    with pytest.raises(KoopaxError, match=r"unknown file type '\.xyz'"):
        load("a.xyz")
    with pytest.raises(KoopaxError, match="folder without episodes"):
        load(".")


def test_an_unknown_minari_id_is_one_sentence(monkeypatch):
    import minari

    def offline(identifier):
        print("Downloading")
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(minari, "download_dataset", offline)
    with pytest.raises(KoopaxError, match=r"no Minari dataset 'some/thing-v0'.*downloading it failed \(no route\)"):
        load("some/thing-v0")


def test_what_exists_is_not_overwritten_unasked():
    episodes, other = random_episodes([3, 4]), random_episodes([5])
    for destination in DESTINATIONS:
        save(episodes, destination)
        with pytest.raises(KoopaxError, match="already exists"):
            save(other, destination)
        assert_equal(episodes, load(destination))
        save(other, destination, overwrite=True)
        assert_equal(other, load(destination))
    assert not [name for name in files_under(".") if ".tmp" in name]
    with pytest.raises(KoopaxError, match="no format that can be written"):
        save(episodes, "a.hdf5")


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_a_full_disk_leaves_nothing_behind(destination, monkeypatch, tmp_path):
    # A limit on the size of files makes writes fail just as a full disk does.
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    code = f"""
import resource
from episode_samples import random_episodes
from koopax.data import save
episodes = random_episodes([1000] * 20)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    save(episodes, {destination!r})
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert done.stdout.startswith("KoopaxError"), done.stderr
    assert "could not be written" in done.stdout
    assert done.stdout.count("\n") == 1
    assert files_under(tmp_path) == []


def test_a_folder_from_the_future_is_refused():
    folder = save(random_episodes([3]), "a.episodes")
    header = json.loads((folder / "header.json").read_text())
    (folder / "header.json").write_text(json.dumps(header | {"version": 99}))
    with pytest.raises(KoopaxError, match="version 99"):
        load(folder)
