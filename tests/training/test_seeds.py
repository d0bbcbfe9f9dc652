"""Several seeds at once: each is the run that it would be alone, and its folder is a run folder like any other."""

import json
import logging
import os
import signal

import jax
import numpy as np
import pytest

import koopax
from koopax import DynamicsModel, Episodes, KoopaxError
from koopax.training.config import TrainConfig
from koopax.training.loop import member, stack
from koopax.training.state import initial_state
from koopax.training.together import LARGEST_BATCH, pays_together

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


def assert_close(one, two, tolerance=2e-4):
    assert [line["step"] for line in one.metrics] == [line["step"] for line in two.metrics]
    for a, b in zip(one.metrics, two.metrics, strict=True):
        assert set(a) == set(b)
        for name in set(a) - {"seconds"}:
            assert a[name] == pytest.approx(b[name], rel=tolerance), name
    for a, b in zip(leaves(one), leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def assert_identical(one, two):
    assert all(np.array_equal(a, b) for a, b in zip(leaves(one), leaves(two), strict=True))


@pytest.fixture(scope="module")
def together(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    return fit_seeds(data, together=True, out=folder), folder


@pytest.mark.parametrize(
    "core", ["koopman", *(pytest.param(c, marks=pytest.mark.slow) for c in SIZES if c != "koopman")]
)
def test_a_seed_among_others_is_the_run_of_that_seed_alone(data, core, together):
    runs = together[0] if core == "koopman" else fit_seeds(data, core=core, together=True)
    assert [run.config.seed for run in runs] == [3, 4, 5]
    alone = koopax.fit(models(core, data)[1], data[0], validation=data[1], **(SETTINGS | {"seed": 4}))
    assert_close(runs[1], alone)
    assert_close(runs[1], fit_seeds(data, core=core, together=False)[1])
    assert not np.allclose(leaves(runs[0])[-1], leaves(runs[1])[-1])


@pytest.mark.parametrize("together", [True, False])
def test_all_seeds_compile_once(data, together):
    compiled = []
    handler = logging.Handler()
    handler.emit = lambda record: compiled.append(record.getMessage())
    logger = logging.getLogger("jax")
    logger.addHandler(handler)
    try:
        with jax.log_compiles():
            fit_seeds(data, together=together)
    finally:
        logger.removeHandler(handler)
    assert sum("Finished XLA compilation" in line and "advance" in line for line in compiled) == 1


def test_every_seed_has_a_run_folder(data, together):
    runs, folder = together
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


@pytest.mark.parametrize("at_once", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_interrupted_run_of_several_seeds_resumes_to_the_same_parameters(data, tmp_path, together, at_once):
    stopped = fit_seeds(data, together=at_once, out=tmp_path, watch=stop_at(4, 4))
    assert [(run.step, run.stopped) for run in stopped] == (
        [(4, "interrupted")] * 3 if at_once else [(8, "finished"), (4, "interrupted"), (0, "interrupted")]
    )
    seen = []
    rest = fit_seeds(data, together=at_once, out=tmp_path, resume=True, watch=seen.append)
    assert {(line["seed"], line["step"]) for line in seen}.isdisjoint({(3, 4), (4, 4)})  # it went on from there
    whole = together[0] if at_once else fit_seeds(data, together=False)
    for one, two in zip(rest, whole, strict=True):
        assert (one.step, one.stopped) == (8, "finished")
        assert_identical(one, two)
        assert [line["step"] for line in one.metrics] == [line["step"] for line in two.metrics]


def test_seeds_that_a_crash_left_at_different_steps_go_on_from_one_they_share(data, tmp_path, together):
    """A kill between the checkpoints of two seeds leaves one of them behind."""
    fit_seeds(data, together=True, out=tmp_path, watch=stop_at(6, 3))
    newest = tmp_path / "seed-5" / "checkpoints" / "6"
    for path in sorted(newest.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    newest.rmdir()
    seen = []
    rest = fit_seeds(data, together=True, out=tmp_path, resume=True, watch=seen.append)
    assert min(line["step"] for line in seen) == 4
    for one, two in zip(rest, together[0], strict=True):
        assert_identical(one, two)


def test_a_seed_that_diverges_does_not_take_the_others_with_it(data, tmp_path):
    for at_once in (True, False):
        some = models("koopman", data)
        some[1] = jax.tree.map(lambda leaf: leaf * np.nan, some[1])
        out = tmp_path / str(at_once)
        with pytest.raises(KoopaxError, match=r"1 of 3 seeds diverged; seed 4: .* non-finite at step 0"):
            koopax.fit_seeds(some, data[0], validation=data[1], together=at_once, out=out, **(SETTINGS | {"seed": 3}))
        finished = {path.parent.name for path in out.glob("*/model.koopax")}
        assert finished == {"seed-3", "seed-5"}
        assert "outcome" not in json.loads((out / "seed-4" / "config.json").read_text())


def test_stacking_states_loses_nothing(data):
    states = [initial_state(model, TrainConfig()) for model in models("mlp", data)]
    stacked = stack(states)
    for index, state in enumerate(states):
        found = jax.tree.leaves(member(stacked, index))
        assert all(np.array_equal(a, b) for a, b in zip(found, jax.tree.leaves(state), strict=True))


def test_when_seeds_are_trained_together(data):
    few = {"steps": 5, "batch_size": LARGEST_BATCH["koopman"]}
    assert pays_together("koopman", data[0], TrainConfig(**few), ("jsonl",))
    assert not pays_together("koopman", data[0], TrainConfig(steps=5, batch_size=few["batch_size"] + 1), ("jsonl",))
    assert not pays_together("gru", data[0], TrainConfig(steps=5, batch_size=1), ("jsonl",))
    for other in ({"seconds": 3.0}, {"patience": 2}):
        assert not pays_together("koopman", data[0], TrainConfig(**few, **other), ("jsonl",))
    assert not pays_together("koopman", data[0], TrainConfig(**few), ("jsonl", "wandb"))


def test_models_of_different_configurations_are_refused(data):
    with pytest.raises(KoopaxError, match="create them alike"):
        koopax.fit_seeds([*models("mlp", data), *models("koopman", data)], data[0], **SETTINGS)
