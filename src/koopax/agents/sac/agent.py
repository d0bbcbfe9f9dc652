"""The agent: everything that learns in one pytree, and one compiled call for many updates."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from koopax._types import Array, Float, Int
from koopax.agents.networks import moving_average
from koopax.agents.sac.config import SACConfig
from koopax.agents.sac.losses import actor_loss, critic_loss, temperature_loss
from koopax.agents.sac.networks import Actor, Critics, Statistics, make_critics
from koopax.agents.sac.replay import (
    ObservationStatistics,
    Replay,
    Transitions,
    extend_statistics,
    initial_statistics,
    insert,
    make_replay,
    sample,
)


class Learner(NamedTuple):
    """Parameters and optimiser states: what an update changes."""

    actor: Actor
    critics: Critics
    statistics: Statistics
    targets: Critics | None
    log_temperature: Float[Array, ""]
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    temperature_optimiser: optax.OptState
    updates: Int[Array, ""]


class TrainState(NamedTuple):
    """All that a run needs to go on, except for the environments' states."""

    learner: Learner
    replay: Replay
    observation_statistics: ObservationStatistics


def make_optimiser(config: SACConfig) -> optax.GradientTransformation:
    """Adam; the actor, the critics and the temperature each have a state of their own."""
    return optax.adam(config.learning_rate, b1=config.adam_b1)


def make_state(config: SACConfig, state_size: int, action_size: int) -> TrainState:
    """A fresh state; everything random in it comes from `config.seed`."""
    actor_key, critic_key = jax.random.split(jax.random.key(config.seed))
    actor = Actor(state_size, action_size, config.hidden_sizes, key=actor_key)
    critics = make_critics(state_size, action_size, config.hidden_sizes, norm=config.critic_norm, key=critic_key)
    log_temperature = jnp.log(jnp.float32(config.initial_temperature))
    optimiser = make_optimiser(config)
    learner = Learner(
        actor=actor,
        critics=critics,
        statistics=tuple(critic.initial_statistics() for critic in critics),
        targets=None if config.critic_norm == "batch" else jax.tree.map(jnp.copy, critics),
        log_temperature=log_temperature,
        actor_optimiser=optimiser.init(eqx.filter(actor, eqx.is_array)),
        critic_optimiser=optimiser.init(eqx.filter(critics, eqx.is_array)),
        temperature_optimiser=optimiser.init(log_temperature),
        updates=jnp.zeros((), jnp.int32),
    )
    replay = make_replay(config.replay_capacity, state_size, action_size)
    return TrainState(learner, replay, initial_statistics(state_size))


@functools.partial(jax.jit, static_argnames="config", donate_argnums=0)
def remember(state: TrainState, new: Transitions, config: SACConfig) -> TrainState:
    """Insert transitions, without learning."""
    statistics = state.observation_statistics
    if config.normalise_observations:
        statistics = extend_statistics(statistics, new.observations)
    return TrainState(state.learner, insert(state.replay, new), statistics)


@functools.partial(jax.jit, static_argnames="config", donate_argnums=0)
def remember_and_learn(
    state: TrainState, new: Transitions, config: SACConfig
) -> tuple[TrainState, dict[str, Float[Array, ""]]]:
    """Insert transitions, then `config.updates_per_dispatch` updates; also the means of the logged metrics.

    Every update gathers its batch from the device-resident replay inside the compiled loop.
    """
    state = remember(state, new, config)
    seed_key = jax.random.fold_in(jax.random.key(config.seed), 1)

    def body(learner: Learner, _):
        key = jax.random.fold_in(seed_key, learner.updates)
        return update(learner, state.replay, state.observation_statistics, config, key=key)

    learner, metrics = jax.lax.scan(body, state.learner, length=config.updates_per_dispatch // config.policy_delay)
    return TrainState(learner, state.replay, state.observation_statistics), jax.tree.map(jnp.mean, metrics)


def update(learner: Learner, replay: Replay, statistics: ObservationStatistics, config: SACConfig, *, key):
    """`policy_delay` critic updates on fresh batches, then one of the actor and the temperature on the last."""
    keys = jax.random.split(key, config.policy_delay + 1)
    for critic_key in keys[:-1]:
        batch_key, loss_key = jax.random.split(critic_key)
        batch = sample(replay, config.batch_size, key=batch_key)
        batch = batch._replace(
            observations=statistics.normalise(batch.observations),
            next_observations=statistics.normalise(batch.next_observations),
        )
        learner, metrics = update_critics(learner, batch, config, key=loss_key)
    learner, more = update_actor(learner, batch.observations, config, key=keys[-1])
    return learner, metrics | more


def update_critics(learner: Learner, batch: Transitions, config: SACConfig, *, key):
    """One step of both critics, and of their targets if there are any."""
    temperature = jnp.exp(learner.log_temperature)
    (loss, (statistics, mean_q)), gradients = jax.value_and_grad(critic_loss, has_aux=True)(
        learner.critics,
        learner.statistics,
        learner.targets,
        learner.actor,
        temperature,
        batch,
        config.discount,
        key=key,
    )
    changes, optimiser = make_optimiser(config).update(gradients, learner.critic_optimiser)
    critics = eqx.apply_updates(learner.critics, changes)
    targets = learner.targets
    if targets is not None:
        targets = moving_average(targets, critics, config.target_rate)
    learner = learner._replace(
        critics=critics,
        statistics=statistics,
        targets=targets,
        critic_optimiser=optimiser,
        updates=learner.updates + 1,
    )
    return learner, {"critic_loss": loss, "q": mean_q}


def update_actor(learner: Learner, observations: Float[Array, "batch state"], config: SACConfig, *, key):
    """One step of the actor, then of the temperature."""
    temperature = jnp.exp(learner.log_temperature)
    (loss, entropy), gradients = jax.value_and_grad(actor_loss, has_aux=True)(
        learner.actor, learner.critics, learner.statistics, temperature, observations, key=key
    )
    optimiser = make_optimiser(config)
    changes, actor_optimiser = optimiser.update(gradients, learner.actor_optimiser)
    action_size = learner.actor.head.bias.shape[0] // 2
    target = -float(action_size) if config.target_entropy is None else config.target_entropy
    slope = jax.grad(temperature_loss)(learner.log_temperature, entropy, target)
    change, temperature_optimiser = optimiser.update(slope, learner.temperature_optimiser)
    learner = learner._replace(
        actor=eqx.apply_updates(learner.actor, changes),
        actor_optimiser=actor_optimiser,
        log_temperature=eqx.apply_updates(learner.log_temperature, change),
        temperature_optimiser=temperature_optimiser,
    )
    return learner, {"actor_loss": loss, "entropy": entropy, "temperature": temperature}
