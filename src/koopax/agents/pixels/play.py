"""Environments while the agent learns, and whole episodes to measure it."""

import dataclasses
from typing import Any, Protocol, runtime_checkable

import numpy as np

from koopax.agents.pixels.agent import Keys, Learner, act
from koopax.agents.pixels.config import PixelSACConfig
from koopax.agents.pixels.replay import FrameReplay
from koopax.envs.pixels import Outcome
from koopax.envs.renderers import Renderers

# Numbers of evaluation episodes start here, so that none is ever trained on.
EVALUATION_EPISODES = 1_000_000_000


def episode_seed(seed: int, env: int, episode: int) -> int:
    """The seed of an environment's episode."""
    return int(np.random.SeedSequence((seed, env, episode)).generate_state(1)[0])


def open_renderers(config: PixelSACConfig, count: int) -> Renderers:
    """That many environments of a run."""
    return Renderers(
        config.task,
        count,
        size=config.image_size,
        action_repeat=config.action_repeat,
        oversampling=config.oversampling,
        processes=config.processes,
    )


@dataclasses.dataclass
class Playing:
    """One environment's present episode, so far."""

    episode: int = 0
    """Its number."""
    value: float = 0.0
    """Its return."""
    taken: list[np.ndarray] = dataclasses.field(default_factory=list)
    """The actions in it."""


class Players:
    """The environments that are learned from; the replay takes every frame."""

    def __init__(self, config: PixelSACConfig):
        self.config = config
        self.renderers = open_renderers(config, config.num_envs)
        self.action_size = self.renderers.action_size
        self.playing = [Playing() for _ in range(config.num_envs)]

    def begin(self, replay: FrameReplay) -> None:
        """The first episode of every environment."""
        seeds = {env: episode_seed(self.config.seed, env, 0) for env in range(len(self.playing))}
        for env, frame in self.renderers.reset(seeds).items():
            replay.begin(env, frame)

    def send(self, actions: np.ndarray) -> None:
        """Begin a step with an action in every environment."""
        for playing, action in zip(self.playing, actions, strict=True):
            playing.taken.append(action)
        self.renderers.send(dict(enumerate(actions)))

    def receive(self, replay: FrameReplay) -> tuple[int, list[dict[str, Any]]]:
        """Finish the step: the environment steps it took, and the lines of the episodes that ended by it."""
        steps, lines, ended = 0, [], {}
        for env, outcome in self.renderers.receive().items():
            playing = self.playing[env]
            replay.add(env, playing.taken[-1], outcome.reward, outcome.terminated, outcome.frame)
            playing.value += outcome.reward
            steps += outcome.steps
            if outcome.ended:
                lines.append({"episode": playing.episode, "return": playing.value, "length": len(playing.taken)})
                self.playing[env] = Playing(playing.episode + 1)
                ended[env] = episode_seed(self.config.seed, env, playing.episode + 1)
        for env, frame in self.renderers.reset(ended).items():
            replay.begin(env, frame)
        return steps, lines

    def save(self) -> dict[str, np.ndarray]:
        """Arrays from which `restore` rebuilds this state."""
        state = {"episodes": np.array([p.episode for p in self.playing], np.int64)}
        state["values"] = np.array([p.value for p in self.playing])
        empty = np.zeros((0, self.action_size), np.float32)
        taken = {f"actions_{env}": np.array(p.taken) if p.taken else empty for env, p in enumerate(self.playing)}
        return state | taken

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Return to a saved state, by taking the same actions again; their frames are in the replay."""
        for env, episode in enumerate(state["episodes"]):
            self.playing[env] = Playing(int(episode), float(state["values"][env]), list(state[f"actions_{env}"]))
        seeds = {env: episode_seed(self.config.seed, env, p.episode) for env, p in enumerate(self.playing)}
        self.renderers.resume(seeds, {env: state[f"actions_{env}"] for env in seeds})

    def close(self) -> None:
        """End the processes."""
        self.renderers.close()


@runtime_checkable
class Film(Protocol):
    """Sees the first of several episodes."""

    def begin(self, renderers: Renderers, frame: np.ndarray) -> None:
        """Its first frame."""
        ...

    def see(self, renderers: Renderers, actions: np.ndarray, outcomes: dict[int, Outcome]) -> None:
        """A decision in every environment, and what came of it in those that are running."""
        ...


def evaluate(
    config: PixelSACConfig, learner: Learner, number: int, count: int, *, film: Film | None = None
) -> list[float]:
    """Returns of `count` episodes without exploration, played together; `number` tells evaluations apart."""
    renderers, stack = open_renderers(config, count), config.frame_stack
    try:
        first = EVALUATION_EPISODES + number * count
        frames = renderers.reset({i: episode_seed(config.seed, 0, first + i) for i in range(count)})
        if film is not None:
            film.begin(renderers, frames[0])
        observed = np.stack([np.stack([frames[i]] * stack) for i in range(count)])
        returns, running, key = np.zeros(count), np.ones(count, bool), Keys.of(config.seed).acting
        while running.any():
            actions = np.asarray(
                act(learner.model, learner.actor, observed, 0, config.compiled(), explore=False, key=key)
            )
            outcomes = renderers.step({int(i): actions[i] for i in np.flatnonzero(running)})
            if film is not None:
                film.see(renderers, actions, outcomes)
            for i, outcome in outcomes.items():
                observed[i] = np.concatenate([observed[i, 1:], outcome.frame[None]])
                returns[i] += outcome.reward
                running[i] = not outcome.ended
    finally:
        renderers.close()
    return returns.tolist()
