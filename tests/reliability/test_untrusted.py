"""Files of strangers: no code, no other files, no memory that was not looked at first, no control of the terminal."""

import ast
import dataclasses
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from targets import episodes

import koopax
from koopax import KoopaxError
from koopax._atomic import beside, check_place, new_file, new_folder
from koopax._checkpoint import Checkpoint, Checkpoints
from koopax._claim import Claim
from koopax._cluster import unpack
from koopax._npz import read_npz
from koopax._untrusted import from_json
from koopax.collection import collect
from koopax.data import Episodes, load, save
from koopax.data.sources import folder
from koopax.training.metrics import append_line, read_json_lines

SOURCE = Path(koopax.__file__).parent
SHELL = str(Path(sys.executable).with_name("koopax"))
RUNS_CODE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"}
# What goes to processes that the same command has started; never a file.
BETWEEN_PROCESSES = {"collection/workers.py", "collection/cluster.py"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_is_unpickled(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if str(path.relative_to(SOURCE)) not in BETWEEN_PROCESSES:
            assert not RUNS_CODE & {name.split(".")[0] for name in names}
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("eval", "exec", "compile", "__import__")
            allowed = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}.get("allow_pickle")
            assert allowed in (None, "False")
            assert allowed == "False" or called not in ("np.load", "numpy.load", "np.lib.format.read_array")


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_is_timed_by_a_clock_that_may_jump(path):
    called = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
    assert not called & {"time.time", "time.time_ns", "time", "os.path.getmtime"}


def small_disk(folder, size):
    """Mount a small disk there, or skip the test where that is not allowed; `umount` when done."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    if done.returncode:
        pytest.skip("only root may mount a small disk")
    return folder


@pytest.fixture
def small(tmp_path):
    if sys.platform != "linux":
        pytest.skip("a small disk needs Linux")
    yield small_disk(tmp_path / "small", "256k")
    subprocess.run(["umount", "-l", tmp_path / "small"])


def fill(folder, *, leave=0):
    (folder / "fill").write_bytes(bytes(max(0, shutil.disk_usage(folder).free - leave)))


def test_a_disk_that_is_really_full_is_one_sentence_and_what_was_there_stays(small):
    rng = np.random.default_rng(0)
    large = koopax.Episodes.from_arrays(
        [rng.normal(size=(8001, 8))], [rng.normal(size=(8000, 1))], [rng.normal(size=8000)]
    )
    for name in ("a.npz", "a.csv", "a.parquet", "a.episodes", "minari"):
        with pytest.raises(KoopaxError, match="No space left on device"):
            save(large, small / name)
    assert not list(small.iterdir())
    checkpoints = Checkpoints(small / "checkpoints")
    checkpoints.save(Checkpoint({"step": 1}, {"a": np.arange(100)}))
    (small / "metrics.jsonl").write_text('{"step": 1}\n')
    fill(small)
    with pytest.raises(KoopaxError, match="No space left on device"):
        checkpoints.save(Checkpoint({"step": 2}, {"a": np.arange(1000)}))
    with pytest.raises(KoopaxError, match="a line of metrics could not be written"):
        append_line(small / "metrics.jsonl", {"a": "x" * 10_000})
    assert sorted(path.name for path in small.iterdir()) == ["checkpoints", "fill", "metrics.jsonl"]
    assert [path.name for path in (small / "checkpoints").iterdir()] == ["000001.npz"]
    assert Checkpoints(small / "checkpoints").load().header == {"step": 1}
    assert read_json_lines(small / "metrics.jsonl")[0] == {"step": 1}
    (small / "fill").unlink()
    checkpoints.save(Checkpoint({"step": 2}, {"a": np.arange(1000)}))
    assert checkpoints.load().header == {"step": 2}


def test_a_read_only_disk_is_known_before_the_work(small):
    if subprocess.run(["mount", "-o", "remount,ro", small], capture_output=True).returncode:
        pytest.skip("only root may mount a disk read-only")
    with pytest.raises(KoopaxError, match="Read-only file system"):
        collect("Pendulum-v1", steps=10**12, seed=0, workers=0, out=small / "a.npz", progress=False)
    for place in (small, small / "run"):
        with pytest.raises(KoopaxError, match="Read-only file system"):
            Claim(place)


def test_a_dense_archive_is_refused_before_its_memory_is_taken(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (600 << 20,)})
        for _ in range(600):
            file.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 20
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from koopax.data import load
try:
    load({str(path)!r})
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("KoopaxError"), done.stderr
    assert "would expand to 629 MB; store it uncompressed" in done.stdout


@pytest.mark.parametrize("shape", [(10**12,), (-1,), (2, 10**9)])
def test_an_array_is_not_larger_than_its_file(tmp_path, shape):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive, archive.open("a.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
        file.write(bytes(80))
    with pytest.raises(ValueError, match="another size than its shape"):
        read_npz(path)


def test_archives_are_read_as_numpy_reads_them(tmp_path):
    arrays = {
        "a": np.arange(6.0).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "empty": np.zeros((0, 4), np.float32),
        "scalar": np.array(2.5),
        "text": np.array("ä"),
        "big": np.arange(3, dtype=">i4"),
    }
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "a.npz", **arrays)
        found = read_npz(tmp_path / "a.npz")
        with np.load(tmp_path / "a.npz") as expected:
            assert set(found) == set(expected)
            for name in expected:
                np.testing.assert_array_equal(found[name], expected[name])
                assert found[name].dtype == expected[name].dtype


def transitions(file):
    file["actions"], file["rewards"], file["terminals"] = np.ones((4, 1)), np.ones(4), np.zeros(4)


def test_an_hdf5_file_reads_no_other_file(tmp_path):
    (tmp_path / "secret.bin").write_bytes(np.arange(8.0).tobytes())
    with h5py.File(tmp_path / "external.hdf5", "w") as file:
        transitions(file)
        file.create_dataset("observations", (4, 2), "f8", external=[(str(tmp_path / "secret.bin"), 0, 64)])
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["observations"] = np.ones((4, 2))
    with h5py.File(tmp_path / "link.hdf5", "w") as file:
        transitions(file)
        file["observations"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "observations")
    with h5py.File(tmp_path / "virtual.hdf5", "w") as file:
        transitions(file)
        layout = h5py.VirtualLayout((4, 2), "f8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.hdf5"), "observations", (4, 2))
        file.create_virtual_dataset("observations", layout)
    for name in ("external", "link", "virtual"):
        with pytest.raises(KoopaxError, match=r"link to another place|stored in another file"):
            load(tmp_path / f"{name}.hdf5")
    minari = save(episodes(), tmp_path / "minari")
    with h5py.File(minari / "data" / "main_data.hdf5", "a") as file:
        del file["episode_0/observations"]
        file["episode_0/observations"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "observations")
    with pytest.raises(KoopaxError, match="link to another place"):
        load(minari)


def test_an_hdf5_file_that_claims_a_terabyte_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        transitions(file)
        file.create_dataset("observations", (1 << 37, 2), "f4", chunks=(1 << 20, 2))
    with pytest.raises(KoopaxError, match=r"it takes 1099\.5 GB, more than half of this machine's memory"):
        load(tmp_path / "a.hdf5")


def test_a_module_named_by_data_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    from koopax.envs import make

    with pytest.raises(KoopaxError, match="only a name that you type may import a module"):
        make("evil:Nice-v0", trusted=False)
    assert not Path("ran").exists()


def stranger(folder, kind, **settings):
    """The folder of an agent's run as somebody else might send it."""
    from koopax.agents import PixelSACConfig, SACConfig, TDMPCConfig

    config = {"sac": SACConfig, "tdmpc": TDMPCConfig, "sac-pixels": PixelSACConfig}[kind](**settings)
    folder.mkdir()
    document = {"format": 1, "kind": kind, "task": config.environment, "agent": dataclasses.asdict(config)}
    (folder / "config.json").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize("kind", ["sac", "tdmpc", "sac-pixels"])
def test_a_module_named_by_a_run_is_not_imported_when_it_is_resumed(tmp_path, monkeypatch, kind):
    from koopax.cli import agents

    (tmp_path / "evil.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    run = stranger(tmp_path / "run", kind, **{"env" if kind == "sac" else "task": "evil:Nice-v0"})
    command = {"sac": agents.sac, "tdmpc": agents.tdmpc, "sac-pixels": agents.sac_pixels}[kind]
    with pytest.raises(KoopaxError, match="add --task evil:Nice-v0 if you trust it"):
        command(out=run, resume=True)
    if kind == "sac":
        with pytest.raises(KoopaxError, match="only a name that you type may import a module"):
            agents.export_experts(run, "hopper")
    assert not Path("ran").exists()
    if kind == "tdmpc":
        with pytest.raises(KoopaxError, match="registers no environment 'Nice-v0'"):
            command(out=run, resume=True, task="evil:Nice-v0")
        assert Path("ran").exists()


def test_settings_that_ask_for_more_memory_than_there_is_are_one_sentence(tmp_path):
    stranger(tmp_path / "run", "tdmpc", task="Pendulum-v1", replay_size=10**14)
    command = [SHELL, "agent", "train", "tdmpc", "--resume", "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "there is not enough memory (Unable to allocate" in done.stderr


@dataclasses.dataclass
class Remembered:
    errors: list[float] = dataclasses.field(default_factory=list)
    sizes: tuple[int, ...] = ()


def test_lists_and_tuples_come_back_from_json_as_what_they_were():
    there = Remembered([1.0, 2.0], (3, 4))
    assert from_json(Remembered, json.loads(json.dumps(dataclasses.asdict(there)))) == there
    for wrong in ({"errors": ["x"]}, {"errors": 3.0}, {"sizes": [0.5]}):
        with pytest.raises(TypeError):
            from_json(Remembered, wrong)


def test_what_lies_here_does_not_take_the_place_of_a_package(tmp_path):
    (tmp_path / "scipy.py").write_text("raise SystemExit('taken')")
    (tmp_path / "mine.py").write_text("import scipy")
    code = "from koopax._imports import import_here; import_here('mine'); print('fine')"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "fine\n", done.stderr


def test_control_codes_in_data_do_not_reach_the_terminal(tmp_path):
    nasty = "\x1b]0;owned\x07\x1b[31m[bold]x"
    data = koopax.Episodes.from_arrays(
        [np.ones((3, 1))], [np.ones((2, 1))], [np.ones(2)], state_names=[nasty], environment=nasty, sources=[nasty]
    )
    save(data, tmp_path / "a.npz")
    for arguments in (("data", "inspect", "a.npz"), ("data", "inspect", "a.npz", "--json"), ("evaluate", "run", nasty)):
        done = subprocess.run([SHELL, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert not any(code in done.stdout + done.stderr for code in ("\x1b", "\x07"))
    shown = subprocess.run([SHELL, "data", "inspect", "a.npz"], cwd=tmp_path, capture_output=True, text=True).stdout
    assert "[bold]x" in shown


def test_a_long_csv_header_is_read(tmp_path):
    names = [f"state_{i}_{'x' * 1000}" for i in range(1200)]
    rows = [",".join(["0", *["1.5"] * len(names), "2", "0"])] * 3
    (tmp_path / "a.csv").write_text("\n".join([",".join(["episode", *names, "action_u", "reward"]), *rows]) + "\n")
    assert load(tmp_path / "a.csv").state_size == 1200


def test_names_in_data_do_not_become_paths(tmp_path):
    (place := tmp_path / "a" / "b").mkdir(parents=True)
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(2, 5, 2)), rng.normal(size=(2, 4, 1)), rng.normal(size=(2, 4))
    names = {"state_names": ["../../x", "/tmp/y"], "sources": ["../../z", "/"], "environment": "../../w"}
    written = ("a.npz", "a.parquet", "a.csv", "a.episodes", "folder")
    for name in written:
        save(Episodes.from_arrays(*arrays, **names), place / name)
    assert os.listdir(tmp_path) == ["a"]
    assert os.listdir(tmp_path / "a") == ["b"]
    assert sorted(os.listdir(place)) == sorted(written)


def test_a_packed_folder_is_unpacked_inside_its_own(tmp_path):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../evil"), io.BytesIO())
    with pytest.raises(tarfile.OutsideDestinationError):
        unpack(content.getvalue(), tmp_path / "folder")
    assert not (tmp_path / "evil").exists()


def test_frames_are_read_from_their_folder_only(tmp_path):
    (tmp_path / "drive").mkdir()
    (tmp_path / "drive" / "actions.csv").write_text("episode,action_u,reward\n../x,1,0\n../x,,\n")
    with pytest.raises(KoopaxError, match="names no frames in"):
        load(tmp_path / "drive")


@pytest.mark.parametrize("name", ["../x:f", "os.path:nothing", "no such module:f", ":", "a:b:c", ".:x"])
def test_a_policy_that_is_none_is_one_sentence(name):
    from koopax.collection.policies import resolve_policy

    with pytest.raises(KoopaxError, match="can't be imported") as caught:
        resolve_policy(name, np.zeros(1), np.ones(1))
    assert "\n" not in str(caught.value)


def test_a_flipped_bit_in_a_cached_set_is_found(tmp_path):
    path = save(episodes(), tmp_path / "a.episodes")
    for name in ("observations", "actions", "rewards", "starts"):
        file = path / f"{name}.npy"
        content = file.read_bytes()
        file.write_bytes(content[:-6] + bytes([content[-6] ^ 1]) + content[-5:])
        for memory_map in (False, True):
            with pytest.raises(KoopaxError, match=f"its {name} differ from their digest"):
                load(path, memory_map=memory_map)
        file.write_bytes(content)
    header = json.loads((path / "header.json").read_text())
    header.pop("digests")  # as sets of before have none
    (path / "header.json").write_text(json.dumps(header))
    assert load(path).num_episodes == 3


def test_a_cut_set_is_not_complete(tmp_path):
    path = save(episodes(), tmp_path / "a.episodes")
    assert folder.is_intact(path)
    content = (path / "rewards.npy").read_bytes()
    (path / "rewards.npy").write_bytes(content[:-4])
    assert not folder.is_intact(path)
    (path / "rewards.npy").unlink()
    assert not folder.is_intact(path)


def test_what_a_killed_process_left_is_swept_and_what_a_living_one_writes_is_not(tmp_path):
    code = f"""
import os
from pathlib import Path
from koopax._atomic import new_file, new_folder
with new_file(Path({str(tmp_path)!r}) / "a.txt") as one, new_folder(Path({str(tmp_path)!r}) / "b") as two:
    one.write_text("half")
    (two / "x").write_text("half")
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code])
    assert len(list(tmp_path.iterdir())) == 2
    ours = beside(tmp_path / "a.txt")
    ours.write_text("being written")
    with new_file(tmp_path / "a.txt") as temporary:
        temporary.write_text("whole")
    with new_folder(tmp_path / "b") as temporary:
        (temporary / "x").write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a.txt", "b", ours.name])


def test_a_folder_is_the_old_one_or_the_new_one_at_every_moment(tmp_path):
    """Another process looks on while a folder is replaced many times."""
    code = f"""
import time
from pathlib import Path
path, missing, end = Path({str(tmp_path / "set")!r}) / "x", 0, time.monotonic() + 3
print("watching", flush=True)
while time.monotonic() < end:
    missing += not path.exists()
print(missing)
"""
    with new_folder(tmp_path / "set") as temporary:
        (temporary / "x").write_text("0")
    watcher = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert watcher.stdout.readline() == "watching\n"
    while watcher.poll() is None:
        with new_folder(tmp_path / "set", overwrite=True) as temporary:
            (temporary / "x").write_text("1")
    assert watcher.stdout.read() == "0\n"
    watcher.stdout.close()
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_bad_place_is_known_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "x", Path("/proc/nowhere/x")):
        with pytest.raises(KoopaxError, match="can't be written in"):
            check_place(place)
    check_place(tmp_path / "a" / "b" / "c")
    assert os.listdir(tmp_path) == ["file"]
    commands = (
        ("data", "collect", "--env", "Pendulum-v1", "--out", "file/a.npz"),
        ("agent", "train", "sac", "--task", "Pendulum-v1", "--out", "file/run"),
        ("agent", "train", "tdmpc", "--task", "Pendulum-v1", "--out", "file"),
        ("train", "nowhere.npz", "--out", "file/run"),
        ("report", "nowhere", "--out", "file/page.html"),
    )
    for command in commands:
        done = subprocess.run([SHELL, *command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        assert "can't be written" in done.stderr
    assert os.listdir(tmp_path) == ["file"]
