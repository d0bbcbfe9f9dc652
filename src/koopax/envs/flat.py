"""Observations as flat float32 vectors, whatever the environment returns."""

from typing import Any

import gymnasium
import numpy as np


class FlatObservations(gymnasium.Wrapper):
    """Flattens dict and array observations to float32 vectors [S], and actions to the env's own dtype.

    Dict entries are joined in the space's own order. A pixel wrapper can be put under or beside it: it
    leaves `render` and everything else of the environment alone.
    """

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self._source = env.observation_space
        space = gymnasium.spaces.flatten_space(self._source)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, space.shape, np.float32)
        source = env.action_space
        assert isinstance(source, gymnasium.spaces.Box)
        self.action_space = gymnasium.spaces.Box(
            source.low.astype(np.float32), source.high.astype(np.float32), dtype=np.float32
        )
        self._action_dtype = source.dtype
        self._plain = isinstance(self._source, gymnasium.spaces.Box)
        self._first_seed: int | None = None

    def seed_first_reset(self, seed: int) -> None:
        """Use this seed at the next `reset()` that is called without one."""
        self._first_seed = seed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """As in Gymnasium, with a flat observation."""
        seed, self._first_seed = (self._first_seed if seed is None else seed), None
        observation, info = self.env.reset(seed=seed, options=options)
        return self._flatten(observation), info

    def step(self, action: np.ndarray):
        """As in Gymnasium, with a flat observation."""
        observation, reward, terminated, truncated, info = self.env.step(np.asarray(action, self._action_dtype))
        return self._flatten(observation), float(reward), terminated, truncated, info

    def _flatten(self, observation: Any) -> np.ndarray:
        if not self._plain:
            observation = gymnasium.spaces.flatten(self._source, observation)
        return np.asarray(observation, np.float32).reshape(-1)
