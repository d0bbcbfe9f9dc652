"""TD-MPC's losses against sequential twins, and what an update may and may not change."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koopax._errors import KoopaxError
from koopax.agents import TDMPCConfig
from koopax.agents.tdmpc.agent import learn, make_learner, update
from koopax.agents.tdmpc.losses import (
    Windows,
    loss_steps,
    model_loss,
    multistep_target,
    policy_loss,
    relative_errors,
    two_of,
)
from koopax.agents.tdmpc.networks import act
from koopax.agents.tdmpc.planning_model import AgentModel
from koopax.models.latent import begin, latent_of

STATE, ACTION, BATCH = 5, 2, 3
TINY = TDMPCConfig(
    dynamics="koopman",
    horizon=6,
    value_steps=4,
    latent_size=8,
    encoder_hidden=(8,),
    reward_hidden=(8,),
    hidden=(8, 8),
    decay=0.9,
    value_decay=0.6,
    policy_std=0.0,
    updates_per_dispatch=2,
    samples=8,
    elites=4,
    iterations=2,
    proposals=2,
)


compiled_loss = eqx.filter_jit(model_loss)


def config_for(dynamics):
    options = {
        "transformer": (("layers", 1), ("heads", 2), ("feedforward", 8)),
        "dssm": (("layers", 1), ("state_size", 4)),
    }
    return dataclasses.replace(TINY, dynamics=dynamics, core_options=options.get(dynamics, ()))


def random_windows(seed, horizon=TINY.horizon, count=None):
    rng = np.random.default_rng(seed)
    lead = () if count is None else (count,)
    lengths = rng.integers(1, horizon + 1, (*lead, BATCH))
    inside = (np.arange(horizon)[:, None] < lengths[..., None, :]).astype(np.float32)
    return Windows(
        observations=jnp.asarray(rng.normal(size=(*lead, horizon + 1, BATCH, STATE)), jnp.float32),
        actions=jnp.asarray(rng.uniform(-1, 1, (*lead, horizon, BATCH, ACTION)), jnp.float32),
        rewards=jnp.asarray(rng.normal(size=(*lead, horizon, BATCH)), jnp.float32),
        continues=jnp.asarray(rng.random((*lead, horizon, BATCH)) < 0.7, jnp.float32),
        inside=jnp.asarray(inside),
        weights=jnp.asarray(rng.uniform(0.1, 1, (*lead, BATCH)), jnp.float32),
    )


def scattered(learner, seed=0):
    """The learner with random noise on every parameter, so that no layer is zero and targets differ from the rest."""
    learned = learner.model, learner.policy, learner.targets
    leaves, structure = jax.tree.flatten(learned)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    noisy = [leaf + 0.2 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    model, policy, targets = jax.tree.unflatten(structure, noisy)
    return learner._replace(model=model, policy=policy, targets=targets)


def network(net, x):
    """A network of `networks.py` in NumPy, for one example."""
    for i, layer in enumerate(net.layers[:-1]):
        x = x @ np.asarray(layer.weight, float) + np.asarray(layer.bias, float)
        if i == 0 and net.norm is not None:
            x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
            x = np.tanh(x * np.asarray(net.norm.scale) + np.asarray(net.norm.offset))
        else:
            x = np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
    return x @ np.asarray(net.layers[-1].weight, float) + np.asarray(net.layers[-1].bias, float)


def normalised(latent, config):
    """What heads read of a latent, in NumPy."""
    seen = _normalised(latent, config.latent_norm)
    bound = config.latent_bound
    return seen if bound is None else seen / np.sqrt(1 + (seen**2).mean() / bound**2)


def _normalised(latent, kind):
    if kind == "layer":
        return (latent - latent.mean()) / np.sqrt(latent.var() + 1e-5)
    if kind == "simplex":
        powers = np.exp(latent.reshape(-1, 8))
        return (powers / powers.sum(axis=1, keepdims=True)).ravel()
    return latent


def refreshed(model, latent, config):
    """A latent after `refresh_every` steps, in NumPy."""
    width = model.core.predicted_size
    seen = latent[:width] if config.reader else normalised(latent[:width], config)
    made = network(model.refresher, seen)
    return latent + made if config.refresh == "latent" else np.concatenate([latent[:width], made])


def sequential_losses(learner, batch, config):
    """Window by window and step by step: the three losses of each window, and its mean absolute TD error.

    What a latent holds after the components that its core predicts is neither compared nor read.
    """
    model, policy, targets = learner.model, learner.policy, learner.targets
    width, step = model.core.predicted_size, eqx.filter_jit(model.core.step)

    def read(latent, reader=model.reader):
        predicted = np.asarray(latent, float)[:width]
        return normalised(predicted if reader is None else network(reader, predicted), config)

    factor = sum(config.value_decay**t for t in range(config.value_steps)) / config.value_steps
    share = factor / sum(config.decay**t for t in range(config.horizon))
    found, errors = [], []
    for b in range(BATCH):
        now = begin(model.core, jnp.asarray(network(model.encoder, np.asarray(batch.observations[0, b])), jnp.float32))
        terms, missed, weight_sum = np.zeros(3), 0.0, 0.0
        for t in range(config.horizon):
            latent, action = read(latent_of(now)), np.asarray(batch.actions[t, b])
            rewarded = latent if model.reader is None else np.asarray(latent_of(now), float)[:width]
            now = step(now, batch.actions[t, b])
            if config.refresh_every is not None and (t + 1) % config.refresh_every == 0:
                now = jnp.asarray(refreshed(model, np.asarray(now, float), config), jnp.float32)
            if not batch.inside[t, b]:
                continue
            reached = np.asarray(batch.observations[t + 1, b])
            gap = read(latent_of(now)) - read(network(targets.encoder, reached), targets.reader)
            joined = np.concatenate([latent, action])
            terms[0] += share * config.decay**t * np.mean(gap**2)
            reward = network(model.reward, np.concatenate([rewarded, action]))[0]
            terms[1] += share * config.decay**t * (reward - batch.rewards[t, b]) ** 2
            if t >= config.value_steps:
                continue
            seen = read(network(model.encoder, reached))
            following = np.concatenate([seen, np.tanh(network(policy, seen))])
            best = min(network(critic, following)[0] for critic in targets.critics)
            y = batch.rewards[t, b] + config.discount * batch.continues[t, b] * best
            gaps = np.array([network(critic, joined)[0] - y for critic in model.critics])
            if model.value is not None:
                terms[2] += config.value_decay**t * (network(model.value, seen)[0] - best) ** 2 / config.value_steps
            terms[2] += config.value_decay**t * np.sum(gaps**2) / config.value_steps
            missed += config.value_decay**t * np.mean(np.abs(gaps))
            weight_sum += config.value_decay**t
        found.append(terms * float(batch.weights[b]))
        errors.append(missed / weight_sum)
    return np.mean(found, axis=0), np.array(errors)


OPTIONS = {
    "context": {
        "refresh_every": 2,
        "latent_norm": "simplex",
        "core_options": (("context_size", 3), ("pilot_modes", 4)),
    },
    "latent": {"refresh_every": 4, "refresh": "latent", "latent_norm": "layer"},
    "bilinear": {"core_options": (("bilinear", True),)},
    "value head": {"value_head": (7,), "latent_bound": 0.7},
    "reader": {"reader": (6, 8), "latent_norm": "simplex", "refresh_every": 3, "refresh": "latent"},
}


@pytest.mark.quick("koopman")
@pytest.mark.parametrize(
    ("dynamics", "options"),
    [
        ("koopman", {}),
        ("mlp", {}),
        ("koopman", OPTIONS["context"]),
        ("koopman", OPTIONS["reader"]),
        ("koopman", OPTIONS["value head"]),
        *(pytest.param("koopman", OPTIONS[name], marks=pytest.mark.slow) for name in ("latent", "bilinear")),
        pytest.param("mlp", OPTIONS["latent"], marks=pytest.mark.slow),
        *(pytest.param(name, {}, marks=pytest.mark.slow) for name in ("gru", "transformer", "dssm")),
    ],
)
def test_model_loss_equals_its_sequential_twin(dynamics, options):
    config = dataclasses.replace(config_for(dynamics), **options)
    learner, batch = scattered(make_learner(config, STATE, ACTION)), random_windows(0)
    total, found = compiled_loss(learner.model, learner.targets, learner.policy, batch, config, key=jax.random.key(0))
    terms, errors = sequential_losses(learner, batch, config)
    names = ("consistency", "reward", "value")
    for name, expected in zip(names, terms, strict=True):
        np.testing.assert_allclose(found.terms[name], expected, rtol=2e-4, err_msg=name)
    np.testing.assert_allclose(found.errors, errors, rtol=2e-4)
    np.testing.assert_allclose(total, np.dot([2.0, 0.5, 0.1], terms), rtol=2e-4)


def test_losses_at_some_steps_are_those_at_all_on_average():
    """Of steps 4 and 5 one is drawn, and counts twice: the mean over both draws is the loss at all six steps."""
    learner, batch = scattered(make_learner(TINY, STATE, ACTION)), random_windows(0)
    sparse = dataclasses.replace(TINY, loss_steps=5)
    drawn = {}
    for seed in range(8):
        _, found = compiled_loss(
            learner.model, learner.targets, learner.policy, batch, sparse, key=jax.random.key(seed)
        )
        (missing,) = np.flatnonzero(np.isnan(found.consistency_errors))
        drawn[missing] = found
    assert set(drawn) == {4, 5}
    whole = compiled_loss(learner.model, learner.targets, learner.policy, batch, TINY, key=jax.random.key(0))[1]
    for name in ("consistency", "reward", "value"):
        mean = np.mean([found.terms[name] for found in drawn.values()])
        np.testing.assert_allclose(mean, whole.terms[name], rtol=1e-5, err_msg=name)
    for missing, found in drawn.items():
        known = np.arange(TINY.horizon) != missing
        np.testing.assert_allclose(found.consistency_errors[known], whole.consistency_errors[known], rtol=1e-4)
        np.testing.assert_allclose(found.errors, whole.errors, rtol=1e-5)


@pytest.mark.parametrize(("horizon", "valued", "count"), [(20, 2, 8), (20, 2, 7), (7, 3, 5), (5, 1, 4)])
def test_every_step_counts_once_on_average(horizon, valued, count):
    keys = jax.random.split(jax.random.key(0), 4000)
    steps, counts = jax.vmap(lambda key: loss_steps(horizon, valued, count, key=key))(keys)
    assert all(len(set(row)) == count for row in np.asarray(steps[:50]))
    np.testing.assert_array_equal(steps[:, :valued], np.broadcast_to(np.arange(valued), (4000, valued)))
    drawn = np.bincount(np.asarray(steps).ravel(), minlength=horizon) / len(keys)
    np.testing.assert_allclose(drawn * counts[0], 1.0, atol=0.1)


def test_a_number_of_loss_steps_that_cannot_be_is_refused():
    with pytest.raises(KoopaxError, match="loss_steps is 4"):
        dataclasses.replace(TINY, loss_steps=4)
    with pytest.raises(KoopaxError, match="value_at is"):
        dataclasses.replace(TINY, value_at=(1, 3, 5))
    with pytest.raises(KoopaxError, match="reader is"):
        dataclasses.replace(TINY, reader=())


def test_of_more_than_two_values_two_are_drawn():
    values = jnp.arange(5.0)[:, None] * jnp.ones((5, 4))
    drawn = {tuple(np.sort(two_of(values, key=jax.random.key(seed))[:, 0])) for seed in range(40)}
    assert len(drawn) > 5
    assert all(len(set(pair)) == 2 for pair in drawn)
    np.testing.assert_array_equal(two_of(values[:2], key=jax.random.key(0)), values[:2])


def test_relative_errors_are_those_of_the_windows_that_reach_a_step():
    """Predicting the mean of the goals is an error of 1 at every step; what lies after an episode does not count."""
    batch, rng = random_windows(9), np.random.default_rng(0)
    goals = rng.normal(size=(TINY.horizon, BATCH, 4))
    inside = np.array(batch.inside)
    inside[:, :2] = 1
    goals[inside == 0] = 1e6
    means = np.stack([goal[weight > 0].mean(axis=0) for goal, weight in zip(goals, inside, strict=True)])
    predicted = np.broadcast_to(means[:, None], goals.shape)
    np.testing.assert_allclose(relative_errors(*map(jnp.asarray, (predicted, goals, inside))), 1.0, rtol=1e-3)
    halfway = (predicted + goals) / 2
    np.testing.assert_allclose(relative_errors(*map(jnp.asarray, (halfway, goals, inside))), 0.25, rtol=1e-3)


@pytest.fixture(scope="module")
def learner():
    return scattered(make_learner(TINY, STATE, ACTION))


def test_a_termination_cuts_the_target_and_a_time_limit_does_not(learner):
    batch = random_windows(1)._replace(inside=jnp.ones((TINY.horizon, BATCH)))

    def value(continues):
        shaped = batch._replace(continues=jnp.full_like(batch.continues, continues))
        return compiled_loss(learner.model, learner.targets, learner.policy, shaped, TINY, key=jax.random.key(0))[1]

    q_errors = value(0.0).errors
    blind = learner.targets._replace(critics=jax.tree.map(jnp.zeros_like, learner.targets.critics))
    without_targets = compiled_loss(learner.model, blind, learner.policy, batch, TINY, key=jax.random.key(0))[1].errors
    np.testing.assert_allclose(q_errors, without_targets, rtol=1e-5)
    assert np.all(np.abs(value(1.0).errors - q_errors) > 1e-4)


def test_steps_after_the_end_count_nothing(learner):
    batch = random_windows(2)
    outside = 1 - batch.inside
    changed = batch._replace(
        rewards=batch.rewards + 100 * outside,
        actions=batch.actions + 0.1 * outside[..., None],
        observations=batch.observations.at[1:].add(5 * outside[..., None]),
    )
    before, after = (
        compiled_loss(learner.model, learner.targets, learner.policy, one, TINY, key=jax.random.key(0))
        for one in (batch, changed)
    )
    np.testing.assert_allclose(before[0], after[0], rtol=1e-5)
    np.testing.assert_allclose(before[1].errors, after[1].errors, rtol=1e-5)


def test_policy_loss_is_the_weighted_value_of_its_actions(learner):
    latents = jax.random.normal(jax.random.key(3), (4, BATCH, learner.model.core.predicted_size))
    inside = random_windows(4).inside[:4]
    found = policy_loss(learner.policy, learner.model.critics, latents, inside, TINY, key=jax.random.key(0))
    total, weights = 0.0, 0.0
    for t in range(4):
        for b in range(BATCH):
            latent = np.asarray(latents[t, b], float)
            joined = np.concatenate([latent, np.tanh(network(learner.policy, latent))])
            weight = 0.6**t * float(inside[t, b])
            total += weight * min(network(critic, joined)[0] for critic in learner.model.critics)
            weights += weight
    np.testing.assert_allclose(found, -total / weights, rtol=2e-4)


def test_an_update_moves_targets_every_second_time_and_policy_by_its_own_optimiser(learner):
    step = jax.jit(lambda learner, batch: update(learner, batch, TINY, key=jax.random.key(1))[0])
    first = step(learner, random_windows(5))
    jax.tree.map(np.testing.assert_array_equal, first.targets, learner.targets)
    second = step(first, random_windows(6))
    online = (second.model.encoder, second.model.reader, second.model.critics)
    expected = jax.tree.map(lambda old, new: old + 0.01 * (new - old), tuple(first.targets), online)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), tuple(second.targets), expected)
    # Without values there is nothing to gain for the policy; the model's gradients must not reach it.
    flat = learner._replace(
        model=eqx.tree_at(lambda m: m.critics, learner.model, jax.tree.map(jnp.zeros_like, learner.model.critics))
    )
    value_free = dataclasses.replace(TINY, value_weight=0.0)
    after, _, _ = eqx.filter_jit(update)(flat, random_windows(5), value_free, key=jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, after.policy, flat.policy)
    assert np.any(np.asarray(after.model.encoder.layers[0].weight) != np.asarray(flat.model.encoder.layers[0].weight))


@pytest.mark.slow
def test_many_updates_in_one_call_are_those_one_by_one_and_compile_once(learner):
    """The first call is on a fresh learner, whose types must be those that an update returns."""
    learn.clear_cache()
    batches = random_windows(7, count=2)
    fresh = make_learner(TINY, STATE, ACTION)
    one_by_one = fresh
    seed_key = jax.random.key(5)
    step = jax.jit(lambda learner, batch, key: update(learner, batch, TINY, key=key)[:2])
    errors = []
    for i in range(2):
        key = jax.random.fold_in(seed_key, i)
        one_by_one, error = step(one_by_one, jax.tree.map(lambda leaf, i=i: leaf[i], batches), key)
        errors.append(error)
    together, found, _ = learn(make_learner(TINY, STATE, ACTION), batches, TINY, key=seed_key)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), together, one_by_one)
    np.testing.assert_allclose(found, errors, rtol=1e-4)
    learn(together, random_windows(8, count=2), TINY, key=seed_key)
    assert learn._cache_size() == 1


def test_a_value_head_values_plans_and_shapes_no_latent():
    """Its loss has a gradient for itself alone; plans are valued by it, or by Qs and policy where there is none."""
    config = dataclasses.replace(TINY, value_head=(7,), reader=(6, 8))
    learner, batch = scattered(make_learner(config, STATE, ACTION)), random_windows(3)
    without = eqx.tree_at(lambda model: model.value, learner.model, None)

    def gradients(model):
        parts = learner.targets, learner.policy, batch, config
        return eqx.filter_jit(eqx.filter_grad(lambda m: model_loss(m, *parts, key=jax.random.key(0))[0]))(model)

    found, expected = gradients(learner.model), gradients(without)
    assert all(jnp.any(leaf != 0) for leaf in jax.tree.leaves(found.value))
    rest = eqx.tree_at(lambda model: model.value, found, None)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), rest, expected)

    latents = jax.random.normal(jax.random.key(1), (4, learner.model.core.latent_size))
    features = np.asarray(learner.model.features(latents), float)
    by_head = AgentModel(learner.model, learner.policy, 0.0).value(latents)
    np.testing.assert_allclose(by_head, [network(learner.model.value, x)[0] for x in features], rtol=1e-4, atol=1e-5)
    joined = [np.concatenate([x, np.tanh(network(learner.policy, x))]) for x in features]
    lowest = [min(network(critic, each)[0] for critic in learner.model.critics) for each in joined]
    np.testing.assert_allclose(AgentModel(without, learner.policy, 0.0).value(latents), lowest, rtol=1e-4, atol=1e-5)


@pytest.mark.quick("koopman")
@pytest.mark.parametrize(
    ("dynamics", "options"),
    [
        ("koopman", {}),
        ("koopman", OPTIONS["context"]),
        ("koopman", OPTIONS["reader"]),
        pytest.param("koopman", OPTIONS["latent"], marks=pytest.mark.slow),
        ("mlp", {}),
        pytest.param("transformer", {}, marks=pytest.mark.slow),
    ],
)
def test_planning_model_sees_what_the_losses_see(dynamics, options):
    config = dataclasses.replace(config_for(dynamics), **options)
    learner = scattered(make_learner(config, STATE, ACTION))
    agent = AgentModel(learner.model, learner.policy, 0.0)
    observation = jax.random.normal(jax.random.key(0), (STATE,))
    actions = jax.random.uniform(jax.random.key(1), (4, 3, ACTION), minval=-1)
    start = eqx.filter_jit(agent.encode)(observation, horizon=6)
    rollout = eqx.filter_jit(agent.rollout)
    latents = rollout(start, actions)
    encoded = jnp.broadcast_to(learner.model.encoder(observation), (3, learner.model.core.latent_size))
    np.testing.assert_allclose(latents, eqx.filter_jit(learner.model.unroll)(encoded, actions), atol=1e-5)
    assert agent.reward(latents, actions).shape == (4, 3)
    # The policy's proposals are the actions that it takes along their own rollout.
    proposed = eqx.filter_jit(agent.propose)(start, horizon=4, count=2, key=jax.random.key(2))
    followed = rollout(start, proposed)
    seen = learner.model.features(followed[:-1])
    np.testing.assert_allclose(proposed, act(learner.policy, seen, 0.0, key=jax.random.key(3)), atol=1e-5)


@given(seed=st.integers(0, 10_000), count=st.integers(1, 4))
def test_a_target_of_several_rewards_is_a_walk_to_the_end_of_the_episode_at_most(seed, count):
    batch, valued, discount = random_windows(seed), TINY.horizon - count + 1, 0.9
    rewards, continues, inside = (np.asarray(leaf) for leaf in (batch.rewards, batch.continues, batch.inside))
    next_q = np.random.default_rng(seed).normal(size=(2, valued, BATCH)).astype(np.float32)
    found = multistep_target(batch.rewards, batch.continues, batch.inside, jnp.asarray(next_q), discount, count=count)
    for window in range(BATCH):
        length = int(inside[:, window].sum())
        for start in range(min(valued, length)):
            walked, weight = 0.0, 1.0
            for step in range(start, min(start + count, length)):
                walked += weight * rewards[step, window]
                weight *= discount * continues[step, window]
            walked += weight * next_q[:, start, window].min()
            assert found[start, window] == pytest.approx(walked, rel=1e-4, abs=1e-5)


def test_a_target_of_several_rewards_bootstraps_where_it_ends():
    """With values that are zero but for one observation's, only targets that end there see it."""
    config = dataclasses.replace(TINY, value_steps=2, return_steps=3)
    batch = random_windows(3)._replace(inside=jnp.ones((TINY.horizon, BATCH)))
    learner = scattered(make_learner(config, STATE, ACTION))

    def value_loss(observations):
        moved = batch._replace(observations=observations)
        return model_loss(learner.model, learner.targets, learner.policy, moved, config, key=jax.random.key(0))[1]

    def terms(observations):
        return value_loss(observations).terms["value"]

    # Observations 3 and 4 end the targets of steps 0 and 1; 1 and 2 are seen by no value.
    changes = [terms(batch.observations.at[step].add(1.0)) - terms(batch.observations) for step in range(1, 6)]
    assert [bool(abs(change) > 1e-6) for change in changes] == [False, False, True, True, False]


def test_more_rewards_than_a_window_has_are_refused():
    with pytest.raises(KoopaxError, match="return_steps is 4; of windows of 6 steps with values at 4 of them, use at"):
        dataclasses.replace(TINY, return_steps=4)
