"""What a TD-MPC training run needs to know, in one frozen record."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from koopax._errors import KoopaxError, unknown_name
from koopax.agents.config import AgentConfig
from koopax.models.latent import CORES

# The planner is compiled once for every so many steps that plans grow.
LENGTH_STEP = 5
AT_LEAST_ONE = (
    "steps",
    "horizon",
    "batch_size",
    "value_steps",
    "samples",
    "iterations",
    "elites",
    "seed_decisions",
    "schedule",
    "target_every",
    "updates_per_dispatch",
    "evaluate_every",
    "evaluate_episodes",
    "final_episodes",
)
LOSS_TERMS = ("consistency", "reward", "value")

# A plan begins at an observed state, so its context says what actions do; other cores take their own defaults.
CORE_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "koopman": {
        "action_embedding": 32,
        "action_hidden": (128,),
        "context_size": 64,
        "spectrum_options": {"highest_phase": 1.3},
    }
}


@dataclasses.dataclass(frozen=True)
class TDMPCConfig(AgentConfig):
    """Settings of `koopax.agents.train_tdmpc`; `PUBLISHED` has those of the paper, the defaults suit one CPU core."""

    kind: ClassVar[str] = "tdmpc"
    changeable: ClassVar[tuple[str, ...]] = (
        "steps",
        "evaluate_every",
        "evaluate_episodes",
        "final_episodes",
        "checkpoint_seconds",
    )
    uncompiled: ClassVar[tuple[str, ...]] = ("task", "seed", "action_repeat", "replay_size")

    task: str = "cheetah-run"
    """Environment, as `koopax.envs.make` takes it."""
    dynamics: str = "koopman"
    """Latent dynamics core: mlp (TOLD), koopman, or any other that is registered."""
    seed: int = 0
    """Seed of everything random: networks, exploration, batches, resets."""
    steps: int = 100_000
    """Environment steps; a decision takes `action_repeat` of them."""
    action_repeat: int | None = None
    """Environment steps per decision; None: as published for DMC tasks, 1 elsewhere."""
    horizon: int = 20
    """H: decisions that a plan looks ahead, and that a training window spans."""
    latent_size: int = 64
    """Width of the latent."""
    encoder_hidden: tuple[int, ...] = (256,)
    """Hidden layers of the encoder."""
    reward_hidden: tuple[int, ...] = (256,)
    """Hidden layers of the reward head, which runs at every step of every candidate."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the policy and of each Q."""
    core_options: tuple[tuple[str, Any], ...] = ()
    """Options of the core by name, over those in `CORE_OPTIONS`; pairs stand for mappings, as in `spectrum_options`."""
    discount: float = 0.99
    """γ."""
    batch_size: int = 64
    """Windows per update."""
    value_steps: int = 5
    """V: first steps of each window at which values and policy are learned; no more than H."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    core_rate: float = 1.0
    """Step size of the dynamics core relative to the rest."""
    gradient_norm: float = 10.0
    """Largest norm of a gradient."""
    decay: float = 0.5
    """ρ: weight of a step relative to the step before it in the consistency and reward losses."""
    value_decay: float = 0.5
    """The same in the losses of values and policy."""
    consistency_weight: float = 2.0
    """Weight of the consistency loss."""
    reward_weight: float = 0.5
    """Weight of the reward loss."""
    value_weight: float = 0.1
    """Weight of the value loss."""
    target_rate: float = 0.01
    """τ of the target networks' moving average."""
    target_every: int = 2
    """Updates between two steps of the target networks."""
    priority_exponent: float = 0.6
    """α of prioritised replay."""
    importance_exponent: float = 0.4
    """β of prioritised replay."""
    replay_size: int = 1_000_000
    """Rows kept, one per decision and one more per episode; the oldest are overwritten."""
    policy_std: float = 0.05
    """Standard deviation of the policy's noise in targets, losses and proposals, clipped at 0.3."""
    samples: int = 96
    """Candidates per iteration of the planner."""
    iterations: int = 3
    """Iterations of the planner."""
    elites: int = 16
    """Candidates that the plan is refitted to."""
    proposals: int = 24
    """Candidates of the policy."""
    temperature: float = 0.5
    """How much better elites count more."""
    momentum: float = 0.1
    """Share of the old plan that stays in an iteration."""
    std_start: float = 0.5
    """Lower bound of the plan's standard deviation at the start."""
    std_end: float = 0.05
    """The same at the end of the schedule."""
    schedule: int = 25_000
    """Decisions over which that bound falls linearly."""
    plan_growth: int | None = None
    """Decisions until a plan is one step longer, from 1 to H; None: as many as let it have H after the schedule."""
    seed_decisions: int = 2_000
    """Decisions with uniform actions before the first update; then as many updates at once."""
    updates_per_decision: float = 1.0
    """Updates per decision, taken after each episode."""
    updates_per_dispatch: int = 10
    """Updates in one compiled call, all on batches drawn with the priorities of its beginning."""
    evaluate_every: int = 5_000
    """Decisions between evaluations, which wait for the end of an episode."""
    evaluate_episodes: int = 2
    """Episodes per evaluation, without exploration noise."""
    final_episodes: int = 10
    """Episodes of the evaluation at the end."""
    checkpoint_seconds: float = 0.0
    """Shortest time between two checkpoints at ends of episodes; 0: after each."""

    def __post_init__(self):
        if self.dynamics not in CORES:
            raise unknown_name("dynamics", self.dynamics, list(CORES))
        for name in AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise KoopaxError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if self.plan_growth is not None and self.plan_growth < 1:
            raise KoopaxError(f"plan_growth is {self.plan_growth}; it must be at least 1.")
        if self.elites > self.samples:
            raise KoopaxError(f"{self.elites} elites can't be chosen from {self.samples} samples; take fewer elites.")
        if self.action_repeat is not None and self.action_repeat < 1:
            raise KoopaxError(f"action_repeat is {self.action_repeat}; it must be at least 1.")
        for name in ("decay", "value_decay"):
            if not 0 < getattr(self, name) <= 1:
                raise KoopaxError(f"{name} is {getattr(self, name)}; it must be above 0 and at most 1.")

    @property
    def environment(self) -> str:
        """`task`."""
        return self.task

    @property
    def valued_steps(self) -> int:
        """Steps of a window at which values are learned: `value_steps`, or all of a shorter window."""
        return min(self.value_steps, self.horizon)

    @property
    def all_core_options(self) -> dict[str, Any]:
        """The core's options: the defaults for its kind and those given."""
        given = {name: dict(value) if name.endswith("_options") else value for name, value in self.core_options}
        return {**CORE_OPTIONS.get(self.dynamics, {}), **given}

    def std_bound(self, decisions: int) -> float:
        """Lower bound of the plan's standard deviation after that many decisions."""
        return self.std_start + min(decisions / self.schedule, 1.0) * (self.std_end - self.std_start)

    def plan_length(self, decisions: int) -> int:
        """Steps that a plan looks ahead after that many decisions, from 1 to H."""
        growth = self.schedule / max(self.horizon - 1, 1) if self.plan_growth is None else self.plan_growth
        return min(1 + int(decisions / growth), self.horizon)

    def searched_length(self, decisions: int) -> int:
        """The plan's length rounded up to a multiple of `LENGTH_STEP`: candidates are no longer than they need be."""
        return min(-(-self.plan_length(decisions) // LENGTH_STEP) * LENGTH_STEP, self.horizon)

    def due_updates(self, decisions: int) -> int:
        """Updates that should have been made after that many decisions, in whole dispatches."""
        if decisions < self.seed_decisions:
            return 0
        return int(decisions * self.updates_per_decision) // self.updates_per_dispatch * self.updates_per_dispatch


# TD-MPC as published, for machines that can afford it.
PUBLISHED: Mapping[str, Any] = {
    "latent_size": 50,
    "reward_hidden": (512, 512),
    "hidden": (512, 512),
    "batch_size": 512,
    "samples": 512,
    "iterations": 6,
    "elites": 64,
    "proposals": 25,
    "value_steps": 20,
    "steps": 500_000,
    "seed_decisions": 5_000,
    "evaluate_episodes": 10,
}

# What differs between the arms of the comparison; other cores are like mlp. Plans of both grow by a step in every 6250
# decisions, so one of 20 steps is never made in less than 119k.
ARMS: Mapping[str, Mapping[str, Any]] = {
    "mlp": {"horizon": 5},
    "koopman": {"horizon": 20, "latent_size": 128, "core_rate": 3.0, "plan_growth": 6_250},
}

# With `published`, both have TD-MPC's latent and nothing beside it, and mlp is TOLD: two hidden layers of ELU.
PUBLISHED_CORES: Mapping[str, tuple[tuple[str, Any], ...]] = {
    "mlp": (("hidden", 512), ("hidden_layers", 2), ("activation", "elu")),
    "koopman": (("context_size", 0), ("action_history", 1)),
}


def tdmpc_arm(dynamics: str, *, published: bool = False, **changes: Any) -> TDMPCConfig:
    """The config of an arm, with these changes; with `published` sizes or those for one CPU core.

    Fewer samples have fewer elites: no more than half of them.
    """
    settings = {**ARMS.get(dynamics, ARMS["mlp"])}
    if published:
        settings |= {**PUBLISHED, "core_options": PUBLISHED_CORES.get(dynamics, ())}
    settings |= changes
    if "samples" in changes and "elites" not in changes:
        settings["elites"] = min(settings.get("elites", TDMPCConfig.elites), max(1, changes["samples"] // 2))
    return TDMPCConfig(dynamics=dynamics, **settings)
