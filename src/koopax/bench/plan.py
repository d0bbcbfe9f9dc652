"""What a decision of TD-MPC's planner costs with each core and horizon, and where the time goes.

Every core has the sizes of its arm of the comparison, as agents are trained with them; of encoder, reward, values and
policy all have the same. The parts are timed on their own, each as one compiled function at the shapes that it has
inside a plan, and counted as often as a plan calls it: encoding and proposals once, dynamics, reward and value for the
samples of every iteration and once for the proposals. What is left of the whole is `rest`: drawing candidates, ranking
and refitting. It can come out a little below zero, because inside a plan the compiler fuses parts.

What a control loop waits for with every planner is measured beside it, see `koopax.bench.decisions`.
"""

import statistics
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import KoopaxError
from koopax.agents.tdmpc.agent import make_learner, make_planner
from koopax.agents.tdmpc.arms import tdmpc_arm
from koopax.agents.tdmpc.config import TDMPCConfig
from koopax.agents.tdmpc.planning_model import AgentModel
from koopax.bench.clock import Watch, interleave
from koopax.bench.decisions import measure_decisions
from koopax.bench.document import document

STATE_SIZE, ACTION_SIZE = 17, 6  # cheetah-run's
PARTS = ("encode", "propose", "dynamics", "reward", "value")
# The comparison of the paper: how much longer may a plan of 20 steps take than the MLP's of 5.
COMPARED = (("koopman", 20), ("mlp", 5))


def measure(
    *,
    cores: tuple[str, ...] = ("koopman", "mlp"),
    horizons: tuple[int, ...] = (5, 20),
    published: bool = False,
    samples: int | None = None,
    rounds: int = 9,
    decisions: int = 300,
    watch: Watch = lambda done, total: None,
) -> dict[str, Any]:
    """The document that `koopax bench plan --json` prints.

    Args:
        cores: latent cores to compare.
        horizons: steps of a plan.
        published: with the sizes of TD-MPC's paper instead of the agent's own.
        samples: candidates per iteration, if not the agent's.
        rounds: interleaved rounds; the median counts.
        decisions: of every planner for a single environment, see `koopax.bench.decisions`; 0 for none.
        watch: told how many visits are done, and of how many.
    """
    if not cores or not horizons or min(rounds, *horizons) < 1:
        raise KoopaxError(f"{rounds} rounds of horizons {horizons} for {cores}: give one or more of each.")
    given = {} if samples is None else {"samples": samples}
    configs = {(c, h): tdmpc_arm(c, published=published, horizon=h, **given) for h in horizons for c in cores}
    cases = {(*name, part): run for name, config in configs.items() for part, run in _cases(config).items()}
    taken = interleave(cases, rounds=rounds, watch=watch)
    results = [
        _row(config, {part: taken[*name, part] for part in ("plan", *PARTS)}) for name, config in configs.items()
    ]
    by_name = {(row["core"], row["horizon"]): row["ms_per_decision"] for row in results}
    ratio = by_name[COMPARED[0]] / by_name[COMPARED[1]] if all(name in by_name for name in COMPARED) else None
    settings = {"cores": cores, "horizons": horizons, "published": published, "samples": samples, "rounds": rounds}
    planners = measure_decisions(horizon=20, samples=64, decisions=decisions, watch=watch) if decisions else []
    settings["decisions"] = decisions
    found = {"results": results, "planners": planners, "koopman_20_over_mlp_5": ratio, "published_sizes": published}
    return document("plan", settings, found)


def _row(config: TDMPCConfig, taken: dict[str, list[float]]) -> dict[str, Any]:
    ms = {part: 1e3 * statistics.median(seconds) for part, seconds in taken.items()}
    once = ("encode", "propose")
    rounds = config.iterations + config.proposals / config.samples
    parts = {part: ms[part] * (1 if part in once else rounds) for part in PARTS}
    return {
        "core": config.dynamics,
        "horizon": config.horizon,
        "samples": config.samples,
        "iterations": config.iterations,
        "ms_per_decision": ms["plan"],
        "spread": [1e3 * min(taken["plan"]), 1e3 * max(taken["plan"])],
        "parts": {**parts, "rest": ms["plan"] - sum(parts.values())},
    }


def _cases(config: TDMPCConfig) -> dict[str, Callable[[int], None]]:
    """The whole plan and each of its parts, compiled."""
    learner = make_learner(config, STATE_SIZE, ACTION_SIZE)
    model = AgentModel(learner.model, learner.policy, config.policy_std)
    planner = make_planner(config, config.horizon)
    keys = jax.random.split(jax.random.key(0), 3)
    observation = jax.random.normal(keys[0], (STATE_SIZE,))
    actions = jax.random.uniform(keys[1], (config.horizon, config.samples, ACTION_SIZE), minval=-1, maxval=1)
    state = planner.init(ACTION_SIZE)
    start = eqx.filter_jit(model.encode)(observation, horizon=config.horizon)
    latents = eqx.filter_jit(model.rollout)(start, actions)
    valued = config.value_points if config.value_at is None else len(config.value_at)
    ends = jax.tree.map(lambda leaf: jnp.concatenate([leaf[-1]] * valued), latents)

    def plan(model: AgentModel, observation: jax.Array, state: Any) -> Any:
        return planner.plan(model, observation, state, key=keys[2], explore=True)

    def propose(model: AgentModel, start: Any) -> jax.Array:
        return model.propose(start, horizon=config.horizon, count=config.proposals, key=keys[2])

    return {
        "plan": _compiled(plan, model, observation, state),
        "encode": _compiled(lambda model, o: model.encode(o, horizon=config.horizon), model, observation),
        "propose": _compiled(propose, model, start),
        "dynamics": _compiled(lambda model, s, a: model.rollout(s, a), model, start, actions),
        "reward": _compiled(lambda model, x, a: model.reward(x, a), model, latents, actions),
        "value": _compiled(lambda model, x: model.value(x), model, ends),
    }


def _compiled(function: Callable, *arguments: Any) -> Callable[[int], None]:
    compiled = eqx.filter_jit(function).lower(*arguments).compile()

    def run(repeats: int) -> None:
        for _ in range(repeats):
            jax.block_until_ready(compiled(*arguments))

    return run
