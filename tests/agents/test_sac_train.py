"""The training loop on real environments: resume, time limits, export, interruption, learning."""

import dataclasses
import errno
import os
import signal

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from koopax._errors import KoopaxError
from koopax.agents import SACConfig
from koopax.agents import train_sac as train
from koopax.agents.run import read_config
from koopax.agents.sac.agent import make_state, remember_and_learn
from koopax.agents.sac.networks import sample_action
from koopax.agents.sac.train import read_state
from koopax.collection.policies import load_policy
from koopax.envs import LockStep

TINY = SACConfig(
    env="Pendulum-v1",
    seed=3,
    steps=960,
    num_envs=2,
    lock_steps=6,
    hidden_sizes=(16, 16),
    batch_size=32,
    random_steps=240,
    replay_size=600,
    evaluate_every=240,
    evaluate_episodes=2,
    snapshot_every=480,
    critic_norm="layer",
    policy_delay=2,
    adam_b1=0.9,
    updates_per_step=0.5,
)
NORMS = {
    "layer": TINY,
    "batch": dataclasses.replace(TINY, critic_norm="batch", policy_delay=3, adam_b1=0.5),
}


def steps_of(result):
    return [line["environment_steps"] for line in result.metrics]


@pytest.mark.parametrize("norm", ["batch", *(pytest.param(n, marks=pytest.mark.slow) for n in NORMS if n != "batch")])
def test_resume_equals_uninterrupted(tmp_path, norm):
    config = NORMS[norm]
    whole = train(config, tmp_path / "whole")
    # 504 steps end in the middle of an episode and after the replay of 600 has not wrapped; 960 wraps it.
    train(dataclasses.replace(config, steps=504), tmp_path / "parts")
    parts = train(config, tmp_path / "parts", resume=True)
    assert whole.environment_steps == parts.environment_steps == 960
    timeless = [[{k: v for k, v in line.items() if k != "seconds"} for line in run.metrics] for run in (whole, parts)]
    assert timeless[0] == timeless[1]
    assert len(timeless[0]) == 4
    jax.tree.map(np.testing.assert_array_equal, read_state(tmp_path / "whole"), read_state(tmp_path / "parts"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_saves_and_resumes(tmp_path, monkeypatch, capsys, number):
    """The signal comes in the middle of stepping the environments, where nothing may be saved yet."""
    original = LockStep.step

    def interrupt(envs, actions):
        if envs.episodes[0] == 1 and len(envs.history[0]) == 3:
            os.kill(os.getpid(), number)
        return original(envs, actions)

    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(LockStep, "step", interrupt)
    stopped = train(TINY, tmp_path)
    assert stopped.environment_steps == 408  # 203 lock-steps of two environments, to the end of the dispatch
    assert stopped.interrupted
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    monkeypatch.undo()
    resumed = train(TINY, tmp_path, resume=True)
    assert steps_of(resumed) == [240, 480, 720, 960]


def test_divergence_is_an_error(tmp_path, monkeypatch):
    original = LockStep.step
    monkeypatch.setattr(LockStep, "step", lambda *a: original(*a)._replace(rewards=np.full(2, np.inf, np.float32)))
    with pytest.raises(KoopaxError, match=r"training diverged: .* is (nan|inf)"):
        train(TINY, tmp_path)


def test_full_disk_keeps_the_previous_checkpoint(tmp_path, monkeypatch):
    config = dataclasses.replace(TINY, steps=24)
    train(config, tmp_path)
    kept = {path.name: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()}

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KoopaxError, match="No space left"):
        train(dataclasses.replace(config, steps=48), tmp_path, resume=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()} == kept


def test_resume_refuses_another_config(tmp_path):
    config = dataclasses.replace(TINY, steps=24)
    train(config, tmp_path)
    with pytest.raises(KoopaxError, match=r"discount is 0\.9 but .* was trained with 0\.99"):
        train(dataclasses.replace(config, discount=0.9), tmp_path, resume=True)
    changed = dataclasses.replace(config, steps=48, evaluate_every=24, snapshot_every=24)
    assert steps_of(train(changed, tmp_path, resume=True)) == [48]
    assert read_config(tmp_path, SACConfig) == changed


def test_time_limits_continue_and_terminations_do_not(tmp_path):
    """Pendulum only has a time limit; Hopper falls over under random actions."""
    config = dataclasses.replace(TINY, steps=240, random_steps=960, num_envs=1, policy_delay=1)
    for env, ends in [("Pendulum-v1", False), ("Hopper-v5", True)]:
        config = dataclasses.replace(config, env=env)
        train(config, tmp_path / env)
        storage = read_state(tmp_path / env).replay.storage
        continues = np.asarray(storage.continues)[:240]
        assert (continues == 0).any() == ends
        # The observation that was acted on next is this one's successor, except where an episode ended.
        same = np.all(np.asarray(storage.next_observations)[:239] == np.asarray(storage.observations)[1:240], axis=1)
        assert (same | (continues[:239] == 0) | ~np.bool_(ends)).all()
        assert (~same).any()


def test_exported_policy_acts_like_the_jax_actor(tmp_path):
    train(dataclasses.replace(TINY, steps=504), tmp_path)
    state = read_state(tmp_path)
    observations = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    mean, log_std = state.learner.actor(state.observation_statistics.normalise(jnp.asarray(observations)))
    policy = load_policy(tmp_path / "snapshots" / "step-000000480.npz")
    assert policy.provenance["training_steps"] == 480
    result = train(dataclasses.replace(TINY, steps=504), tmp_path, resume=True).policy
    result.save(tmp_path / "p.npz")
    policy = load_policy(tmp_path / "p.npz")
    rng = np.random.default_rng(1)
    deterministic = policy.with_deterministic(True).act(observations, rng)
    np.testing.assert_allclose(deterministic, 2 * np.tanh(mean), atol=5e-3)
    noise = np.random.default_rng(1).standard_normal((50, 1), dtype=np.float32)
    np.testing.assert_allclose(
        policy.act(observations, np.random.default_rng(1)), 2 * np.tanh(mean + np.exp(log_std) * noise), atol=2e-2
    )


def test_compiles_once(tmp_path):
    config = dataclasses.replace(TINY, seed=77, snapshot_every=0)
    before = remember_and_learn._cache_size()
    train(config, tmp_path)
    train(dataclasses.replace(config, steps=1200), tmp_path, resume=True)
    assert remember_and_learn._cache_size() - before == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"critic_norm": "group"}, "unknown critic_norm"),
        ({"policy_delay": 5}, "multiple of policy_delay"),
        ({"updates_per_step": 0.0}, "multiple of policy_delay"),
        ({"batch_size": 0}, "at least 1"),
    ],
)
def test_bad_config(change, message):
    with pytest.raises(KoopaxError, match=message):
        dataclasses.replace(TINY, **change)


def test_sampled_actions_stay_inside():
    state = make_state(TINY, 3, 1)
    actions, log_density = sample_action(state.learner.actor, 100 * jnp.ones((64, 3)), key=jax.random.key(0))
    assert np.all(np.abs(actions) <= 1)
    assert np.all(np.isfinite(log_density))


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_learns_pendulum(tmp_path, norm):
    config = dataclasses.replace(
        NORMS[norm],
        steps=9_600,
        hidden_sizes=(64, 64),
        batch_size=128,
        random_steps=960,
        updates_per_step=1.0,
        replay_size=9_600,
        evaluate_every=2_400,
        evaluate_episodes=10,
    )
    assert gymnasium.spec("Pendulum-v1").max_episode_steps == 200
    assert train(config, tmp_path).metrics[-1]["evaluation_return"] > -300
