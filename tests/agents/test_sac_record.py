"""A training run as episodes."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from test_sac_train import TINY

from koopax.agents import record_training
from koopax.agents.sac.record import split_episodes
from koopax.agents.sac.replay import Transitions
from koopax.envs import make


def test_recorded_steps_are_those_of_the_environment():
    """Every recorded episode can be taken again: Hopper falls, so there are terminations among them."""
    episodes = record_training("Hopper-v5", 250, 3, dataclasses.replace(TINY, random_steps=960))
    assert episodes.num_steps == 250
    assert episodes.metadata.environment == "Hopper-v5"
    assert episodes.terminated.any()
    assert not episodes.terminated.all()
    env = make("Hopper-v5").unwrapped
    for episode in map(episodes.episode, range(episodes.num_episodes)):
        for t in range(len(episode.rewards)):
            if t == 0:
                env.reset()
                position = np.concatenate([[0.0], episode.observations[0][:5]])
                env.set_state(position, episode.observations[0][5:])
            observation, *_ = env.step(episode.actions[t])
            if t < 5:  # float32 observations start the replay, so it drifts away slowly
                np.testing.assert_allclose(observation, episode.observations[t + 1], atol=2e-3)


def test_split_by_environment_and_episode():
    """Two environments, interleaved; the second's first episode is cut by a time limit after two steps."""
    start = np.array([0, 100, 1, 101, 2, 200, 3, 201], np.float32)[:, None]
    after = np.array([1, 101, 2, 102, 3, 201, 4, 202], np.float32)[:, None]
    continues = np.array([1, 1, 1, 1, 1, 1, 0, 1], np.float32)
    rows = Transitions(*map(jnp.asarray, (start, start, start[:, 0], continues, after)))
    lengths = [[len(episode.rewards) for episode in split_episodes(rows, i, 2, 8)] for i in range(2)]
    assert lengths == [[4], [2, 2]]
    (only,) = split_episodes(rows, 0, 2, 8)
    np.testing.assert_array_equal(only.observations[:, 0], [0, 1, 2, 3, 4])
    assert only.terminated
    assert [len(episode.rewards) for episode in split_episodes(rows, 1, 2, 7)] == [2, 1]
    assert not split_episodes(rows, 0, 2, 6)[0].terminated
