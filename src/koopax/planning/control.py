"""Receding-horizon control: plan, take the first action, observe, plan again; several environments in lock step."""

import time
from collections.abc import Callable
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError
from koopax._types import Array, Float, PRNGKeyArray
from koopax.envs import LockStep
from koopax.models.dynamics import DynamicsModel
from koopax.planning.controller import infeasible
from koopax.planning.planner import Planner
from koopax.planning.protocol import PlanningModel, PlanState, RememberingModel, remembered_observations, restarted
from koopax.planning.qp import QP, QPState
from koopax.planning.result import ControlProgress, ControlResult

MOST_ENVIRONMENTS = 10
Watch: TypeAlias = Callable[[ControlProgress], None]


@eqx.filter_jit
def plan_many(
    planner: Planner,
    model: PlanningModel | DynamicsModel,
    observations: Float[Array, "environment *observed state"],
    states: PlanState,
    *,
    key: PRNGKeyArray,
    explore: bool | Array = False,
    past_actions: Float[Array, "environment past action"] | None = None,
) -> tuple[Float[Array, "environment action"], PlanState]:
    """One decision for every environment: actions and the next plan states."""

    def one(observation: Array, state: PlanState, past: Array | None, own_key: PRNGKeyArray) -> tuple[Array, PlanState]:
        decision = planner.plan(model, observation, state, key=own_key, explore=explore, past_actions=past)
        return decision.action, decision.state

    return jax.vmap(one)(observations, states, past_actions, jax.random.split(key, observations.shape[0]))


def many(state: PlanState, environments: int) -> PlanState:
    """The same plan state for each of several environments."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (environments, *leaf.shape)), state)


def control_environment(
    planner: Planner,
    model: PlanningModel | DynamicsModel,
    env: str,
    *,
    episodes: int,
    seed: int,
    environments: int | None = None,
    watch: Watch = lambda progress: None,
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
        watch: told after every decision how far it is.
    """
    for name, value in (("episodes", episodes), ("environments", environments)):
        if value is not None and value < 1:
            raise KoopaxError(f"{name} is {value}: use 1 or more.")
    seen = planner.seen(model) if isinstance(model, DynamicsModel) else model
    count = min(episodes, environments or MOST_ENVIRONMENTS)
    envs = LockStep(env, count, seed=seed)
    try:
        return _Loop(planner, seen, envs, episodes, jax.random.key(seed), watch).run()
    finally:
        envs.close()


class _Loop:
    """The state of a running `control_environment`."""

    def __init__(
        self,
        planner: Planner,
        model: PlanningModel,
        envs: LockStep,
        episodes: int,
        key: PRNGKeyArray,
        watch: Watch,
    ):
        self.planner, self.model, self.envs, self.key, self.watch = planner, model, envs, key, watch
        self.count = len(envs.envs)
        self.turns = [len(range(i, episodes, self.count)) for i in range(self.count)]
        self.initial = planner.init(len(envs.low))
        # The actions just taken, for a model that remembers some: NaN where an episode is younger.
        remembered = model.remembered_actions if isinstance(model, RememberingModel) else 0
        self.past = np.full((self.count, remembered, len(envs.low)), np.nan, np.float32)
        # Likewise the observations before the newest, for a model with a history.
        shape = self.count, remembered_observations(model), envs.observations.shape[1]
        self.seen = np.full(shape, np.nan, np.float32)
        self.returns: dict[int, float] = {}
        self.lengths: dict[int, int] = {}
        self.milliseconds: list[float] = []
        self.violation = 0.0

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
            planned_violation=self.violation if isinstance(self.planner, QP) else None,
        )

    def _run(self) -> None:
        states = many(self.initial, self.count)
        self._decide(0, states)  # compiles
        self.milliseconds.clear()
        running, lengths, step = np.zeros(self.count), np.zeros(self.count, int), 0
        while any(self._unfinished(i) for i in range(self.count)):
            actions, states = self._decide(step, states)
            turns, seen = list(self.envs.episodes), self.envs.observations
            taken = self.envs.step(actions)
            self._remember(seen, actions, taken.terminated | taken.truncated)
            step, running, lengths = step + 1, running + taken.rewards, lengths + 1
            ended = taken.terminated | taken.truncated
            for i in np.flatnonzero(ended):
                if turns[i] < self.turns[i]:
                    episode = int(i) + turns[i] * self.count
                    self.returns[episode], self.lengths[episode] = float(running[i]), int(lengths[i])
                running[i], lengths[i] = 0.0, 0
            if ended.any():
                states = restarted(self.initial, states, jnp.asarray(ended))
            self.watch(ControlProgress(tuple(self.returns.values()), sum(self.turns), step, actions, taken))

    def _remember(self, observations: np.ndarray, actions: np.ndarray, ended: np.ndarray) -> None:
        self.past = np.concatenate([self.past, actions[:, None]], axis=1)[:, 1:]
        self.seen = np.concatenate([self.seen, observations[:, None]], axis=1, dtype=np.float32)[:, 1:]
        self.past[ended] = np.nan
        self.seen[ended] = np.nan

    def _unfinished(self, i: int) -> bool:
        return self.envs.episodes[i] < self.turns[i]

    def _decide(self, step: int, states: PlanState) -> tuple[np.ndarray, PlanState]:
        key = jax.random.fold_in(self.key, step)
        began = time.perf_counter()
        past = jnp.asarray(self.past) if self.past.shape[1] else None
        observations = jnp.asarray(self.envs.observations)
        if self.seen.shape[1]:
            observations = jnp.concatenate([jnp.asarray(self.seen), observations[:, None]], axis=1)
        actions, states = plan_many(self.planner, self.model, observations, states, key=key, past_actions=past)
        chosen = np.asarray(actions)  # waits for it
        self.milliseconds.append(1000 * (time.perf_counter() - began))
        if isinstance(states, QPState):
            self._look_at_limits(states)
        return chosen, states

    def _look_at_limits(self, states: QPState) -> None:
        """Note how far plans leave soft bounds; where hard ones can't be kept, that is the end."""
        for number in np.flatnonzero(~np.asarray(states.feasible)):
            if self._unfinished(int(number)):
                raise infeasible(self.planner.longest, self.envs.observations[number])
        self.violation = max(self.violation, float(np.max(states.violation)))
