"""Poses from observations, against the simulator that made them."""

import numpy as np
import pytest

from koopax._errors import KoopaxError
from koopax.envs import make
from koopax.reporting.poses import joint_positions


def recorded(name, steps=40):
    env = make(name, seed=0)
    rng = np.random.default_rng(0)
    states, positions = [env.reset()[0]], [env.unwrapped.data.qpos.copy()]
    for _ in range(steps):
        state, _, done, _, _ = env.step(0.3 * rng.uniform(env.action_space.low, env.action_space.high))
        if done:
            break
        states.append(state)
        positions.append(env.unwrapped.data.qpos.copy())
    return env, np.array(states), np.array(positions)


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Swimmer-v5"])
def test_observations_lead_back_to_the_joints(name):
    env, states, positions = recorded(name)
    skipped = env.unwrapped.observation_structure["skipped_qpos"]
    found = joint_positions(env, states)
    np.testing.assert_allclose(found[:, skipped:], positions[:, skipped:], atol=1e-6)
    # The place along the track is an integral of a velocity that is only seen once per step.
    travelled = positions[:, :skipped] - positions[:1, :skipped]
    np.testing.assert_allclose(found[:, :skipped], travelled, atol=0.05 + 0.1 * np.abs(travelled).max())


def test_other_systems_are_refused_in_one_sentence():
    with pytest.raises(KoopaxError, match=r"Pendulum-v1 don't tell its joints"):
        joint_positions(make("Pendulum-v1"), np.zeros((3, 3)))
    with pytest.raises(KoopaxError, match="states of 4 components"):
        joint_positions(make("Hopper-v5"), np.zeros((3, 4)))
