"""What a SAC training run needs to know, in one frozen record."""

import dataclasses
from typing import ClassVar

from koopax._errors import KoopaxError, unknown_name
from koopax.agents.config import AgentConfig

CRITIC_NORMS = ("none", "layer", "batch")


@dataclasses.dataclass(frozen=True)
class SACConfig(AgentConfig):
    """Settings of `koopax.agents.train_sac`; the defaults trained the shipped experts."""

    kind: ClassVar[str] = "sac"
    changeable: ClassVar[tuple[str, ...]] = (
        "steps",
        "evaluate_every",
        "evaluate_episodes",
        "snapshot_every",
        "checkpoint_seconds",
    )

    env: str = "HalfCheetah-v5"
    """Environment name, as `koopax.envs.make` takes it."""
    seed: int = 0
    """Seed of everything random: networks, exploration, batches, resets."""
    steps: int = 1_000_000
    """Environment steps, over all environments together."""
    num_envs: int = 8
    """Environments stepped in lock-step, so that one actor call serves them all."""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of the actor and of each critic."""
    batch_size: int = 256
    """Transitions per update."""
    discount: float = 0.99
    """γ."""
    learning_rate: float = 1e-3
    """Adam's step size for the critics, the actor and the temperature."""
    adam_b1: float = 0.5
    """Adam's first-moment decay; 0.5 suits batch-normalised critics, 0.9 the others."""
    critic_norm: str = "batch"
    """Normalisation in the critics: none, layer, or batch (as in CrossQ: no target network, joint pass)."""
    target_rate: float = 0.005
    """τ of the target network's moving average; unused with critic_norm="batch"."""
    policy_delay: int = 3
    """Critic updates per actor and temperature update."""
    updates_per_step: float = 0.25
    """Critic updates per environment step, over all environments together."""
    lock_steps: int = 6
    """Lock-steps of the environments between two dispatches of updates."""
    initial_temperature: float = 0.1
    """α at the start."""
    target_entropy: float | None = None
    """Entropy that the temperature aims at; None: minus the number of action components."""
    random_steps: int = 5_000
    """Environment steps with uniform actions before the first update."""
    replay_size: int = 1_000_000
    """Transitions kept, rounded up to whole dispatches; the oldest are overwritten."""
    normalise_observations: bool = True
    """Whether the networks see observations scaled by the statistics of all observations so far."""
    evaluate_every: int = 10_000
    """Environment steps between evaluations."""
    evaluate_episodes: int = 5
    """Deterministic episodes per evaluation."""
    snapshot_every: int = 2_000
    """Environment steps between snapshots of the actor, kept for ladders of policies; 0 for none."""
    checkpoint_seconds: float = 180.0
    """Seconds between checkpoints."""

    def __post_init__(self):
        if self.critic_norm not in CRITIC_NORMS:
            raise unknown_name("critic_norm", self.critic_norm, CRITIC_NORMS)
        for name in ("steps", "num_envs", "batch_size", "policy_delay", "lock_steps", "replay_size"):
            if getattr(self, name) < 1:
                raise KoopaxError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if self.updates_per_dispatch < 1 or self.updates_per_dispatch % self.policy_delay:
            raise KoopaxError(
                f"num_envs × lock_steps × updates_per_step is {self.steps_per_dispatch * self.updates_per_step:g}; "
                f"it must be a positive multiple of policy_delay ({self.policy_delay})."
            )

    @property
    def environment(self) -> str:
        """Where it acts: `env`."""
        return self.env

    @property
    def steps_per_dispatch(self) -> int:
        """Environment steps between two dispatches of updates."""
        return self.num_envs * self.lock_steps

    @property
    def updates_per_dispatch(self) -> int:
        """Critic updates in one compiled call."""
        return round(self.steps_per_dispatch * self.updates_per_step)

    @property
    def replay_capacity(self) -> int:
        """`replay_size` rounded up to a multiple of `steps_per_dispatch`."""
        return -(-self.replay_size // self.steps_per_dispatch) * self.steps_per_dispatch
