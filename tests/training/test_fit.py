"""Training on a system whose truth is known, and the promises about seeds, resuming, compilations and bad losses."""

import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest
import scipy.linalg

import koopax
from koopax import DynamicsModel, Episodes, KoopaxError, KoopaxWarning
from koopax.data.windows import Windows, WindowSampler
from koopax.models.history import Past
from koopax.training.config import TrainConfig
from koopax.training.losses import consistency_loss, loss_terms, loss_weights, random_steps
from koopax.training.programs import Programs
from koopax.training.state import learning_rate

DECAY, PHASE = 0.02, 0.3


def oscillator(count=40, length=400, seed=0):
    """A damped oscillator with forcing held over each step, simulated exactly by the matrix exponential."""
    rng = np.random.default_rng(seed)
    matrix = np.array([[-DECAY, PHASE], [-PHASE, -DECAY]])
    transition = scipy.linalg.expm(matrix)
    gain = np.linalg.solve(matrix, transition - np.eye(2)) @ np.array([0.0, 1.0])
    states, forces = [], rng.normal(size=(count, length, 1))
    for force in forces:
        path = [rng.normal(size=2)]
        for u in force:
            path.append(transition @ path[-1] + gain * u)
        states.append(np.array(path))
    return Episodes.from_arrays(states, list(forces), [path[:-1, 0] for path in states])


@pytest.fixture(scope="module")
def data():
    return oscillator().split(0.8, seed=0)


def linear_model(train, seed=0, **options):
    flat = {"encoder_hidden": (), "decoder_hidden": (), "reward_hidden": None, "action_hidden": ()}
    return DynamicsModel.create(
        "koopman", train, latent_size=8, action_embedding=1, key=jax.random.key(seed), **(flat | options)
    )


@pytest.mark.slow
def test_a_known_linear_system_is_identified(data):
    train, test = data
    run = koopax.fit(
        linear_model(train), train, horizon=200, steps=1000, batch_size=32, learning_rate=1e-2, consistency_weight=0.0
    )
    error = koopax.prediction_error(run.model, test, horizon=200)
    assert error.state.normalised < 1e-3
    assert error.state.per_step.max() < 1e-3
    table = koopax.analyse_spectrum(run.model, test).table()
    assert table["decay_per_step"][0] == pytest.approx(DECAY, rel=0.02)
    assert table["phase_per_step"][0] == pytest.approx(PHASE, rel=0.02)


def small_fit(train, **settings):
    return koopax.fit(linear_model(train), train, **({"horizon": 10, "steps": 12, "log_every": 3} | settings))


def leaves(run):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.model)]


def without_time(lines):
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


@pytest.mark.slow
def test_one_seed_gives_identical_metrics_and_parameters(data):
    train, test = data
    one, two, other = (small_fit(train, validation=test, validate_every=4, seed=seed) for seed in (5, 5, 6))
    assert without_time(one.metrics) == without_time(two.metrics)
    assert all(np.array_equal(a, b) for a, b in zip(leaves(one), leaves(two), strict=True))
    assert without_time(one.metrics) != without_time(other.metrics)


def test_the_given_model_is_left_as_it_is(data):
    model = linear_model(data[0])
    before = [np.array(leaf) for leaf in jax.tree.leaves(model)]
    koopax.fit(model, data[0], horizon=5, steps=3)
    assert all(np.array_equal(a, b) for a, b in zip(before, jax.tree.leaves(model), strict=True))


def test_a_training_run_compiles_its_step_once(data):
    compiled = []
    with jax.log_compiles():
        import logging

        handler = logging.Handler()
        handler.emit = lambda record: compiled.append(record.getMessage())
        logger = logging.getLogger("jax")
        logger.addHandler(handler)
        try:
            small_fit(data[0], steps=20)
        finally:
            logger.removeHandler(handler)
    assert sum("Finished XLA compilation" in line and "advance" in line for line in compiled) == 1


def test_a_training_leaves_nothing_behind(data):
    """Neither its data nor its compiled steps: a grid trains hundreds of models in one process."""

    def there():
        gc.collect()
        return sum(isinstance(each, Programs) for each in gc.get_objects())

    before = there()
    small_fit(data[0], steps=2)
    assert there() == before


def test_losses_are_those_of_the_paper_in_a_plain_loop(data):
    """Every term against loops over windows and steps."""
    train, _ = data
    model = linear_model(train, encoder_hidden=(5,), members=1)
    rng = np.random.default_rng(0)
    windows = Windows(rng.normal(size=(5, 3, 2)), rng.normal(size=(4, 3, 1)), rng.normal(size=(4, 3)), None)
    windows = jax.tree.map(lambda a: jax.numpy.asarray(a, jax.numpy.float32), windows)
    terms = loss_terms(model, windows, TrainConfig(consistency_steps=None), key=jax.random.key(0))
    scale = model.normaliser
    squares = {"state": [], "reward": [], "consistency": []}
    rollout = jax.jit(lambda state, actions: model.rollout(state, actions, return_latents=True))
    for b in range(3):
        prediction = rollout(windows.states[0, b], windows.actions[:, b])
        for k in range(4):
            squares["state"].append(((prediction.states[k] - windows.states[k + 1, b]) / scale.state_std) ** 2)
            squares["reward"].append(((prediction.rewards[k] - windows.rewards[k, b]) / scale.reward_std) ** 2)
            squares["consistency"].append((prediction.latents[k] - model.encode(windows.states[k + 1, b])) ** 2)
    assert set(terms) == set(loss_weights(TrainConfig())) - {"likelihood"}  # that of a stochastic model
    for name, expected in squares.items():
        np.testing.assert_allclose(terms[name], np.mean(expected), rtol=1e-4)


def test_a_random_subset_of_steps_is_unbiased(data):
    model = linear_model(data[0])
    rng = np.random.default_rng(1)
    latents, states = (
        jax.numpy.asarray(rng.normal(size=shape), jax.numpy.float32)
        for shape in ((12, 4, model.core.latent_size), (12, 4, 2))
    )
    weight = jax.numpy.ones(12)
    seen = Past(states[:, :, None], jax.numpy.zeros((12, 4, 0, 1)))
    full = consistency_loss(model, latents, seen, weight)

    def some(key):
        chosen = random_steps(12, 5, key=key)
        return consistency_loss(model, latents[chosen], jax.tree.map(lambda a: a[chosen], seen), weight[chosen])

    found = jax.vmap(some)(jax.random.split(jax.random.key(1), 3000))
    assert float(found.std()) > 0
    assert float(found.mean()) == pytest.approx(float(full), abs=4 * float(found.std()) / np.sqrt(3000))


@pytest.mark.parametrize(("horizon", "count"), [(12, 5), (100, 16), (7, 7), (3, 10), (10, 1)])
def test_every_step_of_a_window_is_as_likely(horizon, count):
    chosen = [np.arange(horizon)[random_steps(horizon, count, key=jax.random.key(i))] for i in range(600)]
    assert all(len(set(steps)) == min(count, horizon) for steps in chosen)
    frequency = np.bincount(np.concatenate(chosen), minlength=horizon) / 600
    expected = min(count / horizon, 1.0)
    np.testing.assert_allclose(frequency, expected, atol=5 * np.sqrt(0.25 / 600))


@pytest.mark.quick("11-4")
@pytest.mark.parametrize(("horizon", "stride"), [(12, 4), (11, 4), (3, 5)])
def test_a_loss_on_some_steps_expects_the_loss_on_all(data, horizon, stride):
    model = linear_model(data[0])
    windows = WindowSampler(data[0], horizon).sample(jax.random.key(0), 6)

    def term(stride, key):
        return loss_terms(model, windows, TrainConfig(loss_stride=stride, consistency_steps=None), key=key)

    full = jax.tree.map(float, term(1, jax.random.key(0)))
    # Every offset as often as it is drawn: average over many keys, once per key.
    found = jax.vmap(lambda key: term(stride, key))(jax.random.split(jax.random.key(1), 2000))
    for name, values in found.items():
        error = 4 * float(values.std()) / np.sqrt(2000)
        assert float(values.mean()) == pytest.approx(full[name], abs=error + 1e-6), name


def test_the_first_steps_weigh_more_if_asked(data):
    """Their mean over all starts that have ten steps after them is what the extra term expects."""
    model = linear_model(data[0])
    windows = WindowSampler(data[0], 14).sample(jax.random.key(0), 6)

    def terms(windows, key, **settings):
        return loss_terms(model, windows, TrainConfig(**settings), key=key)

    keys = jax.random.split(jax.random.key(1), 2000)
    plain, more = (
        jax.vmap(lambda key, weight=weight: terms(windows, key, loss_stride=2, early_weight=weight, early_starts=3))(
            keys
        )
        for weight in (0.0, 0.5)
    )
    after_starts = [
        terms(jax.tree.map(lambda leaf, o=o: leaf[o : o + len(leaf) - 4], windows), keys[0], loss_stride=1)
        for o in range(5)
    ]
    for name in ("state", "reward"):
        early = np.asarray(more[name] - plain[name]) / 0.5
        expected = np.mean([float(found[name]) for found in after_starts])
        assert early.mean() == pytest.approx(expected, abs=4 * early.std() / np.sqrt(len(keys)) + 1e-6), name
        assert early.std() > 0
    np.testing.assert_array_equal(more["consistency"], plain["consistency"])


@pytest.mark.quick("2-koopman")
@pytest.mark.parametrize("core", ["koopman", "gru"])
@pytest.mark.parametrize("stride", [1, 2])
def test_rematerialisation_changes_nothing_but_memory(data, core, stride):
    model = DynamicsModel.create(core, data[0], latent_size=8, encoder_hidden=(8,), key=jax.random.key(0))
    windows = WindowSampler(data[0], 11).sample(jax.random.key(0), 3)

    def gradient(remat_steps):
        config = TrainConfig(loss_stride=stride, remat_steps=remat_steps, consistency_steps=None)

        def loss(parameters):
            terms = loss_terms(eqx.combine(parameters, model), windows, config, key=jax.random.key(2))
            return sum(terms.values())

        return jax.jit(jax.value_and_grad(loss))(eqx.filter(model, model.trainable()))

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), gradient(4), gradient(None))


def test_a_core_that_sees_the_whole_window_rematerialises_nothing(data):
    model = DynamicsModel.create("dssm", data[0], latent_size=8, layers=1, state_size=4, key=jax.random.key(0))
    with pytest.raises(KoopaxError, match="remat_steps"):
        koopax.fit(model, data[0], horizon=10, steps=1, remat_steps=5, batch_size=2)


def test_the_learning_rate_rises_and_falls():
    config = TrainConfig(learning_rate=2.0, warmup=0.1, final_learning_rate=0.5)
    rates = [float(learning_rate(jax.numpy.asarray(p), config)) for p in (0.0, 0.05, 0.1, 0.55, 1.0)]
    np.testing.assert_allclose(rates, [0.0, 1.0, 2.0, 1.5, 1.0], rtol=1e-5)


def test_the_spectrum_has_a_learning_rate_of_its_own(data):
    frozen = small_fit(data[0], spectrum_learning_rate=0.0)
    start = linear_model(data[0])
    assert np.array_equal(frozen.model.core.spectrum.raw_decay, start.core.spectrum.raw_decay)
    assert not np.array_equal(frozen.model.core.input_real, start.core.input_real)


@pytest.mark.slow
def test_early_stop_and_time_limit(data):
    train, test = data
    stalled = small_fit(train, validation=test, steps=400, validate_every=2, patience=2, learning_rate=1e-12)
    assert stalled.stopped == "patience"
    assert stalled.step < 400
    timed = small_fit(train, steps=None, seconds=0.3, log_every=10**6)
    assert timed.stopped == "time"
    assert timed.seconds >= 0.3
    assert timed.metrics[-1]["step"] == timed.step  # the end has its line of metrics


@pytest.mark.slow
def test_a_loss_that_blows_up_stops_with_the_step_and_the_last_good_checkpoint(data, tmp_path):
    train, _ = data
    message = r"non-finite at step (\d+); the last checkpoint with a finite loss is step (\d+) .*learning_rate"
    with pytest.raises(KoopaxError, match=message) as caught:
        small_fit(
            train,
            steps=60,
            out=tmp_path / "run",
            learning_rate=3e3,
            spectrum_learning_rate=0.0,
            warmup=0.9,
            clip=1e30,
            checkpoint_every=1,
            log_every=20,
        )
    bad, good = map(int, re.search(message, str(caught.value)).groups())
    # A checkpoint of step `bad` would hold the parameters that the loss is not finite with.
    assert [int(path.stem) for path in sorted((tmp_path / "run" / "checkpoints").iterdir())][-1] == good == bad - 1
    settings = {"steps": 60, "spectrum_learning_rate": 0.0, "warmup": 0.9, "clip": 1e30, "checkpoint_every": 1}
    with pytest.raises(KoopaxError, match=r"warmup is 0\.1, but"):
        small_fit(train, **settings | {"warmup": 0.1}, log_every=20, out=tmp_path / "run", resume=True)
    seen = []
    gentle = {"learning_rate": 1e-6, "log_every": 20, "out": tmp_path / "run", "resume": True, "watch": seen.append}
    assert small_fit(train, **settings, **gentle).step == 60
    assert seen[0]["step"] == good


@pytest.mark.slow
def test_a_loss_that_blows_up_in_a_timed_run_is_no_success(data, tmp_path):
    with pytest.raises(KoopaxError, match="non-finite"):
        small_fit(
            data[0], steps=None, seconds=0.5, log_every=10**6, learning_rate=1e30, clip=1e30, out=tmp_path / "run"
        )
    assert not (tmp_path / "run" / "model.koopax").exists()


def test_resuming_gives_the_same_run_as_never_stopping(data, tmp_path):
    train, test = data
    settings = {"validation": test, "validate_every": 4, "checkpoint_every": 5, "log_every": 3}
    whole = small_fit(train, **settings, out=tmp_path / "whole")

    stop_after = 7

    def interrupt(line):
        if line["step"] > stop_after:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(KoopaxWarning, match=r"training was interrupted at step \d+ of 12: .* resume=True"):
        part = small_fit(train, **settings, out=tmp_path / "part", watch=interrupt, on_interrupt="return")
    assert part.stopped == "interrupted"
    assert stop_after < part.step < 12
    seen = []
    rest = small_fit(train, **settings, out=tmp_path / "part", resume=True, watch=seen.append)
    assert seen[0]["step"] == part.step  # it went on, and did not start again
    assert seen[0]["compile_seconds"] > 0
    assert rest.step == 12
    assert rest.seconds > part.seconds
    assert rest.compile_seconds > part.compile_seconds
    assert rest.wall_seconds > part.wall_seconds
    assert without_time(rest.metrics) == without_time(whole.metrics)
    assert all(np.array_equal(a, b) for a, b in zip(leaves(rest), leaves(whole), strict=True))
    written = [json.loads(line) for line in (tmp_path / "part" / "metrics.jsonl").read_text().splitlines()]
    assert without_time(written) == without_time(whole.metrics)
    again = small_fit(train, **settings, out=tmp_path / "part", resume=True, watch=seen.append)
    assert again.step == 12  # a finished run stays as it is
    assert all(np.array_equal(a, b) for a, b in zip(leaves(again), leaves(whole), strict=True))
    longer = small_fit(train, **settings, steps=14, out=tmp_path / "part", resume=True)
    assert longer.step == 14
    with pytest.raises(KoopaxError, match=r"horizon is 9, but the run .* was begun with 10"):
        small_fit(train, **settings, horizon=9, out=tmp_path / "part", resume=True)


def test_a_finished_run_loads(data, tmp_path):
    whole = small_fit(data[0], validation=data[1], out=tmp_path / "part")
    loaded = koopax.Run.load(tmp_path / "part")
    assert all(np.array_equal(a, b) for a, b in zip(leaves(loaded), leaves(whole), strict=True))


KILLED = """
import sys
sys.path.insert(0, {tests!r})
from test_fit import oscillator, small_fit
train, test = oscillator().split(0.8, seed=0)
small_fit(train, steps=100000, checkpoint_every=20, log_every=10, out={out!r})
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:training was interrupted")
def test_a_killed_run_resumes_to_the_same_parameters(data, tmp_path):
    """SIGKILL leaves no chance to tidy up: the newest whole checkpoint has to be enough."""
    out = tmp_path / "killed"
    tests = os.path.dirname(__file__)
    process = subprocess.Popen([sys.executable, "-c", KILLED.format(tests=tests, out=str(out))])
    metrics = out / "metrics.jsonl"
    while process.poll() is None and not (metrics.is_file() and metrics.read_text().count("\n") >= 5):
        time.sleep(0.05)
    process.kill()
    process.wait()
    reached = json.loads(metrics.read_text().splitlines()[-2])["step"]
    total = reached + 60
    seen = []

    def watch(line):
        seen.append(line["step"])
        _until(total)(line)

    settings = {"steps": 100000, "log_every": 10, "on_interrupt": "return"}
    resumed = small_fit(data[0], **settings, checkpoint_every=20, out=out, resume=True, watch=watch)
    assert seen[0] >= 20  # it went on from a checkpoint
    straight = small_fit(data[0], **settings, watch=_until(total))
    assert resumed.step == straight.step
    assert without_time(resumed.metrics) == without_time(straight.metrics)
    assert all(np.array_equal(a, b) for a, b in zip(leaves(resumed), leaves(straight), strict=True))


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_is_raised_after_the_checkpoint(data, tmp_path, number, raised):
    def stop(line):
        if line["step"] == 3 and "loss" in line:
            os.kill(os.getpid(), number)

    with pytest.raises(raised) as caught:
        small_fit(data[0], out=tmp_path, watch=stop)
    assert caught.value.args == (143,) if raised is SystemExit else "at step 3 of 12" in str(caught.value)
    assert (tmp_path / "checkpoints" / "000003.npz").is_file()
    assert not (tmp_path / "model.koopax").exists()
    assert small_fit(data[0], out=tmp_path, resume=True).step == 12


def test_the_seconds_of_a_run_are_those_of_the_wall(data, tmp_path):
    began = time.perf_counter()
    run = small_fit(data[0], validation=data[1], out=tmp_path)
    wall = time.perf_counter() - began
    assert wall / 2 < run.wall_seconds <= wall
    assert run.wall_seconds > run.seconds + run.compile_seconds > run.compile_seconds > 0
    assert re.match(r"12 steps in [\d.]+ s \([\d.]+ s of it compilation\), finished", run.summary)
    assert len(repr(run)) < 200 + len(str(tmp_path))
    loaded = koopax.Run.load(tmp_path)
    assert loaded.summary == run.summary
    assert json.loads((tmp_path / "config.json").read_text())["outcome"]["wall_seconds"] == round(run.wall_seconds, 3)


def test_without_rewards_there_is_no_reward_to_learn(data, tmp_path):
    train, test = (replace(part, metadata=replace(part.metadata, has_rewards=False)) for part in data)
    settings = {"validation": test, "out": tmp_path, "validate_every": 4}
    run = small_fit(train, **settings)
    assert run.config.reward_weight == 0
    told = {name for line in run.metrics for name in line}
    assert {"state", "validation_state"} <= told
    assert not {name for name in told if "reward" in name}
    assert small_fit(train, **settings, steps=14, resume=True).step == 14
    error = koopax.prediction_error(run.model, test, horizon=10, windows=20)
    assert error.reward is None
    assert error.to_json()["reward"] is None
    assert error.to_json()["baselines"]["mean"]["reward"] is None


def _until(step):
    def watch(line):
        if line["step"] >= step:
            os.kill(os.getpid(), signal.SIGINT)

    return watch


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"horizont": 3}, "no setting 'horizont'"),
        ({"horizon": 0}, "horizon is 0"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"joint_share": 1.5}, "joint_share is 1.5: use 0 to 1"),
        ({"horizon": 4000}, "window of 4000 steps fits in none"),
        ({"resume": True}, "needs the run's folder"),
        ({"sinks": ("csv",), "out": "unused"}, "unknown metrics sink 'csv'"),
    ],
)
def test_bad_settings(data, tmp_path, monkeypatch, settings, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KoopaxError, match=message):
        koopax.fit(linear_model(data[0]), data[0], **settings)


def test_a_model_of_other_sizes_is_refused(data):
    other = Episodes.from_arrays([np.zeros((5, 3))], [np.zeros((4, 1))], [np.zeros(4)])
    with pytest.raises(KoopaxError, match="create the model from this data"):
        koopax.fit(linear_model(data[0]), other, horizon=2)


def test_an_existing_run_is_not_overwritten(data, tmp_path):
    small_fit(data[0], out=tmp_path)
    with pytest.raises(KoopaxError, match="already holds a run"):
        small_fit(data[0], out=tmp_path)


def test_tensorboard_receives_every_metric(data, tmp_path):
    from tensorboardX.proto.event_pb2 import Event

    run = small_fit(data[0], out=tmp_path, sinks=("jsonl", "tensorboard"))
    (path,) = (tmp_path / "tensorboard").glob("events*")
    content, found = path.read_bytes(), {}
    # A record is its length (8 bytes), a checksum (4), the event, and another checksum (4).
    while content:
        size = int.from_bytes(content[:8], "little")
        event = Event.FromString(content[12 : 12 + size])
        found.update({(event.step, value.tag): value.simple_value for value in event.summary.value})
        content = content[16 + size :]
    told = {(line["step"], name): value for line in run.metrics for name, value in line.items() if name != "step"}
    assert {step for step, _ in told} == {3, 6, 9, 12}
    assert found == pytest.approx(told, rel=1e-6)


def test_resuming_on_other_data_is_refused(data, tmp_path):
    train, test = data
    small_fit(train, out=tmp_path)
    model = linear_model(train)
    with pytest.raises(KoopaxError, match=r"begun on other training episodes .* resume it with the data"):
        koopax.fit(model, test, horizon=10, steps=12, log_every=3, out=tmp_path, resume=True)
    fewer = train.select(range(train.num_episodes - 1))
    with pytest.raises(KoopaxError, match="begun on other training episodes"):
        koopax.fit(model, fewer, horizon=10, steps=12, log_every=3, out=tmp_path, resume=True)
