"""Receding-horizon control: plan, take the first action, observe, plan again; several environments in lock step."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

from koopax._errors import KoopaxError, unknown_name
from koopax._types import Array, Float, PRNGKeyArray
from koopax.envs import LockStep, action_bounds, make
from koopax.models.dynamics import DynamicsModel
from koopax.planning.choice import PLANNERS, QuadraticCost, make_lqr, make_search
from koopax.planning.learned import LearnedModel, RewardedModel, load_reward
from koopax.planning.protocol import Box, Planner, PlanningModel, PlanState, restarted

MOST_ENVIRONMENTS = 10


@dataclass(frozen=True)
class ControlResult:
    """What a controller reached."""

    returns: tuple[float, ...]
    """Sum of rewards of each finished episode, in order."""
    lengths: tuple[int, ...]
    """Decisions in each of these episodes."""
    ms_per_decision: float
    """Median milliseconds of planning for all environments, divided by their number; compilation is excluded."""
    environments: int
    """How many were planned for together."""
    interrupted: bool = False
    """Whether Ctrl-C ended it early: then only the episodes that were finished count."""
    mean_return: float = field(init=False)
    """Mean of `returns`; NaN without any."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean_return", float(np.mean(self.returns)) if self.returns else float("nan"))

    def to_json(self) -> dict[str, Any]:
        """A JSON document; what is not known is null."""
        document = asdict(self)
        for name in ("mean_return", "ms_per_decision"):
            document[name] = document[name] if np.isfinite(document[name]) else None
        return document

    def table(self) -> Table:
        """The returns in a few lines."""
        shown = Table("episodes", "mean return", "std", "lowest", "highest", "ms per decision")
        found = [np.mean, np.std, np.min, np.max]
        numbers = [f"{function(self.returns):.1f}" if self.returns else "–" for function in found]
        shown.add_row(str(len(self.returns)), *numbers, f"{self.ms_per_decision:.2f}")
        return shown


@eqx.filter_jit
def plan_many(
    planner: Planner,
    model: PlanningModel,
    observations: Float[Array, "environment state"],
    states: PlanState,
    *,
    key: PRNGKeyArray,
    explore: bool | Array = False,
) -> tuple[Float[Array, "environment action"], PlanState]:
    """One decision for every environment: actions and the next plan states."""

    def one(observation: Array, state: PlanState, own_key: PRNGKeyArray) -> tuple[Array, PlanState]:
        decision = planner.plan(model, observation, state, key=own_key, explore=explore)
        return decision.action, decision.state

    return jax.vmap(one)(observations, states, jax.random.split(key, observations.shape[0]))


def many(state: PlanState, environments: int) -> PlanState:
    """The same plan state for each of several environments."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (environments, *leaf.shape)), state)


def control(
    planner: Planner,
    model: PlanningModel,
    env: str,
    *,
    episodes: int,
    seed: int,
    environments: int | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> ControlResult:
    """Run a planner for whole episodes and report their returns.

    Episode e belongs to environment e modulo their number and is seeded by it and its turn, so short episodes are not
    preferred: environments that have finished theirs only wait.

    Args:
        planner: with the environment's bounds.
        model: what it plans with.
        env: a name that `koopax.envs.make` takes.
        episodes: how many.
        seed: of the environments and the planner.
        environments: stepped together; at most 10 by default.
        watch: called with decisions taken and the episodes finished so far.
    """
    for name, value in (("episodes", episodes), ("environments", environments)):
        if value is not None and value < 1:
            raise KoopaxError(f"{name} is {value}: use 1 or more.")
    count = min(episodes, environments or MOST_ENVIRONMENTS)
    envs = LockStep(env, count, seed=seed)
    try:
        return _Controller(planner, model, envs, episodes, jax.random.key(seed), watch).run()
    finally:
        envs.close()


def control_trained(
    model: DynamicsModel,
    env: str,
    *,
    planner: str,
    episodes: int,
    seed: int,
    environments: int | None = None,
    reward: str | None = None,
    cost: QuadraticCost = QuadraticCost(),  # noqa: B008  (frozen)
    reencode_every: int | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
    **settings: Any,
) -> ControlResult:
    """`control` with a trained model and a planner by name: what `koopax plan` does.

    Args:
        model: trained on this environment.
        env: a name that `koopax.envs.make` takes.
        planner: see `koopax.planning.choice`.
        episodes: how many.
        seed: of the environments and the planner.
        environments: stepped together; at most 10 by default.
        reward: `module:function` in the place of the learned reward.
        cost: for LQR, which knows no other reward.
        reencode_every: decode and encode again after so many steps of a plan; never by default.
        watch: called with the episodes finished so far and their number.
        **settings: of the planner, such as `horizon=20, samples=128`; those that are None are left at its own.
    """
    sizes = model.config.state_size, model.config.action_size
    if planner not in PLANNERS:
        raise unknown_name("planner", planner, list(PLANNERS))
    if planner == "lqr" and reward is not None:
        raise KoopaxError("planner 'lqr' takes a quadratic cost, not --reward: pass --goal, or choose another planner.")
    if planner != "lqr" and (cost.goal is not None or cost.state_cost is not None):
        raise KoopaxError(f"--goal and --state-cost are for planner 'lqr', not {planner!r}: pass --reward instead.")
    if reencode_every is not None and reencode_every < 1:
        raise KoopaxError(f"reencode_every is {reencode_every}: use 1 or more steps, or leave it out for never.")
    if reward is None:
        seen = LearnedModel(model, reencode_every)
    else:
        seen = RewardedModel(model, load_reward(reward, *sizes), reencode_every)
    box = box_of(env, *sizes)
    if planner == "lqr":
        chosen = make_lqr(model, box, cost, horizon=settings.get("horizon"))
    else:
        chosen = make_search(planner, box, **settings)
    return control(chosen, seen, env, episodes=episodes, seed=seed, environments=environments, watch=watch)


def box_of(env: str, state_size: int, action_size: int) -> Box:
    """The bounds of an environment's actions, once its sizes are known to be the model's."""
    made = make(env)
    low, high = action_bounds(made)
    sizes = (int(made.observation_space.shape[0]), len(low))
    made.close()
    if sizes != (state_size, action_size):
        raise KoopaxError(
            f"environment {env!r} has states and actions of sizes {sizes}, but the model was trained on "
            f"{(state_size, action_size)}: use a model of this environment."
        )
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise KoopaxError(f"environment {env!r} has unbounded actions: planners search within bounds.")
    return Box(low, high)


class _Controller:
    """The state of a running `control`."""

    def __init__(
        self,
        planner: Planner,
        model: PlanningModel,
        envs: LockStep,
        episodes: int,
        key: PRNGKeyArray,
        watch: Callable[[int, int], None],
    ):
        self.planner, self.model, self.envs, self.key, self.watch = planner, model, envs, key, watch
        self.count = len(envs.envs)
        self.turns = [len(range(i, episodes, self.count)) for i in range(self.count)]
        self.initial = planner.init(len(envs.low))
        self.returns: dict[int, float] = {}
        self.lengths: dict[int, int] = {}
        self.milliseconds: list[float] = []

    def run(self) -> ControlResult:
        """Until every episode is finished, or Ctrl-C."""
        interrupted = False
        try:
            self._run()
        except KeyboardInterrupt:
            interrupted = True
        finished = sorted(self.returns)
        return ControlResult(
            returns=tuple(self.returns[episode] for episode in finished),
            lengths=tuple(self.lengths[episode] for episode in finished),
            ms_per_decision=float(np.median(self.milliseconds)) / self.count if self.milliseconds else float("nan"),
            environments=self.count,
            interrupted=interrupted,
        )

    def _run(self) -> None:
        states = many(self.initial, self.count)
        self._decide(0, states)  # compiles
        self.milliseconds.clear()
        running, lengths, step = np.zeros(self.count), np.zeros(self.count, int), 0
        while any(self._unfinished(i) for i in range(self.count)):
            actions, states = self._decide(step, states)
            turns = list(self.envs.episodes)
            taken = self.envs.step(actions)
            step, running, lengths = step + 1, running + taken.rewards, lengths + 1
            ended = taken.terminated | taken.truncated
            for i in np.flatnonzero(ended):
                if turns[i] < self.turns[i]:
                    episode = int(i) + turns[i] * self.count
                    self.returns[episode], self.lengths[episode] = float(running[i]), int(lengths[i])
                running[i], lengths[i] = 0.0, 0
            if ended.any():
                states = restarted(self.initial, states, jnp.asarray(ended))
            self.watch(len(self.returns), sum(self.turns))

    def _unfinished(self, i: int) -> bool:
        return self.envs.episodes[i] < self.turns[i]

    def _decide(self, step: int, states: PlanState) -> tuple[np.ndarray, PlanState]:
        key = jax.random.fold_in(self.key, step)
        began = time.perf_counter()
        actions, states = plan_many(self.planner, self.model, jnp.asarray(self.envs.observations), states, key=key)
        chosen = np.asarray(actions)  # waits for it
        self.milliseconds.append(1000 * (time.perf_counter() - began))
        return chosen, states
