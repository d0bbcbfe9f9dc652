import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from episode_samples import assert_equal, files_under, random_episodes
from koopax._errors import KoopaxError
from koopax.collection import list_datasets, load, make_dataset
from koopax.collection.recipes import RECIPES

QUIET = {"progress": False, "workers": 2}
EXPERT = "koopax/halfcheetah/expert-v0"


def digest(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files_under(folder)}


def test_the_nine_names():
    assert sorted(RECIPES) == sorted(
        f"koopax/{robot}/{kind}-v0"
        for robot in ("hopper", "walker2d", "halfcheetah")
        for kind in ("expert", "medium-expert", "full-replay")
    )
    json.dumps(list_datasets())


def test_a_second_make_gives_identical_bytes():
    path = make_dataset(EXPERT, steps=2500, seed=1, **QUIET)
    first = digest(path)
    assert make_dataset(EXPERT, steps=2500, seed=1, progress=False) == path
    shutil.rmtree(path)
    assert make_dataset(EXPERT, steps=2500, seed=1, progress=False, workers=1) == path
    assert digest(path) == first
    episodes = load(EXPERT, seed=1)
    assert (episodes.num_steps, episodes.metadata.environment) == (2500, "HalfCheetah-v5")
    assert load(EXPERT, steps=2500, seed=1).num_steps == 2500


def test_load_takes_the_largest_set_there_is(monkeypatch):
    for steps in (20, 40, 30):
        make_dataset(EXPERT, steps=steps, **QUIET)
    assert load(EXPERT).num_steps == 40
    assert load(EXPERT, steps=30).num_steps == 30
    made = next(entry["made"] for entry in list_datasets() if entry["name"] == EXPERT)
    assert sorted(entry["steps"] for entry in made) == [20, 30, 40]
    assert all(entry["current"] for entry in made)


def test_mixed_sets_label_their_sources():
    episodes = load("koopax/halfcheetah/medium-expert-v0", steps=3001, **QUIET)
    assert episodes.metadata.source_names == ("medium", "expert")
    np.testing.assert_array_equal([episodes.lengths[episodes.sources == i].sum() for i in (0, 1)], [1500, 1501])
    replay = load("koopax/halfcheetah/full-replay-v0", steps=1100, **QUIET)
    assert replay.metadata.source_names[:3] == ("random", "ladder-1", "ladder-2")
    assert replay.num_steps == 1100
    train, test = replay.split(0.5, seed=0)
    assert train.num_episodes + test.num_episodes == replay.num_episodes


def test_other_weights_make_another_set(monkeypatch, tmp_path):
    from koopax.collection import policies, recipes

    first = make_dataset(EXPERT, steps=10, **QUIET)
    copy = tmp_path / "weights"
    shutil.copytree(policies.WEIGHTS, copy)
    shutil.copy(copy / "halfcheetah-medium.npz", copy / "halfcheetah-expert.npz")
    monkeypatch.setattr(policies, "WEIGHTS", copy)
    monkeypatch.setattr(recipes, "WEIGHTS", copy)
    assert recipes._path(recipes.RECIPES[EXPERT], 10, 0, False) != first
    made = next(entry["made"] for entry in list_datasets() if entry["name"] == EXPERT)
    assert [entry["current"] for entry in made] == [False]


def test_two_processes_at_once_do_not_corrupt_it():
    made = f"make_dataset({EXPERT!r}, steps=4000, workers=1, progress=False)"
    code = f"from koopax.collection import make_dataset; print({made})"
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = {process.communicate()[0].strip() for process in processes}
    assert all(process.returncode == 0 for process in processes)
    assert len(outputs) == 1
    path = Path(outputs.pop())
    first = digest(path)
    assert digest(make_dataset(EXPERT, steps=4000, force=True, **QUIET)) == first
    assert not [name for name in files_under(os.environ["KOOPAX_DATA"]) if name.endswith(".tmp")]


def test_from_scratch_is_given_by_the_caller():
    name = "koopax/halfcheetah/full-replay-v0"
    with pytest.raises(KoopaxError, match=f"use the command `koopax data make {name} --from-scratch`"):
        make_dataset(name, steps=50, from_scratch=True)
    with pytest.raises(KoopaxError, match="only the full-replay sets"):
        make_dataset(EXPERT, steps=50, from_scratch=True)
    recorded = random_episodes([20, 30])
    asked = []

    def record(environment, steps, seed):
        asked.append((environment, steps, seed))
        return recorded

    path = make_dataset(name, steps=50, seed=2, from_scratch=True, record=record)
    assert_equal(load(path), recorded)
    assert make_dataset(name, steps=50, seed=2, from_scratch=True, record=record) == path
    assert asked == [("HalfCheetah-v5", 50, 2)]


def test_bad_requests(monkeypatch, tmp_path):
    with pytest.raises(KoopaxError, match="unknown dataset 'koopax/hoper/expert-v0': did you mean"):
        make_dataset("koopax/hoper/expert-v0")
    with pytest.raises(KoopaxError, match="0 steps"):
        make_dataset(EXPERT, steps=0)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KOOPAX_DATA", str(tmp_path / "file"))
    with pytest.raises(KoopaxError, match="set KOOPAX_DATA to another folder"):
        make_dataset(EXPERT, steps=10)


@pytest.mark.slow
def test_a_hundred_thousand_steps():
    path = make_dataset(EXPERT, steps=100_000, progress=False)
    assert load(path).num_steps == 100_000


def test_a_misspelt_name_is_one_sentence():
    with pytest.raises(KoopaxError, match="did you mean 'koopax/hopper/expert-v0'"):
        load("koopax/hopper/expart-v0")
