"""Every step that a training run takes, as episodes: a replay buffer from scratch."""

import dataclasses
import itertools
import tempfile
from pathlib import Path

import jax
import numpy as np

from koopax.agents.sac.agent import make_state
from koopax.agents.sac.checkpoint import load_checkpoint
from koopax.agents.sac.config import SACConfig
from koopax.agents.sac.replay import Transitions
from koopax.agents.sac.train import train
from koopax.collection.naming import component_names
from koopax.collection.rollouts import Rollout
from koopax.data.episodes import Episodes
from koopax.envs import action_bounds, make


def record_training(env: str, steps: int, seed: int, config: SACConfig | None = None) -> Episodes:
    """Train SAC for `steps` environment steps and return them all, in episodes, environment by environment.

    The config's environment, seed, steps and replay size are replaced; the rest is the default's if there is none.
    Raises `KeyboardInterrupt` if the training was interrupted.
    """
    config = dataclasses.replace(
        config or SACConfig(), env=env, seed=seed, steps=steps, replay_size=steps, snapshot_every=0
    )
    made = make(env)
    low, high = action_bounds(made)
    names = component_names(made)
    state_size = made.observation_space.shape[0]
    made.close()
    with tempfile.TemporaryDirectory() as folder:
        if train(config, Path(folder)).steps < steps:
            raise KeyboardInterrupt
        like = jax.eval_shape(lambda: make_state(config, state_size, len(low)))
        storage = load_checkpoint(Path(folder), like)[0].replay.storage
    rollouts = [
        rollout for i in range(config.num_envs) for rollout in split_episodes(storage, i, config.num_envs, steps)
    ]
    return Episodes.from_arrays(
        [rollout.observations for rollout in rollouts],
        [low + 0.5 * (high - low) * (rollout.actions + 1) for rollout in rollouts],
        [rollout.rewards for rollout in rollouts],
        terminated=[rollout.terminated for rollout in rollouts],
        sources=["training"] * len(rollouts),
        environment=env,
        state_names=names.state,
        action_names=names.action,
        units=names.units,
        extra={"agent": "sac", "seed": seed, "config": dataclasses.asdict(config)},
    )


def split_episodes(rows: Transitions, first: int, stride: int, steps: int) -> list[Rollout]:
    """The episodes of one environment: rows `first`, `first + stride`, … of the first `steps` rows of a replay.

    A new episode begins where a transition does not start in the state that the one before it reached.
    """
    before, actions, rewards, continues, after = (np.asarray(array)[:steps][first::stride] for array in rows)
    if not len(rewards):
        return []
    breaks = np.any(after[:-1] != before[1:], axis=1) | (continues[:-1] == 0)
    bounds = [0, *(np.flatnonzero(breaks) + 1), len(rewards)]
    return [
        Rollout(
            np.concatenate([before[a:b], after[b - 1 : b]]), actions[a:b], rewards[a:b], bool(continues[b - 1] == 0)
        )
        for a, b in itertools.pairwise(bounds)
    ]
