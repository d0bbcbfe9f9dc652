"""The agent: everything that learns in one pytree, one compiled call for updates and one for decisions."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from koopax._types import Array, Float, Int, PRNGKeyArray, UInt8
from koopax.agents.networks import moving_average
from koopax.agents.pixels.augmentation import random_shift
from koopax.agents.pixels.config import PixelSACConfig
from koopax.agents.pixels.losses import self_prediction_loss, spread_and_rank
from koopax.agents.pixels.networks import Model, make_actor, make_model
from koopax.agents.pixels.replay import Batches
from koopax.agents.sac.losses import actor_loss, critic_loss, temperature_loss
from koopax.agents.sac.networks import Actor, Critics, sample_action
from koopax.agents.sac.replay import Transitions

NO_STATISTICS = ((), ())


class Learner(NamedTuple):
    """Parameters and optimiser states. Model, actor and temperature have optimisers of their own."""

    model: Model
    actor: Actor
    targets: Critics
    log_temperature: Float[Array, ""]
    model_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    temperature_optimiser: optax.OptState
    updates: Int[Array, ""]


class Keys(NamedTuple):
    """A run's keys: arguments of the compiled functions, so that runs that differ by their seed share them."""

    learning: PRNGKeyArray
    acting: PRNGKeyArray

    @classmethod
    def of(cls, seed: int) -> "Keys":
        """The keys of a seed; those of the networks are others."""
        return cls(*(jax.random.fold_in(jax.random.key(seed), purpose) for purpose in (1, 2)))


def make_optimiser(config: PixelSACConfig) -> optax.GradientTransformation:
    """Adam."""
    return optax.adam(config.learning_rate)


def make_learner(config: PixelSACConfig, action_size: int) -> Learner:
    """A fresh learner; everything random in it comes from `config.seed`."""
    model_key, actor_key = jax.random.split(jax.random.key(config.seed))
    made = make_model(config, action_size, key=model_key), make_actor(config, action_size, key=actor_key)
    # Weakly typed leaves would become strongly typed by the first update, and compile it twice.
    model, actor = jax.tree.map(lambda leaf: jnp.array(leaf, leaf.dtype), made)
    optimiser, log_temperature = make_optimiser(config), jnp.log(jnp.float32(config.initial_temperature))
    return Learner(
        model=model,
        actor=actor,
        targets=jax.tree.map(jnp.copy, model.critics),
        log_temperature=log_temperature,
        model_optimiser=optimiser.init(eqx.filter(model, eqx.is_array)),
        actor_optimiser=optimiser.init(eqx.filter(actor, eqx.is_array)),
        temperature_optimiser=optimiser.init(log_temperature),
        updates=jnp.zeros((), jnp.int32),
    )


def stacked(frames: UInt8[Array, "*batch stack height width 3"]) -> UInt8[Array, "images height width channel"]:
    """Stacks of frames as images, frame after frame along the channels, all batch axes in one."""
    *_, stack, height, width, _ = frames.shape
    images = frames.reshape(-1, stack, height, width, 3).transpose(0, 2, 3, 1, 4)
    return images.reshape(-1, height, width, 3 * stack)


@functools.partial(jax.jit, static_argnames="config", donate_argnums=0)
def learn(
    learner: Learner, batches: Batches, config: PixelSACConfig, *, key: PRNGKeyArray
) -> tuple[Learner, dict[str, Float[Array, ""]]]:
    """One update per batch, leaves `[count, …]`; also the means of the logged metrics.

    `key` is the same for all calls of a run: each update folds its number into it.
    """

    def body(learner: Learner, batch: Batches):
        return update(learner, batch, config, key=jax.random.fold_in(key, learner.updates))

    if batches.rewards.shape[0] == 1:  # a loop of one step costs more than the step alone
        return body(learner, jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), batches))
    learner, metrics = jax.lax.scan(body, learner, batches)
    return learner, jax.tree.map(jnp.mean, metrics)


def update(
    learner: Learner, batch: Batches, config: PixelSACConfig, *, key: PRNGKeyArray
) -> tuple[Learner, dict[str, Float[Array, ""]]]:
    """One step of representation, critics and self-prediction; every second time of actor, temperature and targets."""
    now_key, later_key, critic_key, actor_key = jax.random.split(key, 4)
    images = random_shift(stacked(batch.frames), config.shift, key=now_key)
    # All that is only compared with is encoded in one pass, by the same encoder without its gradient.
    size = batch.rewards.shape[0]
    later = [stacked(batch.next_frames), *([stacked(batch.future_frames)] if config.predicts else [])]
    later = random_shift(jnp.concatenate(later), config.shift, key=later_key)
    encoded = jax.lax.stop_gradient(learner.model.representation(later))
    next_z, future_z = encoded[:size], encoded[size:]
    temperature = jnp.exp(learner.log_temperature)

    def loss(model: Model) -> tuple[Float[Array, ""], tuple[Array, dict[str, Array]]]:
        z = model.representation(images)
        transitions = Transitions(z, batch.actions, batch.rewards, batch.discounts, next_z)
        found, (_, q) = critic_loss(
            model.critics,
            NO_STATISTICS,
            learner.targets,
            learner.actor,
            temperature,
            transitions,
            1.0,  # the transitions' own discounts hold γⁿ
            key=critic_key,
        )
        metrics = {"critic_loss": found, "q": q}
        if model.prediction is not None:
            windows = batch.inside.shape[1]
            predicted = model.prediction(z[:windows], batch.future_actions, stride=config.stride, first=batch.first)
            error = self_prediction_loss(predicted, future_z.reshape(predicted.shape), batch.inside)
            metrics["prediction_loss"] = error
            found = found + config.prediction_weight * error
        return found, (z, metrics)

    (_, (z, metrics)), gradients = eqx.filter_value_and_grad(loss, has_aux=True)(learner.model)
    changes, model_optimiser = make_optimiser(config).update(gradients, learner.model_optimiser)
    learner = learner._replace(
        model=eqx.apply_updates(learner.model, changes),
        model_optimiser=model_optimiser,
        updates=learner.updates + 1,
    )
    z = jax.lax.stop_gradient(z)
    spread, rank = spread_and_rank(z)
    learner, more = update_actor(learner, z, config, key=actor_key)
    return learner, metrics | more | {"spread": spread, "rank": rank}


def update_actor(
    learner: Learner, z: Float[Array, "batch representation"], config: PixelSACConfig, *, key: PRNGKeyArray
) -> tuple[Learner, dict[str, Float[Array, ""]]]:
    """A step of the actor, the temperature and the target critics, unless it is not their turn."""
    due = learner.updates % config.target_every == 0
    temperature = jnp.exp(learner.log_temperature)
    critics, optimiser = learner.model.critics, make_optimiser(config)

    def step(learner: Learner) -> tuple[Learner, dict[str, Array]]:
        (loss, entropy), gradients = jax.value_and_grad(actor_loss, has_aux=True)(
            learner.actor, critics, NO_STATISTICS, temperature, z, key=key
        )
        changes, actor_optimiser = optimiser.update(gradients, learner.actor_optimiser)
        action_size = learner.actor.head.bias.shape[0] // 2
        target = -float(action_size) if config.target_entropy is None else config.target_entropy
        slope = jax.grad(temperature_loss)(learner.log_temperature, entropy, target)
        change, temperature_optimiser = optimiser.update(slope, learner.temperature_optimiser)
        moved = learner._replace(
            actor=eqx.apply_updates(learner.actor, changes),
            actor_optimiser=actor_optimiser,
            log_temperature=eqx.apply_updates(learner.log_temperature, change),
            temperature_optimiser=temperature_optimiser,
            targets=moving_average(learner.targets, critics, config.target_rate),
        )
        return moved, {"actor_loss": loss, "entropy": entropy}

    def look(learner: Learner) -> tuple[Learner, dict[str, Array]]:
        loss, entropy = actor_loss(learner.actor, critics, NO_STATISTICS, temperature, z, key=key)
        return learner, {"actor_loss": loss, "entropy": entropy}

    learner, metrics = jax.lax.cond(due, step, look, learner)
    return learner, metrics | {"temperature": temperature}


@functools.partial(jax.jit, static_argnames=("config", "explore"))
def act(
    model: Model,
    actor: Actor,
    observations: UInt8[np.ndarray | Array, "environment stack height width 3"],
    number: int | Int[Array, ""],
    config: PixelSACConfig,
    *,
    explore: bool,
    key: PRNGKeyArray,
) -> Float[Array, "environment action"]:
    """Actions in [−1, 1]ᴬ, sampled or the mean's; `key` is a run's, and `number` tells its calls apart."""
    z = model.representation(stacked(jnp.asarray(observations)))
    if explore:
        return sample_action(actor, z, key=jax.random.fold_in(key, number))[0]
    return jnp.tanh(actor(z)[0])
