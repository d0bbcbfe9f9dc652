"""The training loop on real environments: resume, kill, interruption, terminations, both axes of steps."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koopax._errors import KoopaxError
from koopax.agents import TDMPCConfig
from koopax.agents import tdmpc_arm as arm
from koopax.agents import train_tdmpc as train
from koopax.agents.run import load_checkpoint, read_config
from koopax.agents.tdmpc.agent import decide, learn, make_learner
from koopax.agents.tdmpc.tasks import Task, published_action_repeat
from koopax.agents.tdmpc.train import between_known, restore_state
from koopax.models.spectrum import PaperSpectrum
from koopax.training.metrics import read_json_lines

SIZES = {
    "latent_size": 8,
    "encoder_hidden": (8,),
    "reward_hidden": (8,),
    "hidden": (8, 8),
    "batch_size": 8,
    "horizon": 3,
    "samples": 8,
    "elites": 4,
    "iterations": 2,
    "proposals": 2,
    "updates_per_dispatch": 10,
    "updates_per_decision": 0.1,
    "evaluate_episodes": 1,
    "final_episodes": 1,
}
TINY = TDMPCConfig(task="Pendulum-v1", seed=3, steps=800, seed_decisions=250, evaluate_every=400, schedule=600, **SIZES)


def restored(out):
    learner, replay = restore_state(read_config(out, TDMPCConfig), load_checkpoint(out))
    return jax.tree.leaves(learner), replay.save()


def timeless(lines):
    return [{name: value for name, value in line.items() if name not in ("seconds", "spent")} for line in lines]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A whole run, and how often its two compiled functions were compiled: with one shape each, plus evaluation."""
    learn.clear_cache()
    decide.clear_cache()
    result = train(TINY, tmp_path_factory.mktemp("whole") / "run")
    return result, (learn._cache_size(), decide._cache_size())


def test_a_run_compiles_once_and_logs_both_axes(whole):
    result, compilations = whole
    assert compilations == (1, 1)
    assert [line["decisions"] for line in result.metrics] == [200, 400, 600, 800]
    assert [line["environment_steps"] for line in result.metrics] == [200, 400, 600, 800]
    assert [line["updates"] for line in result.metrics] == [0, 40, 60, 80]
    assert [line["plan_length"] for line in result.metrics] == [1, 1, 2, 3]
    assert ["evaluation_return" in line for line in result.metrics] == [False, True, False, True]
    assert np.isfinite(result.metrics[-1]["model_loss"])
    assert ["consistency_errors" in line for line in result.metrics] == [False, True, True, True]
    assert len(result.metrics[-1]["consistency_errors"]) == TINY.horizon
    spent = result.metrics[-1]["spent"]
    assert set(spent) == {"playing", "learning", "evaluating"}
    assert 0 < sum(spent.values()) <= result.metrics[-1]["seconds"] + 0.2


@given(st.integers(0, 30_000), st.lists(st.floats(0, 1), min_size=20, max_size=20), st.floats(0, 1))
def test_plans_are_no_longer_than_the_model_is_trusted(decisions, errors, trust):
    free = TDMPCConfig(horizon=20)
    length = dataclasses.replace(free, plan_trust=trust).plan_length(decisions, errors)
    assert 1 <= length <= free.plan_length(decisions) == free.plan_length(decisions, errors) <= 20
    assert length == 1 or max(errors[:length]) <= trust
    assert length == free.plan_length(decisions) or errors[length if errors[0] <= trust else 0] > trust
    assert dataclasses.replace(free, plan_trust=trust).searched_length(decisions, errors) in {5, 10, 15, 20}


def test_resume_equals_uninterrupted(whole, tmp_path):
    result, _ = whole
    train(dataclasses.replace(TINY, steps=400), tmp_path)
    # A line that the checkpoint does not know of, as a crash between the two would leave it.
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"decisions": 600, "environment_steps": 600, "return": 1.0}) + "\n")
    parts = train(TINY, tmp_path, resume=True)
    assert timeless(parts.metrics) == timeless(result.metrics)
    for a, b in zip(restored(result.folder)[0], restored(tmp_path)[0], strict=True):
        np.testing.assert_array_equal(a, b)
    for name, array in restored(result.folder)[1].items():
        np.testing.assert_array_equal(array, restored(tmp_path)[1][name])


def test_an_interrupted_episode_is_played_again(whole, tmp_path, monkeypatch):
    result, _ = whole
    original, calls = Task.step, []

    def interrupt(task, action):
        calls.append(action)
        if len(calls) == 450:  # in the middle of the third episode
            os.kill(os.getpid(), signal.SIGINT)
        return original(task, action)

    monkeypatch.setattr(Task, "step", interrupt)
    stopped = train(TINY, tmp_path)
    monkeypatch.undo()
    assert stopped.interrupted
    assert load_checkpoint(tmp_path).header["progress"]["decisions"] == 400
    again = train(TINY, tmp_path, resume=True)
    assert not again.interrupted
    assert timeless(again.metrics) == timeless(result.metrics)


def test_resuming_with_other_settings_is_refused(whole, tmp_path):
    result, _ = whole
    with pytest.raises(KoopaxError, match="batch_size is 9"):
        train(dataclasses.replace(TINY, batch_size=9), result.folder, resume=True)
    with pytest.raises(KoopaxError, match="already holds a run"):
        train(TINY, result.folder)
    with pytest.raises(KoopaxError, match="there is no run"):
        train(TINY, tmp_path, resume=True)


@pytest.mark.slow
def test_killed_at_a_random_moment_the_command_line_loses_at_most_an_episode(tmp_path):
    """SIGKILL leaves no time to save anything: what counts is the checkpoint of the last episode's end."""
    out = tmp_path / "run"
    options = "--task Pendulum-v1 --dynamics mlp --horizon 2 --samples 16 --iterations 1 --latent-size 8 --batch-size 4"
    command = [Path(sys.executable).with_name("koopax"), "agent", "train", "tdmpc", *options.split()]
    command += ["--steps", "1000", "--seed-decisions", "900", "--evaluate-episodes", "1", "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while len(read_json_lines(out / "metrics.jsonl")) < 2 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    seen = len(read_json_lines(out / "metrics.jsonl"))
    episodes = load_checkpoint(out).header["counters"]["episodes"]
    assert episodes >= seen >= 2
    config = dataclasses.replace(read_config(out, TDMPCConfig), steps=200 * (episodes + 1))
    resumed = train(dataclasses.replace(config, steps=min(config.steps, 800)), out, resume=True)
    assert [line["decisions"] for line in resumed.metrics[:4]] == [200, 400, 600, 800][: len(resumed.metrics)]


@pytest.mark.slow
def test_true_terminations_are_stored_and_time_limits_are_not(tmp_path):
    """Hopper falls within few random steps: short episodes, most of them shorter than the window."""
    config = TDMPCConfig(
        task="Hopper-v5", steps=150, seed_decisions=120, evaluate_every=10_000, **{**SIZES, "horizon": 30}
    )
    result = train(config, tmp_path)
    _, replay = restored(tmp_path)
    ends = np.flatnonzero(replay["ahead"] == 1)
    lines = [line["terminated"] for line in result.metrics]
    assert any(lines)
    np.testing.assert_array_equal(replay["continues"][ends], 1 - np.array(lines, float))
    others = np.setdiff1d(np.flatnonzero(replay["ahead"] > 1), ends)
    assert np.all(replay["continues"][others] == 1)
    assert np.isfinite(result.metrics[-1]["model_loss"])


@pytest.mark.parametrize("dynamics", ["koopman"])
def test_a_real_dmc_task_end_to_end(tmp_path, dynamics):
    """Decisions are a quarter of the environment steps, actions stay in ±1, and time limits bootstrap."""
    config = arm(dynamics, task="cheetah-run", steps=2_000, seed_decisions=250, **{**SIZES, "horizon": 4})
    result = train(config, tmp_path)
    assert [(line["decisions"], line["environment_steps"]) for line in result.metrics] == [(250, 1000), (500, 2000)]
    _, replay = restored(tmp_path)
    assert np.abs(replay["actions"]).max() <= 1
    assert np.all(replay["continues"][replay["ahead"] > 0] == 1)
    assert len(result.metrics[-1]["evaluation_returns"]) == 1


def test_action_repeats_are_the_published_ones():
    ids = ("cheetah-run-v0", "cartpole-swingup-v0", "finger-spin-v0", "walker-walk-v0", "humanoid_CMU-run-v0")
    assert [published_action_repeat(f"dm_control/{name}") for name in ids] == [4, 8, 2, 2, 2]
    assert published_action_repeat("Hopper-v5") == 1


def test_a_repeat_sums_rewards_and_stops_at_the_end():
    task, plain = Task("cheetah-run", seed=0), Task("cheetah-run", seed=0, action_repeat=1)
    np.testing.assert_array_equal(task.reset(1), plain.reset(1))
    action = np.full(6, 0.3, np.float32)
    repeated = task.step(action)
    singles = [plain.step(action) for _ in range(4)]
    np.testing.assert_array_equal(repeated.observation, singles[-1].observation)
    assert repeated.reward == pytest.approx(sum(single.reward for single in singles))
    uneven = Task("cheetah-run", seed=0, action_repeat=300)
    uneven.reset(0)
    steps = [uneven.step(action).steps for _ in range(4)]
    assert steps == [300, 300, 300, 100]


@pytest.mark.parametrize(
    "wrong",
    [
        {"dynamics": "kopman"},
        {"horizon": 0},
        {"decay": 0.0},
        {"value_decay": 1.5},
        {"action_repeat": 0},
        {"plan_lambda": 0.0},
        {"latent_norm": "sim"},
        {"latent_bound": 0.0},
        {"refresh": "all"},
        {"refresh_every": 0},
        {"critics": 0},
        {"dynamics": "dssm", "refresh_every": 5},
    ],
)
def test_bad_settings_are_refused(wrong):
    with pytest.raises(KoopaxError):
        TDMPCConfig(**wrong)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"latent_norm": "simplex", "latent_size": 10}, "multiple of 8"),
        ({"dynamics": "mlp", "refresh_every": 5}, "no context to refresh"),
    ],
)
def test_what_a_core_cannot_have_is_refused(changes, message):
    with pytest.raises(KoopaxError, match=message):
        jax.eval_shape(lambda: make_learner(TDMPCConfig(**changes), 5, 2))


def test_published_means_published():
    """TOLD: Linear(50 + A, 512), ELU, Linear(512, 512), ELU, Linear(512, 50); and a latent of 50 in both arms."""
    mlp, koopman = (arm(name, published=True) for name in ("mlp", "koopman"))
    learners = [make_learner(config, 17, 6) for config in (mlp, koopman)]
    for learner in learners:
        assert learner.model.core.latent_size == learner.model.core.predicted_size == 50
        assert [layer.weight.shape for layer in learner.model.encoder.layers] == [(17, 256), (256, 50)]
        assert [layer.weight.shape for layer in learner.model.reward.layers] == [(56, 512), (512, 512), (512, 1)]
    core = learners[0].model.core
    assert core.activation == "elu"
    layers = (core.latent_input, *core.between, core.output)
    assert [layer.weight.shape for layer in layers] == [(512, 50), (512, 512), (50, 512)]
    spectrum = learners[1].model.core.spectrum
    assert isinstance(spectrum, PaperSpectrum)
    np.testing.assert_allclose(spectrum.rates()[0], -0.2, rtol=1e-6)
    assert learners[1].model.core.input_real.shape == (25, 64)
    assert (mlp.horizon, koopman.horizon) == (5, 20)
    assert mlp.core_rate == koopman.core_rate == 1
    assert mlp == TDMPCConfig.from_json(json.loads(json.dumps(dataclasses.asdict(mlp))))
    assert arm("koopman").latent_size == 128


def test_a_config_survives_json():
    given = (("spectrum_options", (("highest_phase", 0.5),)), ("pilot_modes", None), ("action_hidden", (8, 8)))
    config = dataclasses.replace(arm("koopman"), core_options=given)
    again = TDMPCConfig.from_json(json.loads(json.dumps(dataclasses.asdict(config.settled()))))
    assert again == config.settled() == again.settled()
    assert again.all_core_options == config.all_core_options
    assert again.all_core_options["spectrum_options"] == {"highest_phase": 0.5}
    assert "pilot_modes" not in again.all_core_options


def test_a_record_that_says_nothing_of_the_core_has_what_was_default_then():
    config = arm("koopman")
    former = TDMPCConfig.from_json(json.loads(json.dumps(dataclasses.asdict(config))))
    assert config.core_options == ()
    assert former.all_core_options == {**config.all_core_options, "action_embedding": 32}


def test_a_step_without_a_loss_errs_as_those_around_it():
    found = between_known(np.array([0.1, np.nan, 0.3, np.nan, np.nan]))
    np.testing.assert_allclose(found, [0.1, 0.2, 0.3, 0.3, 0.3])
    assert np.isnan(between_known(np.full(3, np.nan))).all()
