"""Environments by any of their names."""

import os
import subprocess
import sys

import numpy as np
import pytest

from koopax._errors import KoopaxError
from koopax.envs import LockStep, action_bounds, episode_returns, make


@pytest.mark.parametrize(
    ("name", "state_size", "action_size", "bound"),
    [
        ("Pendulum-v1", 3, 1, 2.0),
        ("Hopper-v5", 11, 3, 1.0),
        ("HalfCheetah-v5", 17, 6, 1.0),
        ("dm_control/cheetah-run-v0", 17, 6, 1.0),
        ("cheetah-run", 17, 6, 1.0),
        ("ball_in_cup-catch", 8, 2, 1.0),
    ],
)
def test_flat_float32_in_and_out(name, state_size, action_size, bound):
    env = make(name, seed=0)
    low, high = action_bounds(env)
    np.testing.assert_array_equal(high, np.full(action_size, bound, np.float32))
    np.testing.assert_array_equal(low, -high)
    observation, _ = env.reset()
    for _ in range(3):
        assert observation.shape == (state_size,) == env.observation_space.shape
        assert observation.dtype == np.float32
        observation, reward, terminated, truncated, _ = env.step(high)
        assert isinstance(reward, float)
        assert not terminated
        assert not truncated
    env.close()


@pytest.mark.parametrize("name", ["Hopper-v5", "cheetah-run"])
def test_seed_decides_the_first_episode_and_an_explicit_seed_wins(name):
    first, second, third = (make(name, seed=seed).reset()[0] for seed in (7, 7, 8))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, third)
    np.testing.assert_array_equal(make(name, seed=8).reset(seed=7)[0], first)


def test_dict_observations_keep_every_component():
    from dm_control import suite

    env = make("walker-walk", seed=3)
    observation, _ = env.reset()
    timestep = suite.load("walker", "walk").reset()
    assert observation.size == sum(np.size(part) for part in timestep.observation.values())


@pytest.mark.parametrize("name", ["cheetah-run", "HalfCheetah-v5"])
def test_time_limit_is_a_truncation(name):
    env = make(name, seed=0)
    env.reset()
    action = np.zeros(6, np.float32)
    ends = [env.step(action)[2:4] for _ in range(1000)]
    assert ends == [(False, False)] * 999 + [(False, True)]


@pytest.mark.parametrize("name", ["HalfCheeta-v5", "cheetah-rum", "nothing/like-this"])
def test_unknown_name_is_one_sentence_with_a_hint(name):
    with pytest.raises(KoopaxError, match=r"unknown environment .*(did you mean|give a Gymnasium id)") as caught:
        make(name)
    assert "\n" not in str(caught.value)


def test_hint_names_the_nearest():
    with pytest.raises(KoopaxError, match="cheetah-run"):
        make("cheetah-rum")


def test_discrete_actions_are_refused():
    with pytest.raises(KoopaxError, match="continuous"):
        make("CartPole-v1")


@pytest.mark.parametrize(
    ("missing", "name"),
    [("gymnasium", "Pendulum-v1"), ("shimmy", "dm_control/cheetah-run-v0"), ("mujoco", "Hopper-v5")],
)
def test_missing_extra_says_what_to_install(missing, name):
    """In a fresh interpreter in which the package can't be found."""
    program = f"""
from importlib.machinery import PathFinder
find_spec = PathFinder.find_spec
PathFinder.find_spec = lambda name, *a: None if name.split(".")[0] == {missing!r} else find_spec(name, *a)
from koopax._errors import KoopaxError
from koopax.envs import make
try:
    make({name!r})
except KoopaxError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'koopax[mujoco]'" in done.stdout, done.stderr


MODULE = """
import gymnasium
from gymnasium.envs.classic_control.pendulum import PendulumEnv

gymnasium.register("Swing-v0", entry_point=PendulumEnv, max_episode_steps=7)
"""


def test_a_module_of_ones_own_registers_its_environment(tmp_path, monkeypatch):
    (tmp_path / "swings.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    env = make("swings:Swing-v0", seed=0)
    env.reset()
    assert [env.step(np.zeros(1, np.float32))[3] for _ in range(7)] == [False] * 6 + [True]
    with pytest.raises(KoopaxError, match="registers no environment 'Swing-v1'"):
        make("swings:Swing-v1")
    with pytest.raises(KoopaxError, match="'swigs:Swing-v0' can't be imported"):
        make("swigs:Swing-v0")


def test_a_name_from_data_imports_nothing(tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("open('harm', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(KoopaxError, match="'evil:Nice-v0', but only a name that you type may import a module"):
        make("evil:Nice-v0", trusted=False)
    assert not (tmp_path / "harm").exists()
    make("Pendulum-v1", trusted=False).close()


def test_the_working_folder_shadows_no_installed_package(tmp_path, monkeypatch):
    (tmp_path / "shimmy.py").write_text("raise SystemError('shadowed')")
    (tmp_path / "swings_too.py").write_text(MODULE.replace("Swing-v0", "SwingToo-v0"))
    monkeypatch.chdir(tmp_path)
    program = "from koopax.envs import make; make('swings_too:SwingToo-v0').close(); make('cheetah-run').close()"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_missing_graphics_library_is_one_sentence():
    program = "from koopax.envs import make\ntry: make('Hopper-v5')\nexcept Exception as error: print(repr(error))"
    known = {name: value for name, value in os.environ.items() if name != "PYOPENGL_PLATFORM"}  # set by MuJoCo
    for backend in ("osmesa", "nonsense"):
        settings = known | {"MUJOCO_GL": backend}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=settings)
        assert done.stdout.startswith("KoopaxError(\"MuJoCo can't be imported with MUJOCO_GL="), done.stdout
        assert "libegl1" in done.stdout
        assert "NoneType" not in done.stdout


class Still:
    def act(self, observations, rng):
        return np.zeros((len(observations), 1), np.float32)


def test_episode_returns_are_those_of_whole_episodes():
    returns = episode_returns("Pendulum-v1", Still(), 3, seed=4)
    seeds = np.random.SeedSequence(4).generate_state(3)
    for expected, seed in zip(returns, seeds, strict=True):
        env = make("Pendulum-v1")
        env.reset(seed=int(seed))
        rewards = []
        while True:
            _, reward, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
            rewards.append(reward)
            if terminated or truncated:
                break
        assert len(rewards) == 200
        np.testing.assert_allclose(expected, sum(rewards))


def test_lockstep_returns_the_last_observation_before_a_reset():
    envs = LockStep("Pendulum-v1", 2, seed=0)
    steps = None
    for _ in range(200):
        steps = envs.step(np.zeros((2, 1), np.float32))
    assert steps is not None
    assert steps.truncated.all()
    assert not steps.terminated.any()
    assert envs.episodes == [1, 1]
    assert not np.allclose(envs.observations, steps.next_observations)


def test_lockstep_restores_mujoco_bit_for_bit():
    actions = np.random.default_rng(0).uniform(-1, 1, (120, 2, 3)).astype(np.float32)
    first = LockStep("Hopper-v5", 2, seed=5)
    for row in actions[:70]:
        first.step(row)
    second = LockStep("Hopper-v5", 2, seed=5)
    second.restore(first.save())
    for row in actions[70:]:
        for a, b in zip(first.step(row), second.step(row), strict=True):
            np.testing.assert_array_equal(a, b)
