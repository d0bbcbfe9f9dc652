"""Several seeds by one call: each is the run that it would be alone, and its folder is a run folder like any other."""

import json
import logging
import os
import shutil
import signal

import jax
import numpy as np
import pytest

import koopax
from koopax import DynamicsModel, Episodes, KoopaxError

SETTINGS = {"horizon": 6, "steps": 8, "batch_size": 4, "log_every": 2, "validate_every": 4, "checkpoint_every": 3}
SIZES = {
    "koopman": {"latent_size": 8, "encoder_hidden": (8,), "decoder_hidden": (8,), "action_embedding": 2},
    "mlp": {"latent_size": 8, "encoder_hidden": (8,), "decoder_hidden": (8,), "hidden": 8},
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return Episodes.from_arrays(
        [np.cumsum(rng.normal(size=(31, 3)), axis=0) for _ in range(6)],
        [rng.normal(size=(30, 2)) for _ in range(6)],
        [rng.normal(size=30) for _ in range(6)],
    ).split(0.7, seed=0)


def models(core, data, seeds=(3, 4, 5)):
    return [DynamicsModel.create(core, data[0], key=jax.random.key(seed), **SIZES[core]) for seed in seeds]


def fit_seeds(data, *, core="koopman", **options):
    settings = SETTINGS | {"seed": 3, "validation": data[1]} | options
    return koopax.fit_seeds(models(core, data), data[0], **settings)


def leaves(run):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.model)]


def assert_identical(one, two):
    assert all(np.array_equal(a, b) for a, b in zip(leaves(one), leaves(two), strict=True))


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    return fit_seeds(data, out=tmp_path_factory.mktemp("seeds"))


@pytest.mark.parametrize(
    "core", ["koopman", *(pytest.param(c, marks=pytest.mark.slow) for c in SIZES if c != "koopman")]
)
def test_a_seed_among_others_is_the_run_of_that_seed_alone(data, core, runs):
    runs = runs if core == "koopman" else fit_seeds(data, core=core)
    assert [run.config.seed for run in runs] == [3, 4, 5]
    alone = koopax.fit(models(core, data)[1], data[0], validation=data[1], **(SETTINGS | {"seed": 4}))
    assert_identical(runs[1], alone)
    assert [without_time(line) for line in runs[1].metrics] == [without_time(line) for line in alone.metrics]
    assert any(not np.allclose(a, b) for a, b in zip(leaves(runs[0]), leaves(runs[1]), strict=True))


def without_time(line):
    return {name: value for name, value in line.items() if name != "seconds"}


def test_all_seeds_compile_once(data):
    compiled = []
    handler = logging.Handler()
    handler.emit = lambda record: compiled.append(record.getMessage())
    logger = logging.getLogger("jax")
    logger.addHandler(handler)
    try:
        with jax.log_compiles():
            runs = fit_seeds(data)
    finally:
        logger.removeHandler(handler)
    assert sum("Finished XLA compilation" in line and "advance" in line for line in compiled) == 1
    assert [run.compile_seconds > 0 for run in runs] == [True, False, False]


def test_every_seed_has_a_run_folder(runs):
    folder = runs[0].folder.parent
    assert sorted(path.name for path in folder.iterdir()) == ["seed-3", "seed-4", "seed-5"]
    for run in runs:
        loaded = koopax.Run.load(run.folder)
        assert_identical(loaded, run)
        assert loaded.step == 8
        assert loaded.config.seed == run.config.seed
        written = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
        assert written == run.metrics
    with pytest.raises(KoopaxError, match=r"holds the runs of 3 seeds: name one, such as .*seed-3"):
        koopax.Run.load(folder)


def stop_at(step, seed):
    def watch(line):
        if line["seed"] == seed and line["step"] == step and "loss" in line:  # a second request would not wait
            os.kill(os.getpid(), signal.SIGINT)

    return watch


def test_interrupted_seeds_resume_to_the_same_parameters(data, tmp_path, runs):
    with pytest.raises(KeyboardInterrupt, match="at step 8, 4, 0 of 8"):
        fit_seeds(data, out=tmp_path, watch=stop_at(4, 4))
    seen = []
    rest = fit_seeds(data, out=tmp_path, resume=True, watch=seen.append)
    assert {(line["seed"], line["step"]) for line in seen if "loss" in line}.isdisjoint({(3, 4), (4, 4)})  # it went on
    for one, two in zip(rest, runs, strict=True):
        assert (one.step, one.stopped) == (8, "finished")
        assert_identical(one, two)
        assert [line["step"] for line in one.metrics] == [line["step"] for line in two.metrics]


def test_seeds_that_were_not_begun_yet_are_begun_when_the_others_resume(data, tmp_path, runs):
    """As a kill between the first seed's config.json and the second's leaves it."""
    with pytest.raises(KeyboardInterrupt, match="at step 4, 0, 0 of 8"):
        fit_seeds(data, out=tmp_path, watch=stop_at(4, 3))
    for seed in (4, 5):
        shutil.rmtree(tmp_path / f"seed-{seed}")
    assert json.loads((tmp_path / "seed-3" / "config.json").read_text())["seeds"] == [3, 3]
    for one, two in zip(fit_seeds(data, out=tmp_path, resume=True), runs, strict=True):
        assert_identical(one, two)


def test_a_seed_that_diverges_does_not_take_the_others_with_it(data, tmp_path):
    some = models("koopman", data)
    some[1] = jax.tree.map(lambda leaf: leaf * np.nan, some[1])
    with pytest.raises(KoopaxError, match=r"1 of 3 seeds diverged; seed 4: .* non-finite at step 0"):
        koopax.fit_seeds(some, data[0], validation=data[1], out=tmp_path, **(SETTINGS | {"seed": 3}))
    finished = {path.parent.name for path in tmp_path.glob("*/model.koopax")}
    assert finished == {"seed-3", "seed-5"}
    assert json.loads((tmp_path / "seed-4" / "config.json").read_text())["outcome"]["stopped"] == "diverged"


def test_models_of_different_configurations_are_refused(data):
    with pytest.raises(KoopaxError, match="create them alike"):
        koopax.fit_seeds([*models("mlp", data), *models("koopman", data)], data[0], **SETTINGS)
