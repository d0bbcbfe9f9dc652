"""A trained agent at play: what it reaches, what its plans foresee, and how far its model can be trusted."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from koopax._errors import KoopaxError
from koopax._types import Array, Float
from koopax.agents.run import load_checkpoint, read_config
from koopax.agents.tdmpc.agent import Learner
from koopax.agents.tdmpc.config import TDMPCConfig
from koopax.agents.tdmpc.losses import relative_errors
from koopax.agents.tdmpc.networks import WorldModel
from koopax.agents.tdmpc.planning_model import AgentModel
from koopax.agents.tdmpc.play import evaluation_episode, play_together
from koopax.agents.tdmpc.tasks import reset_seed
from koopax.agents.tdmpc.train import restore_state
from koopax.data.episodes import Episode
from koopax.planning.planner import Decision

# Windows of an episode that the model's error is measured on.
WINDOWS = 128


@dataclasses.dataclass(frozen=True)
class Demonstration:
    """Episodes without exploration; what was foreseen is that of the first of them."""

    task: str
    """The environment."""
    dynamics: str
    """The latent core."""
    decisions: int
    """How long the agent had learned."""
    plan_length: int
    """Steps that its plans look ahead."""
    action_repeat: int | None
    """Environment steps per decision, if not the published ones."""
    reset_seed: int
    """What the environment was reset with for the first episode."""
    ms_per_decision: float
    """Median milliseconds of a decision for all episodes together, divided by their number."""
    episodes: list[Episode]
    """What happened."""
    features: Float[np.ndarray, "moments feature"]
    """What the model reads of each observation of the first episode."""
    foreseen_features: Float[np.ndarray, "time points feature"]
    """The same along the plan of each decision, from the observation on."""
    foreseen_rewards: Float[np.ndarray, "time plan"]
    """Rewards that the plan of each decision expects."""
    model_errors: list[float]
    """Of the model at 1, 2, … steps under the actions taken, as `ModelLoss.consistency_errors`, but of h, not h⁻."""

    @property
    def returns(self) -> list[float]:
        """The return of each episode."""
        return [float(np.sum(episode.rewards, dtype=float)) for episode in self.episodes]

    def to_json(self) -> dict[str, Any]:
        """What `koopax agent play --json` prints: numbers alone."""
        told = ("task", "dynamics", "decisions", "plan_length", "ms_per_decision", "model_errors")
        returns = self.returns
        return {
            **{name: getattr(self, name) for name in told},
            "returns": returns,
            "mean_return": float(np.mean(returns)),
            "reward_errors": self.reward_errors(),
        }

    def reward_errors(self) -> list[float]:
        """Mean distance of the rewards that plans expected of 0, 1, … steps later to those that came.

        Later steps were planned again before they came, so this is no error of the model alone.
        """
        rewards = self.episodes[0].rewards
        spans = [(k, len(rewards) - k) for k in range(min(self.plan_length, len(rewards)))]
        return [float(np.mean(np.abs(self.foreseen_rewards[:n, k] - rewards[k:]))) for k, n in spans]


def demonstrate(folder: Path, *, episodes: int = 1, plan_length: int | None = None) -> Demonstration:
    """Let the agent of a run folder play; plans are as long as at the end of its training, or of `plan_length`.

    As many episodes as in its last evaluation are those of that evaluation.
    """
    recorded, checkpoint = read_config(folder, TDMPCConfig), load_checkpoint(folder)
    if episodes < 1:
        raise KoopaxError(f"episodes is {episodes}: let it play 1 or more.")
    config = _with_length(recorded, plan_length)
    learner, _ = restore_state(recorded, checkpoint)
    decisions = checkpoint.header["progress"]["decisions"]
    errors = checkpoint.header["counters"].get("model_errors", [])
    plans, times = [], []

    def see(observations: np.ndarray, decision: Decision, seconds: float) -> None:
        times.append(seconds)
        plans.append((observations[0].copy(), np.asarray(decision.state.mean[0])))

    played = play_together(config, learner, decisions, episodes, errors, see=see)
    first = played[0]
    length = config.plan_length(decisions, errors)
    observed, planned = (np.stack(part)[: len(first.rewards)] for part in zip(*plans, strict=True))
    foreseen, rewards = foresee(learner, observed, planned[:, :length])
    return Demonstration(
        task=config.task,
        dynamics=config.dynamics,
        decisions=decisions,
        plan_length=length,
        action_repeat=config.action_repeat,
        reset_seed=reset_seed(config.seed, evaluation_episode(decisions, episodes)),
        # The first decision compiles.
        ms_per_decision=1e3 * float(np.median(times[1:] or times)) / episodes,
        episodes=played,
        features=np.asarray(_features(learner.model, first.observations)),
        foreseen_features=np.asarray(foreseen),
        foreseen_rewards=np.asarray(rewards),
        model_errors=model_errors(learner.model, first, min(config.horizon, len(first.rewards))),
    )


def _with_length(config: TDMPCConfig, length: int | None) -> TDMPCConfig:
    """The settings with plans of that length from the first decision on."""
    if length is None:
        return config
    if not 1 <= length <= config.horizon:
        raise KoopaxError(f"plan_length is {length}: the agent was trained for plans of 1 to {config.horizon} steps.")
    return dataclasses.replace(config, horizon=length, plan_growth=1, plan_trust=None)


@jax.jit
def foresee(
    learner: Learner, observations: Float[Array, "time state"], plans: Float[Array, "time plan action"]
) -> tuple[Float[Array, "time points feature"], Float[Array, "time plan"]]:
    """What the model expects of each plan from its observation on: features x_0 … x_L, and rewards."""
    agent = AgentModel(learner.model, learner.policy, 0.0)

    def one(observation: Array, plan: Array) -> tuple[Array, Array]:
        actions = plan[:, None]
        latents = agent.rollout(agent.encode(observation, horizon=len(plan)), actions)
        return learner.model.features(latents)[:, 0], agent.reward(latents, actions)[:, 0]

    return jax.vmap(one)(observations, plans)


@jax.jit
def _features(model: WorldModel, observations: Float[Array, "time state"]) -> Float[Array, "time feature"]:
    return model.features(model.encoder(observations))


def model_errors(model: WorldModel, episode: Episode, horizon: int) -> list[float]:
    """The model's error after 1 … H steps under the actions taken, over windows of an episode, as `relative_errors`."""
    starts = np.unique(np.linspace(0, len(episode.rewards) - horizon, WINDOWS).astype(int))
    steps = np.arange(horizon + 1)[:, None]
    observations, actions = episode.observations[starts + steps], episode.actions[starts + steps[:-1]]

    @jax.jit
    def measured(model: WorldModel, observations: Array, actions: Array) -> Array:
        predicted = model.features(model.unroll(model.encoder(observations[0]), actions))[1:]
        goals = model.features(model.encoder(observations[1:]))
        return relative_errors(predicted, goals, jax.numpy.ones(actions.shape[:2]))

    return np.asarray(measured(model, observations, actions), float).tolist()
