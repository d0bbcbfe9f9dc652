"""Spoilt files: a result or one sentence. A small part of what `make fuzz` does, and what it has found before."""

import shutil
import warnings
from collections import Counter
from pathlib import Path

import fuzz
import numpy as np
import pytest
from fuzz import CORPUS, Found, attack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from targets import TARGETS, copy

QUICK = {name: target for name, target in TARGETS.items() if name != "command line"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folders = {name: tmp_path_factory.mktemp("made") for name in TARGETS}
    return {name: target.make(folders[name]) for name, target in TARGETS.items()}


@pytest.mark.parametrize("name", QUICK)
def test_what_is_whole_is_read(name, made):
    assert attack(TARGETS[name].read, made[name]) == "read"


@pytest.mark.parametrize("name", QUICK)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, 2**32))
@pytest.mark.filterwarnings("ignore")
def test_what_is_spoilt_is_read_or_refused(name, made, tmp_path, number):
    path = copy(made[name], tmp_path / "spoilt")
    target = TARGETS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target.spoil[number % len(target.spoil)](path, np.random.default_rng(number))
        attack(target.read, path)


@pytest.mark.parametrize("number", range(6))
def test_command_lines_end_with_a_sentence(made, tmp_path, number):
    path = copy(made["command line"], tmp_path / "spoilt")
    TARGETS["command line"].spoil[0](path, np.random.default_rng(number))
    attack(TARGETS["command line"].read, path)


@pytest.mark.parametrize("folder", sorted(CORPUS.glob("*/")), ids=lambda folder: folder.name)
def test_what_broke_before_does_not_break_again(folder, tmp_path):
    name = next(name for name in TARGETS if folder.name.rpartition("-")[0] == name.replace(" ", "-"))
    shutil.copytree(folder, tmp_path / "spoilt")
    (tmp_path / "like").mkdir()
    path = tmp_path / "spoilt" / Path(TARGETS[name].make(tmp_path / "like")).name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attack(TARGETS[name].read, path)


@pytest.mark.parametrize("mended", [True, False])
def test_fuzzing_goes_on_where_it_stopped_and_looks_again_at_what_had_failed(mended, monkeypatch, tmp_path):
    again = Counter(inputs=1, refused=1) if mended else Counter(inputs=1, failed=1)
    asked = []

    def run_target(*given):
        asked.append(given)
        return again, [] if mended else ["3: OSError: still"]

    monkeypatch.setattr(fuzz, "run_target", run_target)
    loaders = {
        "CSV": {"inputs": 6, "read": 1, "refused": 4, "failed": 1, "seconds": 2.0},
        "npz": {"inputs": 6, "read": 6, "refused": 0, "failed": 0, "seconds": 1.0},
    }
    found = Found({"CSV": 10, "npz": 10})
    found.go_on({"loaders": loaders, "guided": {}, "failures": {"CSV": ["3: OSError: it is"]}})
    assert found.turns == 3  # of 5
    found.look_again("CSV", tmp_path)
    assert asked == [("CSV", 3, 1, tmp_path)]
    assert found.totals == {"inputs": 12, "read": 7, "refused": 4 + mended, "failed": 1 - mended}
    assert found.mended == ({"CSV": ["3: OSError: it is"]} if mended else {})
    assert found.failures == ({} if mended else {"CSV": ["3: OSError: still"]})
    with pytest.raises(SystemExit, match="other loaders"):
        found.go_on({"loaders": {}})
