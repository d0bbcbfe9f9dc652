"""Several environments of one name, stepped together in one process, and resumable."""

from typing import NamedTuple

import numpy as np

from koopax.envs.make import action_bounds, make


class Steps(NamedTuple):
    """What one lock-step produced, a row per environment; `next_observations` are those before any reset."""

    observations: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_observations: np.ndarray


class LockStep:
    """N environments that reset themselves; episode e of environment i is always seeded by (seed, i, e).

    The state of an environment is its episode's number and the actions taken in it, so it can be saved for
    any deterministic environment, and restored by taking the same actions again.
    """

    def __init__(self, name: str, count: int, *, seed: int, unit_actions: bool = False):
        """Environments as `make` makes them."""
        self.envs = [make(name, unit_actions=unit_actions) for _ in range(count)]
        self.seed = seed
        self.low, self.high = action_bounds(self.envs[0])
        self.episodes = [0] * count
        self.history: list[list[np.ndarray]] = [[] for _ in range(count)]
        self.observations = np.stack([self._reset(i) for i in range(count)])

    def step(self, actions: np.ndarray) -> Steps:
        """Take one action [A] in every environment; actions are between `low` and `high`."""
        before = self.observations.copy()
        rows = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        after = np.stack([row[0] for row in rows])
        self.observations = after.copy()
        for i, (_, _, terminated, truncated, _) in enumerate(rows):
            self.history[i].append(actions[i])
            if terminated or truncated:
                self.episodes[i] += 1
                self.observations[i] = self._reset(i)
        return Steps(
            before,
            np.array([row[1] for row in rows], np.float32),
            np.array([row[2] for row in rows]),
            np.array([row[3] for row in rows]),
            after,
        )

    def save(self) -> dict[str, np.ndarray]:
        """Arrays from which `restore` rebuilds this state."""
        state = {f"actions_{i}": np.array(actions) for i, actions in enumerate(self.history)}
        return {"episodes": np.array(self.episodes), **state}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Return to a saved state."""
        self.episodes = [int(episode) for episode in state["episodes"]]
        for i, env in enumerate(self.envs):
            self.observations[i] = self._reset(i)
            for action in state[f"actions_{i}"]:
                self.observations[i] = env.step(action)[0]
                self.history[i].append(action)

    def close(self) -> None:
        """Close every environment."""
        for env in self.envs:
            env.close()

    def _reset(self, i: int) -> np.ndarray:
        self.history[i] = []
        sequence = np.random.SeedSequence((self.seed, i, self.episodes[i]))
        observation, _ = self.envs[i].reset(seed=int(sequence.generate_state(1)[0]))
        return observation


def episode_returns(name: str, policy, episodes: int, *, seed: int) -> np.ndarray:
    """Returns [episodes] of whole episodes of a policy, one per environment, all stepped together.

    `policy.act(observations [N, S], rng)` gives actions [N, A] in the environment's bounds.
    """
    envs = [make(name) for _ in range(episodes)]
    rng = np.random.default_rng(seed)
    seeds = np.random.SeedSequence(seed).generate_state(episodes)
    observations = np.stack([env.reset(seed=int(s))[0] for env, s in zip(envs, seeds, strict=True)])
    returns = np.zeros(episodes)
    running = np.arange(episodes)
    while len(running):
        actions = policy.act(observations[running], rng)
        ended = np.zeros(len(running), bool)
        for row, i in enumerate(running):
            observations[i], reward, terminated, truncated, _ = envs[i].step(actions[row])
            returns[i] += float(reward)
            ended[row] = terminated or truncated
        running = running[~ended]
    for env in envs:
        env.close()
    return returns
