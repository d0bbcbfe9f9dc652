"""The agent: everything that learns in one pytree, one compiled call for many updates and one for a decision."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from koopax._types import Array, Float, Int, PRNGKeyArray
from koopax.agents.networks import moving_average
from koopax.agents.tdmpc.config import LOSS_TERMS, TDMPCConfig
from koopax.agents.tdmpc.losses import Windows, model_loss, policy_loss
from koopax.agents.tdmpc.networks import Network, Targets, WorldModel, make_policy
from koopax.agents.tdmpc.planning_model import AgentModel
from koopax.planning.mppi import MPPI, MPPIConfig
from koopax.planning.planner import Decision
from koopax.planning.searching import Plan


class Learner(NamedTuple):
    """Parameters and optimiser states. Model and policy have optimisers of their own, on disjoint parameters."""

    model: WorldModel
    policy: Network
    targets: Targets
    model_optimiser: optax.OptState
    policy_optimiser: optax.OptState
    updates: Int[Array, ""]


class Keys(NamedTuple):
    """A run's keys: arguments of the compiled functions, so that runs that differ by their seed share them."""

    learning: PRNGKeyArray
    planning: PRNGKeyArray

    @classmethod
    def of(cls, seed: int) -> "Keys":
        """The keys of a seed; those of the networks are others."""
        return cls(*(jax.random.fold_in(jax.random.key(seed), purpose) for purpose in (1, 2)))


def make_optimiser(config: TDMPCConfig) -> optax.GradientTransformation:
    """Adam on gradients of bounded norm."""
    return optax.chain(optax.clip_by_global_norm(config.gradient_norm), optax.adam(config.learning_rate))


def make_learner(config: TDMPCConfig, state_size: int, action_size: int) -> Learner:
    """A fresh learner; everything random in it comes from `config.seed`."""
    model_key, policy_key = jax.random.split(jax.random.key(config.seed))
    # Weakly typed leaves would become strongly typed by the first update, and compile it twice.
    made = WorldModel(config, state_size, action_size, key=model_key)
    model, policy = jax.tree.map(
        lambda leaf: jnp.array(leaf, leaf.dtype), (made, make_policy(config, made.core, key=policy_key))
    )
    optimiser = make_optimiser(config)
    return Learner(
        model=model,
        policy=policy,
        targets=jax.tree.map(jnp.copy, Targets.of(model)),
        model_optimiser=optimiser.init(eqx.filter(model, eqx.is_array)),
        policy_optimiser=optimiser.init(eqx.filter(policy, eqx.is_array)),
        updates=jnp.zeros((), jnp.int32),
    )


@functools.partial(jax.jit, static_argnames="config", donate_argnums=0)
def learn(
    learner: Learner, batches: Windows, config: TDMPCConfig, *, key: PRNGKeyArray
) -> tuple[Learner, Float[Array, "count batch"], dict[str, Float[Array, "..."]]]:
    """One update per batch, leaves `[count, …]`; also each window's TD error and the means of the logged metrics.

    `key` is the same for all calls of a run: each update folds its number into it.
    """

    def body(learner: Learner, batch: Windows):
        learner, errors, metrics = update(learner, batch, config, key=jax.random.fold_in(key, learner.updates))
        return learner, (errors, metrics)

    learner, (errors, metrics) = jax.lax.scan(body, learner, batches)
    means = jax.tree.map(lambda found: jnp.mean(found, axis=0), metrics)
    # A step without a loss has no error in this update; another may have one.
    means["consistency_errors"] = jnp.nanmean(metrics["consistency_errors"], axis=0)
    return learner, errors, means


def update(
    learner: Learner, batch: Windows, config: TDMPCConfig, *, key: PRNGKeyArray
) -> tuple[Learner, Float[Array, " batch"], dict[str, Float[Array, "..."]]]:
    """One step of the model, then of the policy with the new values, then of the targets."""
    target_key, policy_key = jax.random.split(key)
    optimiser = make_optimiser(config)
    (loss, found), gradients = eqx.filter_value_and_grad(model_loss, has_aux=True)(
        learner.model, learner.targets, learner.policy, batch, config, key=target_key
    )
    changes, model_optimiser = optimiser.update(gradients, learner.model_optimiser)
    core_changes = jax.tree.map(lambda leaf: config.core_rate * leaf, changes.core)  # type: ignore[union-attr]
    changes = eqx.tree_at(lambda model: model.core, changes, core_changes)
    model = eqx.apply_updates(learner.model, changes)

    valued = config.valued_steps
    policy_value, policy_gradients = eqx.filter_value_and_grad(policy_loss)(
        learner.policy, model.critics, found.seen, batch.inside[:valued], config, key=policy_key
    )
    changes, policy_optimiser = optimiser.update(policy_gradients, learner.policy_optimiser)
    updates = learner.updates + 1
    rate = jnp.where(updates % config.target_every == 0, config.target_rate, 0.0)
    targets = moving_average(learner.targets, Targets.of(model), rate)
    policy = eqx.apply_updates(learner.policy, changes)
    new = Learner(model, policy, targets, model_optimiser, policy_optimiser, updates)
    metrics = {f"{name}_loss": found.terms[name] for name in LOSS_TERMS} | {
        "model_loss": loss,
        "policy_loss": policy_value,
        "q": found.q,
        "gradient_norm": optax.tree.norm(gradients),
        "consistency_errors": found.consistency_errors,
    }
    return new, found.errors, metrics


def make_planner(config: TDMPCConfig, length: int) -> MPPI:
    """MPPI over plans of that length, of actions in [−1, 1]ᴬ."""
    return MPPI(
        MPPIConfig(
            horizon=length,
            samples=config.samples,
            iterations=config.iterations,
            elites=config.elites,
            proposals=config.proposals,
            temperature=config.temperature,
            momentum=config.momentum,
            max_std=config.std_limit,
            std_decay=1.0 if config.std_decay is None else config.std_decay,
            noise_exponent=config.noise_exponent,
            discount=config.discount,
            mixing=config.plan_lambda,
            value_points=config.value_points,
            value_at=config.value_at,
        )
    )


class Mode(NamedTuple):
    """How to plan now: where the schedules stand, and whether to explore."""

    horizon: Int[Array, ""]
    min_std: Float[Array, ""]
    explore: Array


def mode_at(config: TDMPCConfig, decisions: int, errors: Sequence[float], *, explore: bool) -> Mode:
    """The mode after that many decisions, with a model of these consistency errors."""
    length, std = jnp.int32(config.plan_length(decisions, errors)), jnp.float32(config.std_bound(decisions))
    return Mode(length, std, jnp.bool_(explore))


@functools.partial(jax.jit, static_argnames="config")
def decide(
    model: WorldModel,
    policy: Network,
    observations: Float[Array, "environment state"],
    plans: Plan,
    mode: Mode,
    seeds: Int[Array, " environment"],
    config: TDMPCConfig,
    *,
    key: PRNGKeyArray,
) -> Decision:
    """Plan for several environments at once, as far ahead as `plans` are long.

    `key` is the same for all calls of a run: each environment folds its number in `seeds` into it.
    """
    planner = make_planner(config, plans.mean.shape[1])
    agent = AgentModel(model, policy, config.policy_std)

    def one(observation: Array, plan: Plan, seed: Array) -> Decision:
        return planner.plan(
            agent,
            observation,
            plan,
            key=jax.random.fold_in(key, seed),
            explore=mode.explore,
            horizon=mode.horizon,
            min_std=mode.min_std,
        )

    return jax.vmap(one)(observations, plans, seeds)


def fresh_plans(length: int, action_size: int, count: int) -> Plan:
    """Plans of that length at the start of `count` episodes."""
    return Plan(jnp.zeros((count, length, action_size)))
