"""What the folder of a training survives: damage, kills, a full disk, a second process; and what it refuses."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from test_fit import leaves, linear_model, oscillator, without_time

import koopax
from koopax import KoopaxError, KoopaxWarning
from koopax._checkpoint import Checkpoint, Checkpoints
from koopax._claim import Claim
from koopax.models.files import load_model
from koopax.training.trained import load_trained

SETTINGS = {"horizon": 5, "steps": 12, "log_every": 3, "validate_every": 4, "checkpoint_every": 3, "batch_size": 4}


@pytest.fixture(scope="module")
def data():
    return oscillator(count=8, length=30).split(0.8, seed=0)


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    return train(data, tmp_path_factory.mktemp("whole") / "run")


def train(data, folder, *, resume=False, model=None, **changes):
    model = linear_model(data[0]) if model is None else model
    return koopax.fit(model, data[0], validation=data[1], out=folder, resume=resume, **SETTINGS | changes)


@pytest.fixture
def run(whole, tmp_path):
    return Path(shutil.copytree(whole.folder, tmp_path / "run"))


def checkpoints(folder):
    return sorted((folder / "checkpoints").iterdir())


def assert_same(one, other):
    assert without_time(one.metrics) == without_time(other.metrics)
    assert all(np.array_equal(a, b) for a, b in zip(leaves(one), leaves(other), strict=True))
    best = zip(jax.tree.leaves(one.best_model), jax.tree.leaves(other.best_model), strict=True)
    assert all(np.array_equal(a, b) for a, b in best)


def test_every_flipped_bit_is_found(run):
    """Flips all over the file; what belongs to neither the arrays nor the header, such as a date, may change."""
    from koopax._checkpoint import read_checkpoint

    path = checkpoints(run)[-1]
    content, before = path.read_bytes(), read_checkpoint(path)
    rng = np.random.default_rng(0)
    found = 0
    for position in rng.integers(0, len(content), 150):
        flipped = bytearray(content)
        flipped[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        try:
            after = read_checkpoint(path)
        except KoopaxError:
            found += 1
        else:
            assert after.header == before.header
            assert all(np.array_equal(after.arrays[name], array) for name, array in before.arrays.items())
    assert found > 75


@pytest.mark.parametrize("how", ["flipped", "cut", "empty", "a folder"])
def test_the_one_before_a_damaged_checkpoint_is_used(data, whole, run, how):
    newest = checkpoints(run)[-1]
    content = newest.read_bytes()
    newest.unlink()
    if how == "a folder":
        (run / "checkpoints" / "stray").mkdir()
        train(data, run, resume=True)
    else:
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        newest.write_bytes({"flipped": flipped, "cut": content[:middle], "empty": b""}[how])
        with pytest.warns(KoopaxWarning, match=r"000012\.npz' is damaged .* The one before it is used"):
            train(data, run, resume=True)
    assert_same(koopax.Run.load(run), whole)
    train(data, run, resume=True)  # which has two whole ones again, and no warning


@pytest.mark.parametrize("missing", ["seconds", "lines", "best"])
def test_so_it_is_where_the_newest_has_the_right_digest_and_the_wrong_content(data, whole, run, missing):
    kept = Checkpoints(run / "checkpoints")
    found = kept.load()
    header = {name: value for name, value in found.header.items() if name != missing}
    kept.save(Checkpoint(header, found.arrays), kept.last)
    with pytest.warns(KoopaxWarning, match=rf"000012\.npz' is not of this run .*{missing}.* The one before it is used"):
        train(data, run, resume=True)
    assert_same(koopax.Run.load(run), whole)


def test_validation_episodes_that_are_too_short_are_named_as_such(data):
    short = oscillator(count=2, length=4)
    with pytest.raises(KoopaxError, match="none of the 2 validation episodes, the longest of which has 4 steps"):
        koopax.fit(linear_model(data[0]), data[0], validation=short, progress=False, **SETTINGS)


def test_nothing_whole_left_is_said(data, run):
    for path in checkpoints(run):
        path.write_bytes(b"nothing")
    with pytest.raises(KoopaxError, match=r"no checkpoint in .* is whole: .* is damaged"):
        train(data, run, resume=True)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(KoopaxError, match="has ended before, but holds no checkpoint"):
        train(data, run, resume=True)
    assert len(koopax.Run.load(run).metrics) == 7  # untouched


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_when_resumed(data, whole, run):
    shutil.rmtree(run / "checkpoints")
    document = json.loads((run / "config.json").read_text())
    document.pop("outcome")
    (run / "config.json").write_text(json.dumps(document))
    assert_same(train(data, run, resume=True), whole)


def test_a_damaged_best_model_is_in_the_way_of_nothing_else(data, whole, run):
    (run / "best.koopax").write_bytes(b"nothing")
    with pytest.warns(KoopaxWarning, match="read without its best model"):
        loaded = koopax.Run.load(run)
    assert eqx.tree_equal(loaded.model, whole.model)
    with pytest.raises(KoopaxError, match="not a koopax model file"):
        load_trained(run, best=True)
    resumed = train(data, run, resume=True)  # the checkpoint has it too
    assert_same(resumed, whole)
    assert eqx.tree_equal(load_model(run / "best.koopax"), whole.best_model)


def test_damaged_lines_of_metrics_come_back_from_the_checkpoint(data, whole, run):
    content = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(b"\xff\xfe" + content[:20] + b"\x00" + content[21:])
    assert 0 < len(koopax.Run.load(run).metrics) < len(whole.metrics)
    train(data, run, resume=True)
    assert koopax.Run.load(run).metrics == whole.metrics


def test_two_processes_do_not_write_into_one_folder(data, run, tmp_path):
    code = f"from koopax._claim import *; claim = Claim(Path({str(run)!r})); print(1, flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline()
    with pytest.raises(KoopaxError, match=r"is being written by another process: wait for its end"):
        train(data, run, resume=True)
    other.kill()
    other.wait()
    other.stdin.close()
    other.stdout.close()
    assert train(data, run, resume=True).step == 12


def test_two_threads_do_not_either(tmp_path):
    refused = []
    with Claim(tmp_path):

        def claim():
            with pytest.raises(KoopaxError, match="another process"):
                Claim(tmp_path)
            refused.append(True)

        thread = threading.Thread(target=claim)
        thread.start()
        thread.join()
    assert refused
    Claim(tmp_path).release()


def test_what_differs_is_named(data, run):
    with pytest.raises(KoopaxError, match=r"batch_size is 8, but the run .* was begun with 4: resume with that"):
        train(data, run, resume=True, batch_size=8)
    wider = linear_model(data[0], encoder_hidden=(5,))
    with pytest.raises(KoopaxError, match=r"the model's encoder_hidden is \(5,\), but the run .* was begun with \(\)"):
        train(data, run, resume=True, model=wider)
    other = linear_model(data[0], spectrum="paper")
    with pytest.raises(KoopaxError, match=r"the model's spectrum is 'paper', but the run .* was begun with"):
        train(data, run, resume=True, model=other)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "one"},
        {"format": None},
        {"train": []},
        {"train": {"steps": "many"}},
        {"train": {"horizon": True}},
        {"model": {"core": "koopman"}},
        {"model": {"core": 3, "state_size": 2, "action_size": 1}},
        {"model": None},
        {"data": 5},
        {"outcome": "well"},
    ],
)
def test_a_config_of_wrong_things_is_one_sentence(data, run, change):
    document = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(document | change))
    with pytest.raises(KoopaxError) as caught:
        train(data, run, resume=True)
    assert "\n" not in str(caught.value)
    assert str(run) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"\xff\xfe", b"[]", b"null", b'{"format": []}'])
def test_a_config_of_other_bytes_is_one_sentence(run, content):
    (run / "config.json").write_bytes(content)
    with pytest.raises(KoopaxError, match="is not a run folder") as caught:
        koopax.Run.load(run)
    assert "\n" not in str(caught.value)


def test_a_place_that_cannot_be_written_is_known_before_the_work(data, tmp_path):
    (tmp_path / "file").write_text("here")
    for place in (tmp_path / "file" / "run", Path("/proc/koopax/run")):
        with pytest.raises(KoopaxError, match=r"can't be written"):
            train(data, place)
    assert (tmp_path / "file").read_text() == "here"


FULL = """
import resource, sys
sys.path.insert(0, {tests!r})
from test_folder import train
from koopax import KoopaxError
from test_fit import oscillator
data = oscillator(count=8, length=30).split(0.8, seed=0)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
try:
    train(data, {folder!r}, resume={resume}, steps=24)
except KoopaxError as error:
    print(error)
"""


@pytest.mark.parametrize(("limit", "what"), [(12_000, "000015.npz"), (1_000, "config.json")])
def test_a_full_disk_is_one_sentence_and_what_was_there_stays(run, limit, what):
    code = FULL.format(tests=str(Path(__file__).parent), limit=limit, folder=str(run), resume=True)
    before = {path.name for path in checkpoints(run)}
    quiet = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "0"}  # which has files of its own that are too large
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=quiet)
    assert done.stdout.count("\n") == 1, done.stderr
    assert what in done.stdout
    assert "could not be written" in done.stdout
    assert {path.name for path in checkpoints(run)} == before
    assert koopax.Run.load(run).step == 12
    assert not [path for path in run.rglob("*") if path.suffix == ".tmp"]
