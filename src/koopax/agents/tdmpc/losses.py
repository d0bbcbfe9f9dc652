"""TD-MPC's losses for a batch of windows, parallel over time wherever the dynamics core is.

Each is a mean over steps t of a window, weighted by ρᵗ; steps after the end of an episode count nothing. x_0 = h(o_0),
and x_1 … x_H are the core's rollout under the window's actions:

    consistency   mean over latent components of (x_{t+1} − h⁻(o_{t+1}))²
    reward        (R(x_t, a_t) − r_t)²
    value         Σᵢ (Qᵢ(x_t, a_t) − y_t)²,   y_t = r_t + γ c_t minᵢ Qᵢ⁻(h(o_{t+1}), π(h(o_{t+1}))), or more rewards
    policy        −minᵢ Qᵢ(x_t, π(x_t)),      with a gradient for π only

h⁻ and Q⁻ are moving averages; c_t is 0 only at a true termination, so a time limit bootstraps. Consistency and reward
are learned at t = 0 … H−1, with ρ = `decay`; values and policy, which cost most and want latents close to those of
real observations, at t = 0 … V−1, with ρ = `value_decay`. So a longer window leaves the balance of the terms as it is.
All terms have one factor more, Σ_{t<V} ρᵗ / V, so that with V = H and equal ρ it is TD-MPC's own loss.

With `return_steps` n > 1 a target has the rewards of n steps as they happened before it bootstraps at h(o_{t+n}), or at
an episode's last observation where that comes first (`multistep_target`). Rewards travel n times as fast; what they are
owed to is partly the behaviour of when they were collected.

Neighbouring steps say much the same, and a linear core passes over steps at little cost. With `loss_steps` consistency
and reward are taken at t < V and at some later t, evenly spaced from a random one on, which count for those between
them: in expectation the sums are the same.

A value head V, where there is one, adds (V(x) − minᵢ Qᵢ⁻(x, π(x)))² to the value loss, at the x = h(o_{t+n}) of the
targets, which have these values anyway; it shapes no latent.

x stands for what `WorldModel.features` reads of a latent, except in the reward. Of more than two Qs, minᵢ is over two
that are drawn.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from koopax._types import Array, Float, Int, PRNGKeyArray
from koopax.agents.tdmpc.config import LOSS_TERMS, TDMPCConfig
from koopax.agents.tdmpc.networks import Critics, Network, Targets, WorldModel, act, evaluate_critics, predict_reward


class Windows(NamedTuple):
    """A batch of windows, time-major."""

    observations: Float[Array, "time+1 batch state"]
    actions: Float[Array, "time batch action"]
    rewards: Float[Array, "time batch"]
    continues: Float[Array, "time batch"]
    """0 at a true termination, 1 elsewhere."""
    inside: Float[Array, "time batch"]
    """1 for steps of the episode, 0 after its end."""
    weights: Float[Array, " batch"]
    """Importance weights of prioritised replay."""


class ModelLoss(NamedTuple):
    """What the model's loss also found out."""

    terms: dict[str, Float[Array, ""]]
    seen: Float[Array, "valued batch feature"]
    """What `WorldModel.features` reads of the latents at which values are learned, x_0 … x_{V−1}."""
    errors: Float[Array, " batch"]
    """Mean absolute TD error of each window, weighted like its loss: its new priority."""
    q: Float[Array, ""]
    consistency_errors: Float[Array, " time"]
    """E‖x_t − h⁻(o_t)‖² / E‖h⁻(o_t) − mean‖² for t = 1 … H: 1 is as wrong as predicting the mean latent; NaN where no
    loss was taken."""


def two_of(values: Float[Array, "critic *batch"], *, key: PRNGKeyArray) -> Float[Array, "2 *batch"]:
    """The values of two critics that are drawn; of two, both."""
    if len(values) <= 2:
        return values
    return values[jax.random.choice(key, len(values), (2,), replace=False)]


def multistep_target(
    rewards: Float[Array, "time batch"],
    continues: Float[Array, "time batch"],
    inside: Float[Array, "time batch"],
    next_q: Float[Array, "critic valued batch"],
    discount: float,
    *,
    count: int,
) -> Float[Array, "valued batch"]:
    """y_t = Σ_{k<n} γᵏ C_k r_{t+k} + γⁿ C_n minᵢ Qᵢ⁻ for t = 0 … V−1, without gradient; C_k = c_t ⋯ c_{t+k−1}.

    Steps after the end of an episode add no reward and discount nothing: there `next_q` is of its last observation.
    """
    valued = next_q.shape[1]
    returns, factor = jnp.zeros_like(next_q[0]), jnp.ones_like(next_q[0])
    for ahead in range(count):
        step = slice(ahead, ahead + valued)
        returns += factor * inside[step] * rewards[step]
        factor *= jnp.where(inside[step] > 0, discount * continues[step], 1.0)
    return jax.lax.stop_gradient(returns + factor * jnp.min(next_q, axis=0))


def model_loss(
    model: WorldModel,
    targets: Targets,
    policy: Network,
    batch: Windows,
    config: TDMPCConfig,
    *,
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], ModelLoss]:
    """The weighted sum of consistency, reward and value loss."""
    horizon, valued = batch.rewards.shape[0], config.valued_steps
    latents = model.unroll(model.encoder(batch.observations[0]), batch.actions)
    steps, counts = loss_steps(horizon, valued, config.loss_steps, key=jax.random.fold_in(key, 2))
    step_weights = (counts[:, None] * decayed(config.decay, horizon) * batch.inside)[steps]
    value_weights = decayed(config.value_decay, valued) * batch.inside[:valued]

    # x_0 and what follows the chosen steps, of which the first V − 1 are x_1 … x_{V−1}.
    seen = model.features(jnp.concatenate([latents[:1], latents[1:][steps]]))
    goals = jax.lax.stop_gradient(targets.features(model, batch.observations[1:][steps]))
    consistency = jnp.mean((seen[1:] - goals) ** 2, axis=-1)
    reward = (predict_reward(model, latents[:-1][steps], batch.actions[steps]) - batch.rewards[steps]) ** 2

    ahead = config.return_steps
    reached = jax.lax.stop_gradient(model.features(model.encoder(batch.observations[ahead : ahead + valued])))
    next_q = evaluate_critics(targets.critics, reached, act(policy, reached, config.policy_std, key=key))
    next_q = two_of(next_q, key=jax.random.fold_in(key, 1))
    y = multistep_target(batch.rewards, batch.continues, batch.inside, next_q, config.discount, count=ahead)
    q = evaluate_critics(model.critics, seen[:valued], batch.actions[:valued])
    missed_values = jnp.sum((q - y) ** 2, axis=0)
    if model.value is not None:
        missed_values += (model.value(reached)[..., 0] - jax.lax.stop_gradient(jnp.min(next_q, axis=0))) ** 2

    value_mean = jnp.sum(decayed(config.value_decay, valued)) / valued
    step_share = value_mean / jnp.sum(decayed(config.decay, horizon))
    per_window = {
        "consistency": jnp.sum(step_weights * consistency, axis=0) * step_share,
        "reward": jnp.sum(step_weights * reward, axis=0) * step_share,
        "value": jnp.sum(value_weights * missed_values, axis=0) / valued,
    }
    terms = {name: jnp.mean(batch.weights * per_window[name]) for name in LOSS_TERMS}
    total = sum((getattr(config, f"{name}_weight") * terms[name] for name in LOSS_TERMS), start=jnp.zeros(()))
    missed = jnp.sum(value_weights * jnp.mean(jnp.abs(q - y), axis=0), axis=0)
    errors = missed / jnp.maximum(jnp.sum(value_weights, axis=0), 1e-6)
    relative = jnp.full(horizon, jnp.nan).at[steps].set(relative_errors(seen[1:], goals, batch.inside[steps]))
    found = ModelLoss(terms, seen[:valued], errors, jnp.mean(q), relative)
    return total, jax.lax.stop_gradient(found)


def loss_steps(
    horizon: int, valued: int, count: int | None, *, key: PRNGKeyArray
) -> tuple[Int[Array, " steps"], Float[Array, " time"]]:
    """The steps at which losses are taken, and for how many steps each one counts: the first V and some later ones."""
    if count is None or count >= horizon:
        return jnp.arange(horizon), jnp.ones(horizon)
    spacing = (horizon - valued) / (count - valued)
    later = valued + jnp.floor((jnp.arange(count - valued) + jax.random.uniform(key)) * spacing).astype(int)
    return jnp.concatenate([jnp.arange(valued), later]), jnp.where(jnp.arange(horizon) < valued, 1.0, spacing)


def relative_errors(
    predicted: Float[Array, "time batch feature"],
    goals: Float[Array, "time batch feature"],
    inside: Float[Array, "time batch"],
) -> Float[Array, " time"]:
    """Mean squared distance at each step, over windows that reach it, relative to the goals' variance there."""
    counted = inside / jnp.maximum(jnp.sum(inside, axis=1, keepdims=True), 1.0)
    centre = jnp.einsum("tb,tbf->tf", counted, goals)
    distance = jnp.einsum("tb,tbf->t", counted, (predicted - goals) ** 2)
    variance = jnp.einsum("tb,tbf->t", counted, (goals - centre[:, None]) ** 2)
    return distance / jnp.maximum(variance, 1e-6)


def policy_loss(
    policy: Network,
    critics: Critics,
    seen: Float[Array, "valued batch feature"],
    inside: Float[Array, "valued batch"],
    config: TDMPCConfig,
    *,
    key: PRNGKeyArray,
) -> Float[Array, ""]:
    """−Σ w min Q(x, π(x)) / Σ w over all steps and windows, w = ρᵗ inside an episode, on latents without gradient."""
    weights = decayed(config.value_decay, len(inside)) * inside
    actions = act(policy, seen, config.policy_std, key=key)
    values = evaluate_critics(critics, seen, actions)
    value = jnp.min(two_of(values, key=jax.random.fold_in(key, 1)), axis=0)
    return -jnp.sum(weights * value) / jnp.maximum(jnp.sum(weights), 1e-6)


def decayed(decay: float, count: int) -> Float[Array, "time 1"]:
    """ρᵗ for t = 0 … count−1, as a column."""
    return (decay ** jnp.arange(count, dtype=float))[:, None]
