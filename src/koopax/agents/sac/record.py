"""Every step that a training run takes, as episodes: a replay buffer from scratch."""

import contextlib
import dataclasses
import itertools
import tempfile
from pathlib import Path

import numpy as np

from koopax.agents.sac.config import SACConfig
from koopax.agents.sac.replay import Transitions
from koopax.agents.sac.train import read_state, train_sac
from koopax.collection.naming import component_names
from koopax.data.episodes import Episode, Episodes
from koopax.envs import make


def record_training(env: str, steps: int, seed: int, config: SACConfig | None = None) -> Episodes:
    """Train SAC for `steps` environment steps and return them all, in episodes, environment by environment.

    The config's environment, seed, steps and replay size are replaced; the rest is the default's if there is none.
    Raises `KeyboardInterrupt` if the training was interrupted.
    """
    config = dataclasses.replace(
        config or SACConfig(), env=env, seed=seed, steps=steps, replay_size=steps, snapshot_every=0
    )
    with contextlib.closing(make(env, unit_actions=True)) as made:
        names, own_actions = component_names(made), made.action
    with tempfile.TemporaryDirectory() as folder:
        if train_sac(config, Path(folder)).environment_steps < steps:
            raise KeyboardInterrupt
        storage = read_state(Path(folder)).replay.storage
    episodes = [
        episode for i in range(config.num_envs) for episode in split_episodes(storage, i, config.num_envs, steps)
    ]
    return Episodes.from_arrays(
        [episode.observations for episode in episodes],
        [own_actions(episode.actions) for episode in episodes],
        [episode.rewards for episode in episodes],
        terminated=[episode.terminated for episode in episodes],
        sources=["training"] * len(episodes),
        environment=env,
        state_names=names.state,
        action_names=names.action,
        units=names.units,
        extra={"agent": "sac", "seed": seed, "config": dataclasses.asdict(config)},
    )


def split_episodes(rows: Transitions, first: int, stride: int, steps: int) -> list[Episode]:
    """The episodes of one environment: rows `first`, `first + stride`, … of the first `steps` rows of a replay.

    A new episode begins where a transition does not start in the state that the one before it reached.
    """
    before, actions, rewards, continues, after = (np.asarray(array)[:steps][first::stride] for array in rows)
    if not len(rewards):
        return []
    breaks = np.any(after[:-1] != before[1:], axis=1) | (continues[:-1] == 0)
    bounds = [0, *(np.flatnonzero(breaks) + 1), len(rewards)]
    return [
        Episode(
            np.concatenate([before[a:b], after[b - 1 : b]]),
            actions[a:b],
            rewards[a:b],
            terminated=bool(continues[b - 1] == 0),
        )
        for a, b in itertools.pairwise(bounds)
    ]
