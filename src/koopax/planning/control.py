"""Receding-horizon control: plan, take the first action, observe, plan again; several environments in lock step."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError, unknown_name
from koopax._types import Array, Float, PRNGKeyArray
from koopax.envs import LockStep, action_bounds, make
from koopax.models.dynamics import DynamicsModel, Reencoding
from koopax.models.ensemble import AnyModel, Ensemble
from koopax.planning.choice import LQR_HORIZON, PLANNERS, REGULATORS, QuadraticCost, make_planner
from koopax.planning.constraints import Constraints
from koopax.planning.controller import infeasible
from koopax.planning.coverage import Coverage, warn_of_narrow_actions
from koopax.planning.ensemble import EnsembleModel
from koopax.planning.learned import LearnedModel, RewardedModel, RewardFunction, load_reward
from koopax.planning.lqr import LQR
from koopax.planning.planner import Planner
from koopax.planning.protocol import Box, PlanningModel, PlanState, RememberingModel, remembered_observations, restarted
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


def control_trained(
    model: AnyModel,
    env: str,
    *,
    planner: str,
    episodes: int,
    seed: int,
    environments: int | None = None,
    reward: str | None = None,
    cost: QuadraticCost = QuadraticCost(),  # noqa: B008  (frozen)
    constraints: Constraints = Constraints(),  # noqa: B008  (frozen)
    reencode_every: Reencoding = None,
    risk: float = 0.0,
    watch: Watch = lambda progress: None,
    **settings: Any,
) -> ControlResult:
    """`control_environment` with a trained model and a planner by name: what `koopax plan` does.

    The result also tells what random actions return, and a `KoopaxWarning` where the data seem too narrow to plan with.

    Args:
        model: trained on this environment, or an ensemble of such.
        env: a name that `koopax.envs.make` takes.
        planner: see `koopax.planning.choice`.
        episodes: how many.
        seed: of the environments and the planner.
        environments: stepped together; at most 10 by default.
        reward: `module:function` in the place of the learned reward.
        cost: for LQR and the convex program, which know no other reward.
        constraints: for the convex program.
        reencode_every: decode and encode again after so many steps of a plan, or "never"; as the model does by default.
        risk: weight on the disagreement of an ensemble, see `koopax.planning.ensemble`.
        watch: told after every decision how far it is.
        **settings: of the planner, such as `horizon=20, samples=128`; those that are None are left at its own.
    """
    sizes = model.config.state_size, model.config.action_size
    _check_choice(planner, reward, cost, constraints, reencode_every)
    _check_risk(model, planner, risk)
    one = model.members[0] if isinstance(model, Ensemble) else model  # a search is the same for all
    box = box_of(env, *sizes)
    chosen = make_planner(
        planner, one, box, cost=cost, constraints=constraints, reencode_every=reencode_every, **settings
    )
    if planner in REGULATORS:
        seen = chosen.seen(one)
    else:
        function = None if reward is None else load_reward(reward, *sizes)
        seen = _seen(model, function, reencode_every, risk)
    searched = _settings_of(chosen, cost, constraints, settings)
    limits = chosen.solver.program.limits if isinstance(chosen, QP) else None
    met = 0.0
    warn_of_narrow_actions(model.normaliser, box)
    coverage = Coverage(model, searched["horizon"])

    def watch_both(progress: ControlProgress) -> None:
        nonlocal met
        coverage.add(progress.actions, progress.taken)
        if limits is not None:
            met = max(met, float(limits.violation(progress.taken.next_observations).max()))
        watch(progress)

    found = control_environment(
        chosen, seen, env, episodes=episodes, seed=seed, environments=environments, watch=watch_both
    )
    error = coverage.prediction_error(reencode_every)
    coverage.warn(error)
    used = {"env": env, "planner": planner, "reward": reward, "reencode_every": reencode_every, "episodes": episodes}
    used |= {"risk": risk, "members": len(model.members)} if isinstance(model, Ensemble) else {}
    return replace(
        found,
        states_outside=coverage.outside,
        prediction_error=error,
        violation=None if limits is None else met,
        random_return=None if found.interrupted else random_return(env, found.environments, seed),
        settings=used | {"environments": found.environments, "seed": seed} | searched,
    )


def _settings_of(
    planner: Planner, cost: QuadraticCost, constraints: Constraints, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What a planner was made of, for the record."""
    if isinstance(planner, LQR):
        horizon = settings.get("horizon")
        return asdict(cost) | {"horizon": LQR_HORIZON if horizon is None else horizon}
    if isinstance(planner, QP):
        return asdict(cost) | asdict(constraints) | asdict(planner.config) | {"linear": planner.linear}
    return asdict(planner.config)  # type: ignore[attr-defined]  (all that search have one)


def _check_choice(
    planner: str, reward: str | None, cost: QuadraticCost, constraints: Constraints, reencode_every: Reencoding
) -> None:
    """Refuse a planner that is not there, and settings that it has no use for."""
    if planner not in PLANNERS:
        raise unknown_name("planner", planner, list(PLANNERS))
    if planner in REGULATORS and reward is not None:
        raise KoopaxError(
            f"planner {planner!r} takes a quadratic cost, not --reward: pass --goal, or choose another planner."
        )
    if planner not in REGULATORS and (cost.goal is not None or cost.state_cost is not None):
        raise KoopaxError(
            f"--goal and --state-cost are for planners 'lqr' and 'qp', not {planner!r}: pass --reward instead."
        )
    if planner != "qp" and constraints != Constraints():
        raise KoopaxError(f"bounds are kept by planner 'qp', not {planner!r}: choose it, or leave them out.")
    if isinstance(reencode_every, int) and reencode_every < 1:
        raise KoopaxError(f"reencode_every is {reencode_every}: use 1 or more steps, or 'never'.")


def _seen(
    model: AnyModel, function: RewardFunction | None, reencode_every: Reencoding, risk: float
) -> LearnedModel | RewardedModel | EnsembleModel:
    """A model as searches see it."""
    if isinstance(model, Ensemble):
        return EnsembleModel(model, risk=risk, function=function, reencode_every=reencode_every)
    if function is None:
        return LearnedModel(model, reencode_every)
    return RewardedModel(model, function, reencode_every)


def _check_risk(model: AnyModel, planner: str, risk: float) -> None:
    """Refuse what an ensemble can't do, and a weight on what a single model has not."""
    if not 0 <= risk < float("inf"):
        raise KoopaxError(f"risk is {risk}: use 0 or more.")
    if isinstance(model, Ensemble) and planner in REGULATORS:
        raise KoopaxError(f"planner {planner!r} needs one system, and an ensemble is several: name one seed's folder.")
    if risk and not isinstance(model, Ensemble):
        raise KoopaxError(
            f"risk is {risk}, but it weighs the disagreement of several seeds and this is one model: name the folder "
            "of a training with --seeds, or leave it out."
        )


def random_return(env: str, environments: int, seed: int) -> float | None:
    """Mean return of actions drawn evenly from the bounds, an episode in each of the same environments.

    None if Ctrl-C ends it.
    """
    envs, rng = LockStep(env, environments, seed=seed), np.random.default_rng(seed)
    running, returns = np.zeros(environments), np.full(environments, np.nan)
    try:
        while np.isnan(returns).any():
            taken = envs.step(rng.uniform(envs.low, envs.high, (environments, len(envs.low))).astype(np.float32))
            running += taken.rewards
            first = (taken.terminated | taken.truncated) & np.isnan(returns)
            returns[first] = running[first]
    except KeyboardInterrupt:
        return None
    finally:
        envs.close()
    return float(returns.mean())


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
