"""The noise of a stochastic Koopman model against the recurrence it solves and against samples."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import koopax
from koopax import DynamicsModel, Episodes, KoopaxError, load_model
from koopax.models.networks import MLP, LinearPath
from koopax.models.spectrum import discretise
from koopax.models.stochastic import SPEED, LatentNoise, carried_variance


def forced(seed, episodes=30, steps=40):
    """A damped swing under noise that is the stronger the farther it is out: no constant width is right."""
    rng = np.random.default_rng(seed)
    observations, actions, rewards = [], [], []
    for _ in range(episodes):
        state, rows, pushes = rng.normal(size=2), [], rng.normal(size=(steps, 1))
        for push in pushes[:, 0]:
            rows.append(state)
            turned = np.array([0.95 * state[0] + 0.2 * state[1], -0.2 * state[0] + 0.95 * state[1] + 0.1 * push])
            state = turned + 0.3 * abs(state[0]) * rng.normal(size=2)
        observations.append(np.stack([*rows, state]))
        actions.append(pushes)
        rewards.append(-(observations[-1][:-1, 0] ** 2))
    return Episodes.from_arrays(observations, actions, rewards)


SMALL = {"latent_size": 8, "encoder_hidden": (16,), "decoder_hidden": (16,), "action_history": 1}


@pytest.fixture(scope="module")
def trained():
    train, validation = forced(0), forced(1)
    model = DynamicsModel.create("koopman-stochastic", train, key=jax.random.key(0), **SMALL)
    return koopax.fit(model, train, validation=validation, horizon=10, steps=400, batch_size=32, seed=0).model


@pytest.mark.parametrize("spectrum", ["paper", "unitary", "multiscale"])
def test_the_closed_form_is_the_recurrence(spectrum):
    model = DynamicsModel.create("koopman-stochastic", forced(0, 3), key=jax.random.key(1), spectrum=spectrum, **SMALL)
    noise, core = model.noise, model.core
    random = jax.random.normal(jax.random.key(2), noise.raw_process.shape) / SPEED
    noise = eqx.tree_at(lambda n: n.raw_process, noise, random)
    start = jax.random.normal(jax.random.key(3), (core.latent_size,))
    squared = sum(np.asarray(part, np.float64) ** 2 for part in discretise(core.spectrum).transition)
    noise = eqx.tree_at(lambda n: n.start.layers[-1].bias, noise, jnp.linspace(-1, 1, len(noise.raw_start)))
    found = noise.variances(core, start, jnp.arange(1.0, 301.0))
    moved = np.tanh(np.asarray(noise.start(start), np.float64))
    now = np.exp(SPEED * np.asarray(noise.raw_start, np.float64) + 2 * moved)
    process = np.exp(SPEED * np.asarray(noise.raw_process, np.float64))
    for step in range(300):
        now = squared * now + process
        np.testing.assert_allclose(found[step], now, rtol=2e-3)


@cache
def variances():
    model = DynamicsModel.create("koopman-stochastic", forced(0, 3), key=jax.random.key(1), **SMALL)
    start = jnp.ones(model.core.latent_size)

    def after(time, begun=None):
        """The variances so long after the start, or after these."""
        noise = (
            model.noise if begun is None else eqx.tree_at(lambda n: n.raw_start, model.noise, jnp.log(begun) / SPEED)
        )
        return noise.variances(model.core, start, jnp.array([time]))[0]

    return after


@given(st.floats(0.1, 3.0), st.floats(0.1, 3.0))
def test_two_steps_of_any_length_are_one(first, second):
    after = variances()
    np.testing.assert_allclose(after(second, begun=after(first)), after(first + second), rtol=1e-3)


@pytest.mark.parametrize("kind", [MLP, LinearPath])
def test_carried_variance_is_that_of_samples(kind):
    """Through one wide layer, whose hidden units have little in common; and exactly without one."""
    inputs = jax.random.normal(jax.random.key(0), (40,))
    variance = jnp.linspace(1e-5, 1e-4, 40)
    for sizes, tolerance in (((40, 3), 0.02), ((40, 400, 3), 0.6)):
        network = kind(sizes, activation=jax.nn.gelu, key=jax.random.key(1))
        drawn = inputs + jnp.sqrt(variance) * jax.random.normal(jax.random.key(2), (40_000, 40))
        seen = jnp.var(jax.vmap(network)(drawn), axis=0)
        np.testing.assert_allclose(carried_variance(network, inputs, variance), seen, rtol=tolerance)


def test_training_teaches_it_where_it_is_unsure(trained):
    """The noise grows with the distance, and so do the intervals; they hold what happens and are sharper."""
    near, far = (trained.rollout(jnp.array([x, 0.0]), jnp.zeros((1, 1)), level=0.9) for x in (0.05, 2.5))
    assert (far.upper - far.lower)[0, 0] > 1.5 * (near.upper - near.lower)[0, 0]
    test = forced(2, 60)
    found = koopax.coverage(trained, test, level=0.9, horizon=10, windows=1000)
    assert abs(found.state.per_step.mean() - 0.9) < 0.04
    constant = koopax.calibrate(eqx.tree_at(lambda m: m.noise, trained, None), forced(1), horizon=10)
    wide = koopax.coverage(constant, test, level=0.9, horizon=10, windows=1000)
    assert found.state.width_per_step.mean() < 0.8 * wide.state.width_per_step.mean()
    assert found.state.crps < wide.state.crps


@pytest.mark.slow
def test_the_mean_is_trained_as_without_noise():
    """With a clip that nothing reaches, the likelihood leaves all parameters but its own as they would be."""
    train = forced(0, 4)
    settings = {"horizon": 10, "steps": 3, "batch_size": 4, "seed": 0, "clip": 1e9, "reencode_every": "never"}
    plain, noisy = (
        koopax.fit(DynamicsModel.create(name, train, key=jax.random.key(0), **SMALL), train, **settings).model
        for name in ("koopman", "koopman-stochastic")
    )
    untrained = DynamicsModel.create("koopman-stochastic", train, key=jax.random.key(0), **SMALL)
    for one, other in zip(jax.tree.leaves(plain.core), jax.tree.leaves(noisy.core), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(plain.decoder.layers[0].weight, noisy.decoder.layers[0].weight, rtol=1e-4, atol=1e-6)
    assert not np.allclose(noisy.noise.raw_process, untrained.noise.raw_process)


def test_batches_single_rollouts_and_files_agree(trained, tmp_path):
    trained.save(tmp_path / "noisy.koopax")
    again = load_model(tmp_path / "noisy.koopax")
    assert isinstance(again.noise, LatentNoise)
    states, actions = np.random.default_rng(0).normal(size=(3, 2)), np.zeros((3, 5, 1))
    batch = again.rollouts(states, actions, level=0.8)
    one = trained.rollout(states[1], actions[1], level=0.8, durations=np.ones(5))
    np.testing.assert_allclose(batch.upper[1], one.upper, rtol=1e-4)
    assert batch.latents is None


@pytest.mark.parametrize(
    ("core", "options", "named"),
    [
        ("mlp", {"latent_size": 8}, "'mlp'"),
        ("koopman", SMALL | {"bilinear": True}, "bilinear"),
        ("koopman", SMALL | {"adaptive": True, "context_size": 2}, "adaptive"),
        ("koopman", SMALL | {"reencode_every": 5}, "reencode_every=5"),
        ("koopman", SMALL | {"reward_hidden": (8,)}, "reward_hidden"),
    ],
)
def test_what_does_not_go_with_noise_is_refused(core, options, named):
    with pytest.raises(KoopaxError, match=named):
        DynamicsModel.create(core, forced(0, 3), key=jax.random.key(0), stochastic=True, **options)


def test_a_likelihood_without_noise_is_refused():
    train = forced(0, 3)
    model = DynamicsModel.create("koopman", train, key=jax.random.key(0), **SMALL)
    with pytest.raises(KoopaxError, match="no noise to learn"):
        koopax.fit(model, train, horizon=5, steps=1, likelihood_weight=1.0)
