"""A plant of `koopax.envs.plants` as a Gymnasium environment."""

from typing import Any

import gymnasium
import numpy as np

from koopax.envs.plants import PLANTS


class PlantEnv(gymnasium.Env):
    """Observes the whole state; the one action is the force."""

    metadata = {"render_modes": []}  # noqa: RUF012  (as Gymnasium has it)

    def __init__(self, plant: str):
        """One of `PLANTS`."""
        self.plant = PLANTS[plant]
        size = len(self.plant.start)
        force = np.full(1, self.plant.force, np.float32)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = gymnasium.spaces.Box(-force, force, dtype=np.float32)
        self.state = np.zeros(size)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """A state drawn evenly, or `options["state"]`."""
        super().reset(seed=seed)
        drawn = self.np_random.uniform(-1, 1, len(self.state)) * self.plant.start
        self.state = np.asarray((options or {}).get("state", drawn), float)
        return self.state.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move by a step; a force outside its range is clipped."""
        plant = self.plant
        force = float(np.clip(action[0], -plant.force, plant.force))
        self.state = plant.advance(self.state, np.float64(force))
        cost = float(np.sum(np.asarray(plant.state_cost) * self.state**2)) + plant.action_cost * force**2
        ended = bool((np.abs(self.state) > plant.ends).any())
        return self.state.astype(np.float32), -cost, ended, False, {}
