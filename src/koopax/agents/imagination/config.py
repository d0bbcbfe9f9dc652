"""What a training in imagination needs to know, in one frozen record."""

import dataclasses
from typing import ClassVar

from koopax._errors import KoopaxError
from koopax.agents.config import AgentConfig
from koopax.agents.sac.config import SACConfig


@dataclasses.dataclass(frozen=True)
class ImaginationConfig(AgentConfig):
    """Settings of `koopax.agents.train_imagination`."""

    kind: ClassVar[str] = "sac-imagination"
    changeable: ClassVar[tuple[str, ...]] = ("steps", "evaluate_every", "evaluate_episodes", "checkpoint_seconds")
    uncompiled: ClassVar[tuple[str, ...]] = ("env", "runs")

    env: str = "HalfCheetah-v5"
    """Where the policy is judged; no step of it is learned from."""
    runs: tuple[str, ...] = ()
    """Run folders of the models, all trained on the same data; several of them may disagree."""
    seed: int = 0
    """Seed of everything random: networks, imagination, batches, evaluations."""
    steps: int = 250_000
    """Steps in imagination."""
    rollout_length: int = 5
    """Steps of an imagined rollout; each begins at a state of the data."""
    rollouts: int = 500
    """Rollouts that are imagined at a time."""
    updates_per_step: float = 0.1
    """Updates per imagined step."""
    imagined_share: float = 0.5
    """Of the transitions in a batch, how many are imagined; the others are the data's."""
    penalty: float = 1.0
    """How much of the models' disagreement is taken from an imagined reward, in standard deviations of a reward for
    every standard deviation of the states; 0 for a single model."""
    clone_updates: int = 2_000
    """Updates of the actor towards the data's actions before anything is imagined: behaviour cloning."""
    clone_weight: float = 0.5
    """Weight of the data's actions beside the values in the actor's loss; 0 for SAC as it is."""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of the actor and of each critic."""
    batch_size: int = 256
    """Transitions per update."""
    discount: float = 0.99
    """γ."""
    learning_rate: float = 3e-4
    """Adam's step size."""
    target_rate: float = 0.005
    """τ of the target networks."""
    remembered: int = 20
    """How many times `rollouts` of imagination are kept."""
    evaluate_every: int = 50_000
    """Imagined steps between evaluations in the environment."""
    evaluate_episodes: int = 5
    """Deterministic episodes per evaluation."""
    checkpoint_seconds: float = 180.0
    """Seconds between checkpoints."""

    def __post_init__(self) -> None:
        for name in ("steps", "rollout_length", "rollouts", "batch_size", "remembered", "evaluate_every"):
            if getattr(self, name) < 1:
                raise KoopaxError(f"{name} is {getattr(self, name)}: use 1 or more.")
        for name in ("penalty", "clone_updates", "clone_weight"):
            if not getattr(self, name) >= 0:
                raise KoopaxError(f"{name} is {getattr(self, name)}: use 0 or more.")
        if not 0 <= self.imagined_share <= 1:
            raise KoopaxError(f"imagined_share is {self.imagined_share}: use a share from 0 to 1.")
        if self.updates_per_dispatch < 1:
            raise KoopaxError(f"updates_per_step is {self.updates_per_step}: use more, for an update at a time.")

    @property
    def environment(self) -> str:
        """Where it acts: `env`."""
        return self.env

    @property
    def steps_per_dispatch(self) -> int:
        """Imagined steps between two dispatches of updates."""
        return self.rollouts * self.rollout_length

    @property
    def updates_per_dispatch(self) -> int:
        """Updates in one compiled call."""
        return round(self.steps_per_dispatch * self.updates_per_step)

    @property
    def imagined_batch(self) -> int:
        """Imagined transitions in a batch."""
        return round(self.imagined_share * self.batch_size)

    def sac(self) -> SACConfig:
        """The settings of what learns: critics with layer normalisation and target networks."""
        return SACConfig(
            seed=self.seed,
            hidden_sizes=self.hidden_sizes,
            batch_size=self.batch_size,
            discount=self.discount,
            learning_rate=self.learning_rate,
            adam_b1=0.9,
            critic_norm="layer",
            target_rate=self.target_rate,
            policy_delay=1,
            num_envs=1,
            lock_steps=1,
            updates_per_step=1.0,
            replay_size=self.steps_per_dispatch * self.remembered,
        )
