"""What a TD-MPC training run needs to know, in one frozen record."""

import dataclasses
from collections.abc import Mapping, Sequence
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
    "return_steps",
    "samples",
    "iterations",
    "elites",
    "critics",
    "value_points",
    "seed_decisions",
    "schedule",
    "target_every",
    "updates_per_dispatch",
    "evaluate_every",
    "evaluate_episodes",
    "final_episodes",
)
LOSS_TERMS = ("consistency", "reward", "value")
LATENT_NORMS = ("none", "layer", "simplex")
REFRESHED = ("context", "latent")
# Cores whose rollout can begin again at any of their latents.
MARKOVIAN = ("koopman", "mlp", "gru", "linear")

# What an action does depends on where a plan has come to, which a pilot tells; other cores take their own defaults.
CORE_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "koopman": {
        "action_embedding": 16,
        "action_hidden": (64,),
        "pilot_modes": 16,
        "spectrum_options": {"highest_phase": 1.3},
    }
}
# What a recorded run has that says nothing of it.
FORMER_CORE_OPTIONS: Mapping[str, Mapping[str, Any]] = {"koopman": {"action_embedding": 32}}


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
    """Options of the core by name, over those in `CORE_OPTIONS`, of which None takes one back; pairs stand for
    mappings, as in `spectrum_options`."""
    reader: tuple[int, ...] | None = None
    """Layers of a network that reads off a latent what values, policy and the consistency loss see; the last one is as
    wide as what is read. None: they see the latent."""
    latent_norm: str = "none"
    """How what is read is normalised: not, by its mean and variance, or as simplices of 8 (SimNorm)."""
    latent_bound: float | None = None
    """What the root mean square of what is read stays below; what is small stays what it is. None: nothing."""
    refresh_every: int | None = None
    """Steps of a rollout after which `refresh` is made anew of what the core predicts; None: never."""
    refresh: str = "context"
    """What is made anew: the context, or all of the latent, which takes the place of encoding a state again."""
    critics: int = 2
    """Q heads; of more than two, two drawn for each update give its targets, and the first two value plans."""
    value_head: tuple[int, ...] | None = None
    """Hidden layers of V(x), which learns what the target Qs say of the policy's actions and values plans in place of
    Qs and policy, at a fraction of their cost; None: they do it."""
    discount: float = 0.99
    """γ."""
    batch_size: int = 128
    """Windows per update."""
    value_steps: int = 2
    """V: first steps of each window at which values and policy are learned; no more than H."""
    return_steps: int = 1
    """n: rewards of a window that a value's target adds up before it bootstraps; the last of the V steps must have n
    left of the window."""
    loss_steps: int | None = None
    """Steps of each window at which consistency and reward are learned: its first V, and the others drawn anew for each
    update; None, or H and more: all."""
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
    std_limit: float = 2.0
    """Standard deviation of candidates in the first iteration, and its upper bound later."""
    std_decay: float | None = None
    """What bounds of that deviation are multiplied by from one step of a plan to the next; None: nothing."""
    noise_exponent: float = 0.0
    """β of candidates' noise along time: 0 is white, 2 a random walk."""
    plan_lambda: float = 1.0
    """λ of the return that plans are ranked by, a mean of h-step returns; 1: that of the whole plan alone."""
    value_points: int = 1
    """Steps of a plan at which it is valued for that mean, evenly spaced; the last one is always among them."""
    value_at: tuple[int, ...] | None = None
    """These steps instead, in ascending order up to H; those beyond the end of a shorter plan fall on it."""
    std_start: float = 0.5
    """Lower bound of the plan's standard deviation at the start."""
    std_end: float = 0.05
    """The same at the end of the schedule."""
    schedule: int = 25_000
    """Decisions over which that bound falls linearly."""
    plan_growth: int | None = None
    """Decisions until a plan is one step longer, from 1 to H; None: as many as let it have H after the schedule."""
    plan_trust: float | None = None
    """Largest consistency error, relative to the latents' variance, of a step that plans may have; None: any."""
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
        for name in ("plan_growth", "refresh_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise KoopaxError(f"{name} is {value}; it must be at least 1.")
        for name in ("reader", "value_head"):
            layers = getattr(self, name)
            if layers is not None and min(layers, default=0) < 1:
                raise KoopaxError(f"{name} is {layers}; give it one layer or more, each of width 1 or more.")
        at = self.value_at
        if at is not None and (not at or at[0] < 1 or list(at) != sorted(set(at)) or at[-1] < self.horizon):
            raise KoopaxError(f"value_at is {at}; give steps of a plan in ascending order, up to {self.horizon}.")
        if self.loss_steps is not None and self.loss_steps <= self.valued_steps < self.horizon:
            raise KoopaxError(
                f"loss_steps is {self.loss_steps}; values are learned at {self.valued_steps} steps, so give it more."
            )
        if self.valued_steps + self.return_steps - 1 > self.horizon:
            raise KoopaxError(
                f"return_steps is {self.return_steps}; of windows of {self.horizon} steps with values at "
                f"{self.valued_steps} of them, use at most {self.horizon - self.valued_steps + 1}."
            )
        if self.latent_norm not in LATENT_NORMS:
            raise unknown_name("latent_norm", self.latent_norm, list(LATENT_NORMS))
        if self.refresh not in REFRESHED:
            raise unknown_name("refresh", self.refresh, list(REFRESHED))
        if self.refresh_every is not None and self.dynamics not in MARKOVIAN:
            raise KoopaxError(f"{self.dynamics} can't begin again within a plan: leave refresh_every out.")
        if self.elites > self.samples:
            raise KoopaxError(f"{self.elites} elites can't be chosen from {self.samples} samples; take fewer elites.")
        if self.action_repeat is not None and self.action_repeat < 1:
            raise KoopaxError(f"action_repeat is {self.action_repeat}; it must be at least 1.")
        if self.latent_bound is not None and not self.latent_bound > 0:
            raise KoopaxError(f"latent_bound is {self.latent_bound}; it must be positive.")
        for name in ("decay", "value_decay", "plan_lambda", "std_decay"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise KoopaxError(f"{name} is {value}; it must be above 0 and at most 1.")

    @property
    def environment(self) -> str:
        """Where it acts: `task`."""
        return self.task

    @property
    def valued_steps(self) -> int:
        """Steps of a window at which values are learned: `value_steps`, or all of a shorter window."""
        return min(self.value_steps, self.horizon)

    @property
    def all_core_options(self) -> dict[str, Any]:
        """The core's options: the defaults for its kind and those given."""
        return {name: value for name, value in self._core_options().items() if value is not None}

    def settled(self) -> "TDMPCConfig":
        """With all options of the core, also those taken back."""
        options = {name: _hashable(value) for name, value in sorted(self._core_options().items())}
        return dataclasses.replace(self, core_options=tuple(options.items()))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "TDMPCConfig":
        """The settings in a JSON document, with the defaults of when it was written."""
        read = super().from_json(document)
        former = {**FORMER_CORE_OPTIONS.get(read.dynamics, {}), **dict(read.core_options)}
        return dataclasses.replace(read, core_options=tuple(former.items()))

    def _core_options(self) -> dict[str, Any]:
        given = {name: dict(value) if name.endswith("_options") else value for name, value in self.core_options}
        return {**CORE_OPTIONS.get(self.dynamics, {}), **given}

    def std_bound(self, decisions: int) -> float:
        """Lower bound of the plan's standard deviation after that many decisions."""
        return self.std_start + min(decisions / self.schedule, 1.0) * (self.std_end - self.std_start)

    def plan_length(self, decisions: int, errors: Sequence[float] = ()) -> int:
        """Steps that a plan looks ahead after that many decisions, from 1 to H.

        With `plan_trust`, no further than the last step before the first whose consistency error exceeds it; `errors`
        has those of steps 1, 2, … of training windows.
        """
        growth = self.schedule / max(self.horizon - 1, 1) if self.plan_growth is None else self.plan_growth
        length = min(1 + int(decisions / growth), self.horizon)
        if self.plan_trust is None:
            return length
        trusted = next((step for step, error in enumerate(errors) if error > self.plan_trust), len(errors))
        return max(1, min(length, trusted))

    def searched_length(self, decisions: int, errors: Sequence[float] = ()) -> int:
        """The plan's length rounded up to a multiple of `LENGTH_STEP`: candidates are no longer than they need be."""
        return min(-(-self.plan_length(decisions, errors) // LENGTH_STEP) * LENGTH_STEP, self.horizon)

    def due_updates(self, decisions: int) -> int:
        """Updates that should have been made after that many decisions, in whole dispatches."""
        if decisions < self.seed_decisions:
            return 0
        return int(decisions * self.updates_per_decision) // self.updates_per_dispatch * self.updates_per_dispatch


def _hashable(option: Any) -> Any:
    """An option of the core as a config holds it: pairs for a mapping."""
    return tuple(option.items()) if isinstance(option, Mapping) else option
