"""Control with a trained model and a planner by name, and what has to be known of both beforehand."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from koopax._errors import KoopaxError, unknown_name
from koopax.envs import LockStep, action_bounds, make
from koopax.models.dynamics import Reencoding
from koopax.models.ensemble import AnyModel, Ensemble
from koopax.planning.choice import LQR_HORIZON, PLANNERS, REGULATORS, QuadraticCost, make_planner
from koopax.planning.constraints import Constraints
from koopax.planning.control import Watch, control_environment
from koopax.planning.coverage import Coverage, warn_of_narrow_actions
from koopax.planning.ensemble import EnsembleModel
from koopax.planning.learned import LearnedModel, RewardedModel, RewardFunction, load_reward
from koopax.planning.lqr import LQR
from koopax.planning.planner import Planner
from koopax.planning.protocol import Box
from koopax.planning.qp import QP
from koopax.planning.result import ControlProgress, ControlResult


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
