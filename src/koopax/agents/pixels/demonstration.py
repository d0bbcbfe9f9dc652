"""A trained agent at play: what it reaches, the frames it sees, and how well its representations are predicted."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from koopax._checkpoint import restore_tree
from koopax._errors import KoopaxError
from koopax._types import Array, Float, UInt8
from koopax.agents.pixels.agent import make_learner, stacked
from koopax.agents.pixels.config import PixelSACConfig
from koopax.agents.pixels.networks import Model
from koopax.agents.pixels.play import evaluate
from koopax.agents.run import load_checkpoint, read_config
from koopax.envs.pixels import Outcome
from koopax.envs.renderers import Renderers

PICTURE = (320, 240)
"""Width and height of the pictures of the environment."""


@dataclasses.dataclass(frozen=True)
class PixelDemonstration:
    """Episodes without exploration; frames, actions and rewards are those of the first of them."""

    task: str
    """The environment."""
    dynamics: str
    """The core that predicts representations, or none."""
    decisions: int
    """How long the agent had learned."""
    frame_stack: int
    """Frames that an observation consists of."""
    returns: list[float]
    """The return of each episode."""
    ms_per_decision: float
    """Median milliseconds from one decision to the next, drawing included, divided by the number of episodes."""
    frames: UInt8[np.ndarray, "moments size size 3"]
    """What reached the agent, from the first frame on."""
    pictures: UInt8[np.ndarray, "moments height width 3"]
    """The environment at the same moments, large enough for people."""
    actions: Float[np.ndarray, "time action"]
    """What it did."""
    rewards: Float[np.ndarray, " time"]
    """What it got."""
    prediction_errors: list[float]
    """Of predicted representations after 1, 2, … decisions, see `prediction_errors`; empty without a core."""

    def to_json(self) -> dict[str, Any]:
        """What `koopax agent play --json` prints: numbers alone."""
        told = ("task", "dynamics", "decisions", "returns", "ms_per_decision", "prediction_errors")
        return {name: getattr(self, name) for name in told} | {"mean_return": float(np.mean(self.returns))}


class _Film:
    """Keeps what happens in the first environment, and when."""

    def __init__(self) -> None:
        self.frames: list[np.ndarray] = []
        self.pictures: list[np.ndarray] = []
        self.actions: list[np.ndarray] = []
        self.rewards: list[float] = []
        self.times: list[float] = []

    def begin(self, renderers: Renderers, frame: np.ndarray) -> None:
        """The first frame."""
        self.frames.append(frame)
        self.pictures.append(renderers.draw(0, *PICTURE))

    def see(self, renderers: Renderers, actions: np.ndarray, outcomes: dict[int, Outcome]) -> None:
        """A decision and what it led to."""
        self.times.append(time.perf_counter())
        if 0 not in outcomes:
            return
        self.actions.append(actions[0])
        self.rewards.append(outcomes[0].reward)
        self.frames.append(outcomes[0].frame)
        self.pictures.append(renderers.draw(0, *PICTURE))


def demonstrate(folder: Path, *, episodes: int = 1) -> PixelDemonstration:
    """Let the agent of a run folder play; as many episodes as in its last evaluation are those of that evaluation."""
    if episodes < 1:
        raise KoopaxError(f"episodes is {episodes}: let it play 1 or more.")
    config, checkpoint = read_config(folder, PixelSACConfig), load_checkpoint(folder)
    progress = checkpoint.header["progress"]
    action_size = checkpoint.arrays["environments/actions_0"].shape[1]
    like = jax.eval_shape(lambda: make_learner(config, action_size))
    learner, film = restore_tree("learner", like, checkpoint.arrays), _Film()
    returns = evaluate(config, learner, progress["environment_steps"], episodes, film=film)
    frames, actions = np.stack(film.frames), np.stack(film.actions)
    spans = np.diff(film.times)
    return PixelDemonstration(
        task=config.task,
        dynamics=config.dynamics,
        decisions=progress["decisions"],
        frame_stack=config.frame_stack,
        returns=returns,
        ms_per_decision=1e3 * float(np.median(spans)) / episodes if len(spans) else float("nan"),
        frames=frames,
        pictures=np.stack(film.pictures),
        actions=actions,
        rewards=np.array(film.rewards),
        prediction_errors=prediction_errors(learner.model, frames, actions, config) if config.predicts else [],
    )


def prediction_errors(
    model: Model, frames: UInt8[np.ndarray, "moments size size 3"], actions: np.ndarray, config: PixelSACConfig
) -> list[float]:
    """Mean of ‖ẑ_{t+k} − z_{t+k}‖² over an episode, divided by the variance of z in it, for k = 1 … K.

    1 is the error of predicting the episode's mean.
    """
    assert model.prediction is not None
    seen = np.stack(
        [frames[np.maximum(np.arange(len(frames)) - back, 0)] for back in range(config.frame_stack)][::-1], 1
    )
    horizon = min(config.horizon, len(actions))
    starts = np.arange(len(actions) - horizon + 1)

    @jax.jit
    def measured(model: Model, seen: Array, actions: Array) -> Array:
        assert model.prediction is not None
        z = model.representation(stacked(seen))
        windows = actions[starts[None] + np.arange(horizon)[:, None]]
        predicted = model.prediction(z[starts], windows, stride=1, first=jnp.zeros((), jnp.int32))
        true = z[starts[None] + 1 + np.arange(horizon)[:, None]]
        return jnp.mean(jnp.sum((predicted - true) ** 2, axis=-1), axis=1) / jnp.sum(jnp.var(z, axis=0))

    return np.asarray(measured(model, seen, actions), float).tolist()
