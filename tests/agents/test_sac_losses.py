"""SAC's losses against twins written out in NumPy, one example at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from koopax.agents.sac.losses import actor_loss, critic_loss, td_target, temperature_loss
from koopax.agents.sac.networks import Actor, make_critics, sample_action
from koopax.agents.sac.replay import Transitions
from koopax.collection.policies import LOG_STD_RANGE

STATE, ACTION, BATCH, HIDDEN = 5, 2, 7, (8, 6)


def make_batch(seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    continues = np.array([1, 0, 1, 1, 0, 1, 1], np.float32)
    parts = draw(BATCH, STATE), np.tanh(draw(BATCH, ACTION)), draw(BATCH), continues, draw(BATCH, STATE)
    return Transitions(*map(jnp.asarray, parts))


def make_networks(norm):
    actor = Actor(STATE, ACTION, HIDDEN, key=jax.random.key(1))
    critics = make_critics(STATE, ACTION, HIDDEN, norm=norm, key=jax.random.key(2))
    return actor, critics, tuple(critic.initial_statistics() for critic in critics)


def affine(layer, x):
    return x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64)


def numpy_sample(actor, observations, key):
    """Action and log-density by the change of variables, with the density of tanh(u) written directly."""
    x = np.asarray(observations, np.float64)
    for layer in actor.layers:
        x = np.maximum(affine(layer, x), 0)
    mean, raw = np.split(affine(actor.head, x), 2, axis=-1)
    low, high = LOG_STD_RANGE
    std = np.exp(low + (high - low) * (np.tanh(raw) + 1) / 2)
    u = mean + std * np.asarray(jax.random.normal(key, mean.shape))
    a = np.tanh(u)
    density = np.exp(-0.5 * ((u - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi)) / (1 - a**2)
    return a, np.log(density).sum(axis=-1)


def numpy_critic(critic, x, batch_statistics=True):
    x = np.asarray(x, np.float64)

    def norm(i, x, axis):
        mean, variance = x.mean(axis, keepdims=True), x.var(axis, keepdims=True)
        if critic.norm == "batch" and not batch_statistics:
            mean, variance = 0.0, 1.0  # the initial running statistics
        scale, offset = np.asarray(critic.norms[i].scale), np.asarray(critic.norms[i].offset)
        return (x - mean) / np.sqrt(variance + 1e-5) * scale + offset

    if critic.norm == "batch":
        x = norm(0, x, 0)
    for i, layer in enumerate(critic.layers):
        x = affine(layer, x)
        if critic.norm == "layer":
            x = norm(i, x, 1)
        x = np.maximum(x, 0)
        if critic.norm == "batch":
            x = norm(i + 1, x, 0)
    return affine(critic.head, x)[:, 0]


def test_log_density_matches_change_of_variables():
    actor, _, _ = make_networks("none")
    key = jax.random.key(3)
    batch = make_batch()
    actions, log_density = sample_action(actor, batch.observations, key=key)
    expected_actions, expected = numpy_sample(actor, batch.observations, key)
    np.testing.assert_allclose(actions, expected_actions, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(log_density, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_critic_loss(norm):
    actor, critics, statistics = make_networks(norm)
    targets = None if norm == "batch" else make_critics(STATE, ACTION, HIDDEN, norm=norm, key=jax.random.key(9))
    batch, key, alpha, gamma = make_batch(), jax.random.key(4), 0.3, 0.97
    loss, (_, mean_q) = critic_loss(critics, statistics, targets, actor, jnp.float32(alpha), batch, gamma, key=key)

    next_actions, log_density = numpy_sample(actor, batch.next_observations, key)
    now = np.concatenate([batch.observations, batch.actions], axis=1)
    after = np.concatenate([batch.next_observations, next_actions], axis=1)
    if norm == "batch":
        joint = [numpy_critic(critic, np.concatenate([now, after])) for critic in critics]
        q, next_q = [j[:BATCH] for j in joint], [j[BATCH:] for j in joint]
    else:
        q = [numpy_critic(critic, now) for critic in critics]
        next_q = [numpy_critic(critic, after) for critic in targets]
    expected = 0.0
    for i in range(BATCH):
        y = batch.rewards[i]
        if batch.continues[i]:
            y += gamma * (min(next_q[0][i], next_q[1][i]) - alpha * log_density[i])
        expected += sum((values[i] - y) ** 2 for values in q) / BATCH
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    np.testing.assert_allclose(mean_q, np.mean(q), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_actor_loss(norm):
    actor, critics, statistics = make_networks(norm)
    batch, key, alpha = make_batch(), jax.random.key(5), 0.2
    loss, entropy = actor_loss(actor, critics, statistics, jnp.float32(alpha), batch.observations, key=key)
    actions, log_density = numpy_sample(actor, batch.observations, key)
    x = np.concatenate([batch.observations, actions], axis=1)
    q = np.min([numpy_critic(critic, x, batch_statistics=False) for critic in critics], axis=0)
    np.testing.assert_allclose(loss, np.mean(alpha * log_density - q), rtol=1e-4)
    np.testing.assert_allclose(entropy, -np.mean(log_density), rtol=1e-4)


def test_target_bootstraps_at_a_time_limit_and_not_at_a_termination():
    rewards, next_q, log_density = jnp.array([1.0, 1.0]), jnp.array([[10.0, 10.0], [8.0, 8.0]]), jnp.array([2.0, 2.0])
    # The first row was cut by a time limit (it continues), the second truly ended.
    y = td_target(rewards, jnp.array([1.0, 0.0]), next_q, log_density, jnp.float32(0.5), 0.9)
    np.testing.assert_allclose(y, [1 + 0.9 * (8 - 0.5 * 2), 1.0], rtol=1e-6)


def test_target_has_no_gradient():
    slope = jax.grad(lambda q: td_target(jnp.ones(2), jnp.ones(2), q, jnp.zeros(2), jnp.float32(0.0), 0.9).sum())
    np.testing.assert_array_equal(slope(jnp.ones((2, 2))), 0)


def test_temperature_grows_below_the_target_entropy():
    slope = jax.grad(temperature_loss)
    assert slope(jnp.float32(0.0), jnp.float32(-3.0), -2.0) < 0  # descending raises log α
    assert slope(jnp.float32(0.0), jnp.float32(-1.0), -2.0) > 0


def test_batch_statistics_move_only_in_training():
    _, critics, statistics = make_networks("batch")
    x = 3 + 2 * jax.random.normal(jax.random.key(0), (4096, STATE + ACTION))
    _, kept = critics[0](x, statistics[0], False)
    _, moved = critics[0](x, statistics[0], True)
    np.testing.assert_array_equal(kept[0].mean, 0)
    np.testing.assert_allclose(moved[0].mean, 0.03, rtol=0.1)
    np.testing.assert_allclose(moved[0].variance, 0.99 + 0.04, rtol=0.02)
