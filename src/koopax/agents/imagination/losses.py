"""The actor's losses: as SAC's, with the data's actions beside the values."""

import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray
from koopax.agents.sac.networks import Actor, Critics, Statistics, evaluate_critics, sample_action


def clone_loss(
    actor: Actor, observations: Float[Array, "batch state"], actions: Float[Array, "batch action"]
) -> Float[Array, ""]:
    """mean ‖tanh(m(s)) − a‖² over the data: the action that is played is the data's."""
    return jnp.mean((jnp.tanh(actor(observations)[0]) - actions) ** 2)


def guided_actor_loss(
    actor: Actor,
    critics: Critics,
    statistics: Statistics,
    temperature: Float[Array, ""],
    observations: Float[Array, "batch state"],
    known: tuple[Float[Array, "known state"], Float[Array, "known action"]],
    clone_weight: float,
    *,
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """mean (α log π − min Q) / mean |Q| + w · clone_loss, the scale without gradient; also the entropy.

    Dividing by |Q| makes one weight serve rewards of any size. `known` are states and actions of the data.
    """
    actions, log_density = sample_action(actor, observations, key=key)
    q, _ = evaluate_critics(critics, statistics, observations, actions, training=False)
    least = jnp.min(q, axis=0)
    scale = jax.lax.stop_gradient(1 / (jnp.mean(jnp.abs(least)) + 1e-6))
    loss = scale * jnp.mean(temperature * log_density - least) + clone_weight * clone_loss(actor, *known)
    return loss, -jnp.mean(log_density)
