import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from episode_samples import assert_equal
from koopax._errors import KoopaxError
from koopax.collection import collect
from koopax.collection.collecting import collect_stages
from koopax.collection.rollouts import Stage, group_size
from koopax.data import load

QUIET = {"progress": False}


@pytest.mark.quick("Hopper")
@pytest.mark.parametrize(
    ("environment", "steps", "noise"),
    [("Hopper-v5", 1500, 0.2), ("Pendulum-v1", 4000, 0.0), ("dm_control/acrobot-swingup-v0", 1100, 0.0)],
)
def test_the_number_of_workers_changes_nothing(environment, steps, noise):
    here, there = (collect(environment, "random", steps, seed=3, workers=w, noise=noise, **QUIET) for w in (0, 2))
    assert_equal(here, there)
    assert here.num_steps == steps
    other = collect(environment, "random", 100, seed=4, workers=0, noise=noise, **QUIET)
    assert not np.array_equal(other.observations[:20], here.observations[:20])


def test_a_network_gives_the_same_bits_in_any_process():
    # 16,500 steps make groups of two episodes, so that the batch matters.
    stages = [Stage("halfcheetah-medium", 16_500, 0.1, "noisy"), Stage("halfcheetah-expert", 500, 0.0, "good")]
    sets = [collect_stages("HalfCheetah-v5", stages, seed=0, workers=w, **QUIET) for w in (1, 2)]
    assert_equal(*sets)
    assert sets[0].metadata.source_names == ("noisy", "good")
    np.testing.assert_array_equal([sets[0].lengths[sets[0].sources == i].sum() for i in (0, 1)], [16_500, 500])


def test_episodes_are_true_rollouts():
    from koopax.envs import make

    episodes = collect("Hopper-v5", "random", 300, seed=1, workers=2, **QUIET)
    assert episodes.terminated[:-1].all()
    env = make("Hopper-v5")
    for i in (0, episodes.num_episodes - 2):
        episode = episodes.episode(i)
        seed = np.random.SeedSequence(1, spawn_key=(0, i)).generate_state(1)[0]
        observation, _ = env.reset(seed=int(seed))
        for t in range(len(episode.rewards)):
            np.testing.assert_array_equal(observation, episode.observations[t])
            observation, reward, terminated, _, _ = env.step(episode.actions[t])
            assert np.float32(reward) == episode.rewards[t]
        np.testing.assert_array_equal(observation, episode.observations[-1])
        assert terminated == episode.terminated
    assert episodes.metadata.environment == "Hopper-v5"
    assert episodes.metadata.step_seconds == pytest.approx(0.008)
    assert episodes.metadata.state_names[:2] == ("rootz", "rooty")
    assert episodes.metadata.state_names[-1] == "foot_joint_velocity"
    assert episodes.metadata.action_names == ("thigh_joint_control", "leg_joint_control", "foot_joint_control")
    assert episodes.metadata.units["rootx_velocity"] == "m/s"


def test_noise_stays_in_the_bounds_and_spreads_actions():
    still = {"policy": "halfcheetah-expert", "steps": 300, "seed": 0, "workers": 1, **QUIET}
    plain, noisy = (collect("HalfCheetah-v5", noise=noise, **still) for noise in (0.0, 0.5))
    assert np.abs(noisy.actions).max() <= 1
    assert not np.array_equal(plain.actions[:50], noisy.actions[:50])


def test_a_policy_from_a_module_and_from_an_object(monkeypatch, tmp_path):
    (tmp_path / "my_policy.py").write_text(
        "import numpy as np\ndef push(observations, rng):\n    return np.full((len(observations), 1), 1.5)\n"
        "def wrong(observations, rng):\n    return np.zeros(3)\n"
        "def broken(observations, rng):\n    return np.full((len(observations), 1), np.nan)\n"
        "def failing(observations, rng):\n    return 1 / 0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for workers in (0, 2):
        episodes = collect("Pendulum-v1", "my_policy:push", 500, seed=0, workers=workers, **QUIET)
        assert (episodes.episode(0).actions == 1.5).all()
    with pytest.raises(KoopaxError, match=r"actions of shape \(3,\)"):
        collect("Pendulum-v1", "my_policy:wrong", 500, seed=0, workers=1, **QUIET)
    with pytest.raises(KoopaxError, match="not finite"):
        collect("Pendulum-v1", "my_policy:broken", 500, seed=0, workers=1, **QUIET)
    with pytest.raises(KoopaxError, match="ZeroDivisionError"):
        collect("Pendulum-v1", "my_policy:failing", 500, seed=0, workers=1, **QUIET)

    class Local:
        def act(self, observations, rng):
            return np.zeros((len(observations), 1))

    episodes = collect("Pendulum-v1", Local(), 50, seed=0, workers=0, **QUIET)
    assert not episodes.actions.any()
    with pytest.raises(KoopaxError, match="workers=0"):
        collect("Pendulum-v1", Local(), 50, seed=0, workers=1, **QUIET)


def test_a_script_needs_no_guard_and_out_takes_any_format(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from koopax.collection import collect\n"
        "for out in ('a.npz', 'mine/pendulum/random-v0'):\n"
        "    collect('Pendulum-v1', 'random', 450, seed=0, workers=2, out=out)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "450/450" in done.stderr
    assert load("a.npz").num_steps == 450
    assert_equal(load("a.npz"), load("mine/pendulum/random-v0"))


SLOW_POLICY = """
import pathlib, time, numpy as np
calls = 0
def slow(observations, rng):
    global calls
    calls += 1
    if calls == 250:  # an episode has 200 steps
        pathlib.Path("collected").touch()
    time.sleep(0.002)
    return rng.uniform(-1, 1, (len(observations), 1))
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_keeps_what_was_collected(tmp_path, workers):
    (tmp_path / "slow_policy.py").write_text(SLOW_POLICY)
    code = (
        "from koopax.collection import collect\n"
        "print('go', flush=True)\n"
        f"collect('Pendulum-v1', 'slow_policy:slow', 100_000, seed=0, workers={workers}, out='part.npz')\n"
        "print('written')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        start_new_session=True,
    )
    process.stdout.readline()
    while not (tmp_path / "collected").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert out == "written\n"
    episodes = load(tmp_path / "part.npz")
    assert 0 < episodes.num_steps < 100_000
    assert episodes.metadata.extra["interrupted"]
    lengths = episodes.lengths.tolist()
    assert lengths.count(200) >= len(lengths) - 16, "only the episodes under way are cut"


def test_ctrl_c_before_the_first_step_is_an_interrupt():
    def given_up():
        os.kill(os.getpid(), signal.SIGINT)  # while the environment is made
        return gymnasium.make("Pendulum-v1").unwrapped

    gymnasium.register("GivenUp-v0", entry_point=given_up)
    try:
        with pytest.raises(KeyboardInterrupt, match="before the first step: nothing is kept"):
            collect("GivenUp-v0", "random", 100, seed=0, workers=0, out="a.npz", progress=False)
    finally:
        del gymnasium.registry["GivenUp-v0"]
    assert not Path("a.npz").exists()


def test_bad_requests():
    with pytest.raises(KoopaxError, match="unknown environment 'HalfCheeta-v5': did you mean 'HalfCheetah-v"):
        collect("HalfCheeta-v5", "random", 10, seed=0, workers=1, **QUIET)
    with pytest.raises(KoopaxError, match="unknown policy 'randum': did you mean 'random'"):
        collect("Pendulum-v1", "randum", 10, seed=0, workers=1, **QUIET)
    with pytest.raises(KoopaxError, match="trained on it"):
        collect("Pendulum-v1", "halfcheetah-expert", 10, seed=0, workers=1, **QUIET)
    with pytest.raises(KoopaxError, match="0 steps are nothing"):
        collect("Pendulum-v1", "random", 0, seed=0, **QUIET)
    with pytest.raises(KoopaxError, match="noise of -1"):
        collect("Pendulum-v1", "random", 10, seed=0, noise=-1.0, **QUIET)
    with pytest.raises(KoopaxError, match="seed of -1"):
        collect("Pendulum-v1", "random", 10, seed=-1, **QUIET)
    Path("a.npz").write_bytes(b"precious")
    with pytest.raises(KoopaxError, match="already exists"):
        collect("Pendulum-v1", "random", 10**9, seed=0, out="a.npz", **QUIET)
    with pytest.raises(KoopaxError, match="no format that can be written"):
        collect("Pendulum-v1", "random", 10**9, seed=0, out="a.xyz", **QUIET)


def test_a_dead_worker_is_one_sentence(monkeypatch, tmp_path):
    (tmp_path / "deadly.py").write_text("import os\ndef act(observations, rng):\n    os.kill(os.getpid(), 9)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(KoopaxError, match="worker ended with code -9"):
        collect("Pendulum-v1", "deadly:act", 10, seed=0, workers=1, **QUIET)


def test_groups_leave_work_for_several_workers():
    assert group_size(1000, 1000) == 1
    assert group_size(100_000, 1000) == 8
    assert all(100_000 // (group_size(s, 1000) * 1000) >= 8 for s in (100_000, 1_000_000))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_no_process_is_left_behind():
    before = _children()
    collect("Pendulum-v1", "random", 300, seed=0, workers=2, **QUIET)
    assert _children() == before


def _children() -> set[str]:
    """Workers of this process that are still there."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = status.read_text().rsplit(")", 1)[1].split()[1]
            if int(parent) == os.getpid() and b"koopax.collection.workers" in status.with_name("cmdline").read_bytes():
                found.add(status.parent.name)
    return found


def test_frames_are_kept_of_episodes_that_are_the_same_as_states(tmp_path):
    states = collect("pendulum-swingup", "random", 30, seed=2, workers=0, **QUIET)
    frames = collect(
        "pendulum-swingup", "random", 30, seed=2, workers=1, image_size=32, out=tmp_path / "a.npz", **QUIET
    )
    assert frames.image_shape == (32, 32, 3)
    np.testing.assert_array_equal(frames.actions, states.actions)
    np.testing.assert_array_equal(frames.rewards, states.rewards)
    assert (frames.observations[0] != frames.observations[5]).any()
    assert_equal(load(tmp_path / "a.npz"), frames, metadata=False)
    with pytest.raises(KoopaxError, match="image size of 1 or more"):
        collect("pendulum-swingup", "random", 30, seed=2, image_size=0, **QUIET)
