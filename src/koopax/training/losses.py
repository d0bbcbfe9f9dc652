"""The loss terms of a dynamics model, one function each, in normalised units.

Batches are time-major: states `[time+1, batch, state]`, actions `[time, batch, action]`, rewards `[time, batch]`.
"""

import jax
import jax.numpy as jnp

from koopax._types import Array, Float, Int, PRNGKeyArray
from koopax.data.windows import Windows
from koopax.models.dynamics import DynamicsModel
from koopax.training.config import TrainConfig


def weights(config: TrainConfig) -> dict[str, float]:
    """The weight of each term, by the name it is logged under."""
    return {
        "state": config.state_weight,
        "reward": config.reward_weight,
        "consistency": config.consistency_weight,
    }


def state_loss(predicted: Float[Array, "time batch state"], true: Float[Array, "time batch state"]) -> Float[Array, ""]:
    """Mean of (d_ξ(x̂_{t+k}) − s_{t+k})² over k = 1 … T, batch and components."""
    return jnp.mean((predicted - true) ** 2)


def reward_loss(predicted: Float[Array, "time batch"], true: Float[Array, "time batch"]) -> Float[Array, ""]:
    """Mean of (r̂_{t+k} − r_{t+k})² over k = 0 … T−1 and batch."""
    return jnp.mean((predicted - true) ** 2)


def consistency_loss(
    model: DynamicsModel,
    latents: Float[Array, "time batch latent"],
    true_states: Float[Array, "time batch state"],
) -> Float[Array, ""]:
    """Mean of (x̂_{t+k} − g_θ(s_{t+k}))² over k = 1 … T, batch and latent components."""
    targets = jax.vmap(jax.vmap(model.encoder))(true_states)
    return jnp.mean((latents - targets) ** 2)


def random_steps(horizon: int, count: int | None, *, key: PRNGKeyArray) -> Int[Array, " steps"] | slice:
    """Steps of a window on which a loss is taken: evenly spaced from a random offset, or all of them.

    Each step is as likely as any other, so the mean over the chosen steps has the expectation of the mean over all;
    neighbouring steps say much the same, so little is lost by leaving some out, and decoding or encoding is what costs.
    """
    if count is None or count >= horizon:
        return slice(None)
    return jnp.floor((jnp.arange(count) + jax.random.uniform(key)) * (horizon / count)).astype(int)


def loss_terms(
    model: DynamicsModel, windows: Windows, config: TrainConfig, *, key: PRNGKeyArray
) -> dict[str, Float[Array, ""]]:
    """The terms that carry weight, unweighted, by name."""
    states = model.normaliser.normalise_state(windows.states)
    actions = model.normaliser.normalise_action(windows.actions)
    rewards = model.normaliser.normalise_reward(windows.rewards)
    start = jax.vmap(model.encoder)(states[0])
    over_batch = None if windows.durations is None else 1
    latents = jax.vmap(model.core.rollout, in_axes=(0, 1, over_batch), out_axes=1)(start, actions, windows.durations)

    read_key, consistency_key = jax.random.split(key)
    before = jnp.concatenate([start[None], latents[:-1]])
    chosen = random_steps(latents.shape[0], config.loss_steps, key=read_key)
    read = jax.vmap(jax.vmap(model.read))
    predicted_states, predicted_rewards = read(before[chosen], latents[chosen], actions[chosen])

    wanted = {name for name, weight in weights(config).items() if weight > 0}
    terms = {}
    if "state" in wanted:
        terms["state"] = state_loss(predicted_states, states[1:][chosen])
    if "reward" in wanted:
        terms["reward"] = reward_loss(predicted_rewards, rewards[chosen])
    if "consistency" in wanted:
        chosen = random_steps(latents.shape[0], config.consistency_steps, key=consistency_key)
        terms["consistency"] = consistency_loss(model, latents[chosen], states[1:][chosen])
    return terms


def total_loss(terms: dict[str, Array], config: TrainConfig) -> Float[Array, ""]:
    """The weighted sum of the terms."""
    weight = weights(config)
    return jnp.asarray(sum(weight[name] * term for name, term in terms.items()))
