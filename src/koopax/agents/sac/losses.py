"""SAC's three losses, each for a batch of transitions (s, a, r, c, s′) with c = 0 only at true terminations.

A time limit is no termination: there c = 1, so the target still bootstraps from s′.
"""

import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray
from koopax.agents.sac.networks import Actor, Critics, Statistics, evaluate_critics, sample_action
from koopax.agents.sac.replay import Transitions


def td_target(
    rewards: Float[Array, " batch"],
    continues: Float[Array, " batch"],
    next_q: Float[Array, "2 batch"],
    next_log_density: Float[Array, " batch"],
    temperature: Float[Array, ""],
    discount: float,
) -> Float[Array, " batch"]:
    """y = r + γ c (minᵢ Qᵢ(s′, a′) − α log π(a′|s′)), without gradient."""
    value = jnp.min(next_q, axis=0) - temperature * next_log_density
    return jax.lax.stop_gradient(rewards + discount * continues * value)


def critic_loss(
    critics: Critics,
    statistics: Statistics,
    targets: Critics | None,
    actor: Actor,
    temperature: Float[Array, ""],
    batch: Transitions,
    discount: float,
    *,
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], tuple[Statistics, Float[Array, ""]]]:
    """Σᵢ mean (Qᵢ(s, a) − y)², with a′ ~ π(·|s′); also the new batch statistics and the mean Q.

    With target networks, y comes from them. Without (`targets=None`), (s, a) and (s′, a′) go through the
    critics as one batch, so that batch normalisation sees the mixture of both action distributions, and y is
    the second half without gradient.
    """
    next_actions, next_log_density = sample_action(actor, batch.next_observations, key=key)
    size = batch.rewards.shape[0]
    if targets is None:
        joint, statistics = evaluate_critics(
            critics,
            statistics,
            jnp.concatenate([batch.observations, batch.next_observations]),
            jnp.concatenate([batch.actions, next_actions]),
            training=True,
        )
        q, next_q = joint[:, :size], joint[:, size:]
    else:
        q, statistics = evaluate_critics(critics, statistics, batch.observations, batch.actions, training=True)
        next_q, _ = evaluate_critics(targets, statistics, batch.next_observations, next_actions, training=False)
    y = td_target(batch.rewards, batch.continues, next_q, next_log_density, temperature, discount)
    return jnp.sum(jnp.mean((q - y) ** 2, axis=1)), (statistics, jnp.mean(q))


def actor_loss(
    actor: Actor,
    critics: Critics,
    statistics: Statistics,
    temperature: Float[Array, ""],
    observations: Float[Array, "batch state"],
    *,
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean of α log π(a|s) − minᵢ Qᵢ(s, a), a ~ π(·|s); also the entropy −mean log π."""
    actions, log_density = sample_action(actor, observations, key=key)
    q, _ = evaluate_critics(critics, statistics, observations, actions, training=False)
    return jnp.mean(temperature * log_density - jnp.min(q, axis=0)), -jnp.mean(log_density)


def temperature_loss(
    log_temperature: Float[Array, ""], entropy: Float[Array, ""], target_entropy: float
) -> Float[Array, ""]:
    """log α · (H − H̄): α grows while the entropy H is below its target H̄."""
    return log_temperature * jax.lax.stop_gradient(entropy - target_entropy)
