"""A task: an environment with actions in [−1, 1]ᴬ that are repeated, and episodes that can be asked for by number."""

from typing import NamedTuple

import numpy as np

from koopax.envs import make
from koopax.envs.repeat import published_action_repeat


class Outcome(NamedTuple):
    """What a decision led to; the reward is the sum over `steps` environment steps."""

    observation: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    steps: int

    @property
    def ended(self) -> bool:
        """Whether the episode is over, for either reason."""
        return self.terminated or self.truncated


def reset_seed(seed: int, episode: int) -> int:
    """The seed that the environment is reset with for an episode of a run with that seed."""
    return int(np.random.SeedSequence((seed, episode)).generate_state(1)[0])


class Task:
    """One environment; `reset(e)` always starts the same episode for the same seed and number."""

    def __init__(self, name: str, *, seed: int, action_repeat: int | None = None):
        self.env = make(name, unit_actions=True)
        self.seed = seed
        self.action_repeat = action_repeat or published_action_repeat(self.env.spec.id)
        self.state_size = self.env.observation_space.shape[0]
        self.action_size = self.env.action_space.shape[0]

    def reset(self, episode: int) -> np.ndarray:
        """The first observation of an episode."""
        return self.env.reset(seed=reset_seed(self.seed, episode))[0]

    def step(self, action: np.ndarray) -> Outcome:
        """Repeat an action in [−1, 1]ᴬ until the repeats are done or the episode is over."""
        total, steps = 0.0, 0
        while True:
            observation, reward, terminated, truncated, _ = self.env.step(action)
            total, steps = total + reward, steps + 1
            if terminated or truncated or steps == self.action_repeat:
                return Outcome(observation, total, terminated, truncated, steps)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
