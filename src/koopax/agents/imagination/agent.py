"""One compiled call imagines rollouts from states of the data, one learns from them and from the data.

    s_0 ~ data,   a_t ~ π(·|s_t),   ŝ_{t+1}, r̂_t ~ simulator,   t = 0 … h − 1
    r_t = r̂_t − penalty · u_t · σ_r,      u_t how far the models are apart, σ_r the rewards' standard deviation

A rollout that ends on the way, out of bounds, begins again at another state of the data.
"""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from koopax._types import Array, Float, PRNGKeyArray
from koopax.agents.imagination.config import ImaginationConfig
from koopax.agents.imagination.losses import clone_loss, guided_actor_loss
from koopax.agents.sac.agent import Learner, make_optimiser, update_critics
from koopax.agents.sac.losses import temperature_loss
from koopax.agents.sac.networks import sample_action
from koopax.agents.sac.replay import ObservationStatistics, Replay, Transitions, insert, sample
from koopax.planning.protocol import Box
from koopax.simulation.simulator import Simulated, Simulator, draw, restart


class World(NamedTuple):
    """What imagination happens in: the simulator, the data's states, and the bounds of the environment's actions."""

    simulator: Simulator
    starts: Float[Array, "starts state"]
    box: Box


@eqx.filter_jit
def imagine(
    world: World, learner: Learner, statistics: ObservationStatistics, config: ImaginationConfig, *, key: PRNGKeyArray
) -> tuple[Transitions, Float[Array, ""]]:
    """`rollouts` × `rollout_length` imagined transitions, and the mean of the models' disagreement."""
    start_key, key = jax.random.split(key)

    def step(now: Simulated, step_key: PRNGKeyArray) -> tuple[Simulated, tuple[Transitions, Array]]:
        action_key, again_key = jax.random.split(step_key)
        actions, _ = sample_action(learner.actor, statistics.normalise(now.states), key=action_key)
        after, outcome = world.simulator.step(now, world.box.from_unit(actions))
        continues = 1.0 - outcome.terminated.astype(jnp.float32)
        taken = Transitions(now.states, actions, outcome.rewards, continues, outcome.states)
        return restart(world.simulator, after, outcome.terminated, world.starts, again_key), (
            taken,
            outcome.uncertainty,
        )

    now = draw(world.simulator, world.starts, start_key, config.rollouts)
    _, (taken, apart) = jax.lax.scan(step, now, jax.random.split(key, config.rollout_length))
    return jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), taken), jnp.mean(apart)


@functools.partial(jax.jit, static_argnames="config", donate_argnums=(0, 1))
def learn(
    learner: Learner,
    imagined: Replay,
    new: Transitions,
    data: Transitions,
    statistics: ObservationStatistics,
    config: ImaginationConfig,
) -> tuple[Learner, Replay, dict[str, Float[Array, ""]]]:
    """Remember what was imagined, then `updates_per_dispatch` updates on batches of it and of the data."""
    imagined = insert(imagined, new)
    seed_key = jax.random.fold_in(jax.random.key(config.seed), 2)

    def body(learner: Learner, _: None) -> tuple[Learner, dict[str, Array]]:
        keys = jax.random.split(jax.random.fold_in(seed_key, learner.updates), 4)
        known = _normalised(_some(data, config.batch_size - config.imagined_batch, keys[0]), statistics)
        dreamt = _normalised(sample(imagined, config.imagined_batch, key=keys[1]), statistics)
        batch = jax.tree.map(lambda one, two: jnp.concatenate([one, two]), known, dreamt)
        learner, metrics = update_critics(learner, batch, config.sac(), key=keys[2])
        learner, more = _update_actor(learner, batch, known, config, key=keys[3])
        return learner, metrics | more

    learner, metrics = jax.lax.scan(body, learner, length=config.updates_per_dispatch)
    return learner, imagined, jax.tree.map(jnp.mean, metrics)


@functools.partial(jax.jit, static_argnames=("config", "updates"), donate_argnums=0)
def clone(
    learner: Learner, data: Transitions, statistics: ObservationStatistics, config: ImaginationConfig, updates: int
) -> tuple[Learner, Float[Array, ""]]:
    """Behaviour cloning: so many updates of the actor alone; also the mean of the last loss."""
    seed_key = jax.random.fold_in(jax.random.key(config.seed), 3)
    optimiser = optax.adam(1e-3)

    def body(carried: tuple, number: Array) -> tuple[tuple, Array]:
        actor, state = carried
        batch = _normalised(_some(data, config.batch_size, jax.random.fold_in(seed_key, number)), statistics)
        loss, slope = jax.value_and_grad(clone_loss)(actor, batch.observations, batch.actions)
        changes, state = optimiser.update(slope, state)
        return (eqx.apply_updates(actor, changes), state), loss

    begin = (learner.actor, optimiser.init(eqx.filter(learner.actor, eqx.is_array)))
    (actor, _), losses = jax.lax.scan(body, begin, jnp.arange(updates))
    return learner._replace(actor=actor), jnp.mean(losses[-max(updates // 10, 1) :])


def _update_actor(
    learner: Learner, batch: Transitions, known: Transitions, config: ImaginationConfig, *, key: PRNGKeyArray
) -> tuple[Learner, dict[str, Array]]:
    """One step of the actor, then of the temperature."""
    temperature = jnp.exp(learner.log_temperature)
    observed = (known.observations, known.actions) if known.rewards.shape[0] else (batch.observations, batch.actions)
    (loss, entropy), slope = jax.value_and_grad(guided_actor_loss, has_aux=True)(
        learner.actor,
        learner.critics,
        learner.statistics,
        temperature,
        batch.observations,
        observed,
        config.clone_weight if known.rewards.shape[0] else 0.0,
        key=key,
    )
    optimiser = make_optimiser(config.sac())
    changes, actor_optimiser = optimiser.update(slope, learner.actor_optimiser)
    target = -float(batch.actions.shape[1])
    gradient = jax.grad(temperature_loss)(learner.log_temperature, entropy, target)
    change, temperature_optimiser = optimiser.update(gradient, learner.temperature_optimiser)
    learner = learner._replace(
        actor=eqx.apply_updates(learner.actor, changes),
        actor_optimiser=actor_optimiser,
        log_temperature=eqx.apply_updates(learner.log_temperature, change),
        temperature_optimiser=temperature_optimiser,
    )
    return learner, {"actor_loss": loss, "entropy": entropy, "temperature": temperature}


def _some(data: Transitions, count: int, key: PRNGKeyArray) -> Transitions:
    rows = jax.random.randint(key, (count,), 0, data.rewards.shape[0])
    return jax.tree.map(lambda array: array[rows], data)


def _normalised(batch: Transitions, statistics: ObservationStatistics) -> Transitions:
    return batch._replace(
        observations=statistics.normalise(batch.observations),
        next_observations=statistics.normalise(batch.next_observations),
    )
