"""Rolling a policy out in several environments at once, so that the outcome depends on nothing but the seed.

Episodes are numbered; number e resets its environment with a seed made from (seed, stage, e). Each group of consecutive
episodes runs in lock-step with one batch of actions per step. The batch keeps its size when episodes end, because the
rounding of a matrix product depends on its shape: so the same group gives the same bits in any process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from koopax._errors import KoopaxError
from koopax.collection.naming import ComponentNames, component_names
from koopax.collection.policies import Policy, resolve_policy
from koopax.data.episode import Episode

DEFAULT_LIMIT = 1000
"""Longest episode in an environment that has no time limit of its own."""
OVERSAMPLING = 2
"""Frames are drawn so many times as large as they are kept."""
_GROUP_SIZE = 8
_GROUPS = 8


@dataclass(frozen=True)
class Stage:
    """A number of steps to collect with one policy."""

    policy: "str | Policy"
    """A name that `koopax.collection.policies.resolve_policy` knows, or a policy that can be pickled."""
    steps: int
    """Number of steps, exactly."""
    noise: float = 0.0
    """Standard deviation of Gaussian noise on the actions, as a fraction of half their range."""
    source: str = "data"
    """Name of these episodes' source."""


class EnvironmentInfo(NamedTuple):
    """What collection needs to know of an environment."""

    state_size: int
    frame_shape: tuple[int, int, int] | None
    low: np.ndarray
    high: np.ndarray
    limit: int
    step_seconds: float | None
    names: ComponentNames


class Collector:
    """Environments of one id, and the policies of all stages."""

    def __init__(self, environment: str, stages: list[Stage], seed: int, image_size: int | None = None) -> None:
        from koopax.envs import action_bounds

        self._environment, self._image_size = environment, image_size
        self._envs = [self._make()]
        env = self._envs[0].env
        low, high = action_bounds(env)
        limit = getattr(env.spec, "max_episode_steps", None) or DEFAULT_LIMIT
        step_seconds = getattr(env.unwrapped, "dt", None)
        self.info = EnvironmentInfo(
            state_size=env.observation_space.shape[0],
            frame_shape=None if image_size is None else (image_size, image_size, 3),
            low=low,
            high=high,
            limit=int(limit),
            step_seconds=float(step_seconds) if step_seconds else None,
            names=component_names(env) if image_size is None else ComponentNames(),
        )
        self.stages = stages
        self.seed = seed
        self._policies = [s.policy if not isinstance(s.policy, str) else self._resolve(s.policy) for s in stages]

    def _make(self) -> "_Watched":
        from koopax.envs import Camera, make, make_drawing

        if self._image_size is None:
            return _Watched(make(self._environment), None)
        env = make_drawing(self._environment)
        return _Watched(env, Camera(self._environment, env, size=self._image_size, oversampling=OVERSAMPLING))

    def _resolve(self, name: str) -> Policy:
        return resolve_policy(name, self.info.low, self.info.high)

    def run(self, stage: int, group: int, stop: Callable[[], bool], report: Callable[[int], None]) -> list[Episode]:
        """The episodes of a group; `stop` ends them early, `report` is told of every few steps taken."""
        size = group_size(self.stages[stage].steps, self.info.limit)
        while len(self._envs) < size:
            self._envs.append(self._make())
        envs = self._envs[:size]
        limit = min(self.info.limit, self.stages[stage].steps)
        numbers = range(group * size, (group + 1) * size)
        buffers = _Buffers(size, limit, self.info)
        for i, (env, number) in enumerate(zip(envs, numbers, strict=True)):
            seed = np.random.SeedSequence(self.seed, spawn_key=(stage, number)).generate_state(1)[0]
            buffers.begin(i, *env.reset(int(seed)))
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(stage, group, 1)))
        taken = 0
        for step in range(limit):
            if not buffers.running.any() or stop():
                break
            actions = self._act(stage, buffers.states, rng)
            running = np.flatnonzero(buffers.running).tolist()
            for i in running:
                buffers.add(i, actions[i], envs[i].step(actions[i]))
            taken += len(running)
            if step % 64 == 63:
                report(taken)
                taken = 0
        report(taken)
        return buffers.rollouts()

    def _act(self, stage: int, observations: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        low, high, noise = self.info.low, self.info.high, self.stages[stage].noise
        actions = np.asarray(self._policies[stage].act(observations, rng), np.float32)
        if actions.shape != (len(observations), len(low)):
            raise KoopaxError(
                f"the policy returned actions of shape {actions.shape} for {len(observations)} observations: "
                f"it must return {(len(observations), len(low))}."
            )
        if noise:
            actions = actions + noise * 0.5 * (high - low) * rng.standard_normal(actions.shape, dtype=np.float32)
        if not np.isfinite(actions).all():
            raise KoopaxError("the policy returned an action that is not finite: check its weights and observations.")
        return np.clip(actions, low, high).astype(np.float32)


class _Outcome(NamedTuple):
    """What a step led to: the state, which policies see, and what is kept of it, the state itself or a frame."""

    state: np.ndarray
    observation: np.ndarray
    reward: float
    terminated: bool
    truncated: bool


class _Watched(NamedTuple):
    """An environment, and the camera that looks at it where frames are kept."""

    env: Any
    camera: Any

    def reset(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        state = self.env.reset(seed=seed)[0]
        return state, self._kept(state)

    def step(self, action: np.ndarray) -> _Outcome:
        state, reward, terminated, truncated, _ = self.env.step(action)
        return _Outcome(state, self._kept(state), reward, terminated, truncated)

    def _kept(self, state: np.ndarray) -> np.ndarray:
        return state if self.camera is None else self.camera.frame()


class _Buffers:
    """Room for a group of episodes."""

    def __init__(self, size: int, limit: int, info: EnvironmentInfo) -> None:
        self.states = np.zeros((size, info.state_size), np.float32)  # what policies see, also where frames are kept
        shape, kind = ((info.state_size,), np.float32) if info.frame_shape is None else (info.frame_shape, np.uint8)
        self.observations = np.zeros((size, limit + 1, *shape), kind)
        self.actions = np.zeros((size, limit, len(info.low)), np.float32)
        self.rewards = np.zeros((size, limit), np.float32)
        self.lengths = np.zeros(size, np.int64)
        self.terminated = np.zeros(size, bool)
        self.running = np.ones(size, bool)

    def begin(self, i: int, state: np.ndarray, observation: np.ndarray) -> None:
        self.states[i], self.observations[i, 0] = state, observation

    def add(self, i: int, action: np.ndarray, outcome: "_Outcome") -> None:
        self.states[i], observation, reward, terminated, truncated = outcome
        step = self.lengths[i]
        self.actions[i, step] = action
        self.rewards[i, step] = reward
        self.observations[i, step + 1] = observation
        self.lengths[i] += 1
        self.terminated[i] = terminated
        self.running[i] = not (terminated or truncated)

    def rollouts(self) -> list[Episode]:
        return [
            Episode(
                self.observations[i, : n + 1].copy(),
                self.actions[i, :n].copy(),
                self.rewards[i, :n].copy(),
                terminated=bool(end),
            )
            for i, (n, end) in enumerate(zip(self.lengths, self.terminated, strict=True))
        ]


def group_size(steps: int, limit: int) -> int:
    """Episodes that run in lock-step: up to 8, and few enough that there are groups for several workers."""
    return max(1, min(_GROUP_SIZE, steps // (_GROUPS * limit)))
