"""The streaming estimator: a Kalman filter, equal to the textbook's and to itself in a batch, with gaps on the way."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from koopax import DynamicsModel, Episodes, Estimator, KoopaxError, fit_noise
from koopax.evaluation.estimator import filter_episode
from koopax.evaluation.filter_noise import FilterNoise, trusting
from koopax.training.linear_start import linear_start

TURN = np.array([[0.9, -0.25, 0.1], [0.25, 0.9, 0.0], [0.0, 0.1, 0.8]])  # not normal: its modes are not orthogonal
PUSH = np.array([[0.0], [0.3], [0.5]])
PROCESS, SENSOR = 0.05, 0.3


@cache
def noisy(episodes=30, length=100, sensor=SENSOR, process=PROCESS, seed=0):
    """A linear system with noise in its steps and in its sensors, and the states without the sensors'."""
    rng, found, true = np.random.default_rng(seed), ([], []), []
    for _ in range(episodes):
        states, actions = [rng.normal(size=3)], rng.normal(size=(length, 1))
        for action in actions:
            states.append(TURN @ states[-1] + PUSH @ action + process * rng.normal(size=3))
        true.append(np.stack(states))
        found[0].append(true[-1] + sensor * rng.normal(size=true[-1].shape))
        found[1].append(actions)
    return Episodes.from_arrays(*found), true


@cache
def linear_model():
    """A Koopman model that is that system, by least squares on clean data."""
    clean, _ = noisy(sensor=0.0, process=0.0)
    options = {"latent_size": 6, "encoder_hidden": (4,), "decoder_hidden": (4,), "action_embedding": 2}
    model = DynamicsModel.create("koopman-small", clean, **options, action_hidden=(3,), key=jax.random.key(0))
    return linear_start(model, clean)


def by_the_textbook(states, actions, process, sensor):
    """x ← A x + B a, P ← A P Aᵀ + Q; K = P (P + R)⁻¹, x ← x + K (y − x), P ← (1 − K) P; rows of NaN are missing."""
    x, P, found = states[0], sensor, [states[0]]
    for y, a in zip(states[1:], actions, strict=True):
        x, P = TURN @ x + PUSH @ a, TURN @ P @ TURN.T + process
        if np.isfinite(y).all():
            K = P @ np.linalg.inv(P + sensor)
            x, P = x + K @ (y - x), P - K @ P
        found.append(x)
    return np.stack(found)


def in_modes(model, covariance):
    """A covariance of raw states as one of the modes that they are encoded into, and a little for modes of nothing.

    The third mode has nothing of the system, which has a pair of conjugate modes and a real one.
    """
    encoder = np.array(jax.jacobian(model.encode)(jnp.zeros(3))[: model.core.modes_size])
    encoder[2::3] = 0
    nothing = np.abs(encoder).sum(axis=1) < 1e-6
    return encoder @ covariance @ encoder.T + 1e-3 * np.diag(nothing)


def test_it_is_the_textbooks_kalman_filter_on_a_linear_system():
    model, (data, _) = linear_model(), noisy(seed=1)
    with jax.enable_x64(True):
        precise = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf, model)
        process, sensor = PROCESS**2 * np.eye(3), SENSOR**2 * np.diag([1.0, 0.5, 2.0])
        noise = FilterNoise(*(jnp.asarray(in_modes(precise, each), jnp.float64) for each in (process, sensor)))
        states = np.asarray(data[0].observations, np.float64)
        states[np.random.default_rng(0).random(len(states)) < 0.3] = np.nan
        states[0] = data[0].observations[0]
        actions = np.asarray(data[0].actions, np.float64)
        found, _, _ = filter_episode(precise, noise, jnp.asarray(states), jnp.asarray(actions))
    np.testing.assert_allclose(found, by_the_textbook(states, actions, process, sensor), atol=1e-4)


@pytest.mark.parametrize("history", [1, 3])
def test_streaming_equals_the_batch(history):
    data, _ = noisy(4, 12)
    options = {"latent_size": 6, "encoder_hidden": (4,), "decoder_hidden": (4,), "action_history": 2}
    model = DynamicsModel.create("koopman", data, **options, history=history, key=jax.random.key(0))
    noise = fit_noise(model, data)
    states, actions = np.array(data[0].observations), np.asarray(data[0].actions)
    states[3:5], states[8, 1] = np.nan, np.nan
    batch, latents, _ = filter_episode(model, noise, jnp.asarray(states), jnp.asarray(actions))
    stream = Estimator(model, noise)
    for number, state in enumerate(states):
        stream.observe(None if number == 4 else state)
        np.testing.assert_allclose(stream.latent, latents[number], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(stream.state, batch[number], rtol=1e-4, atol=1e-4)
        if number < len(actions):
            stream.act(actions[number])
    assert np.isfinite(batch).all()


@pytest.mark.parametrize("action_history", [1, 3])
def test_an_observation_without_noise_is_the_filtered_state(action_history):
    """Also where decoding what was encoded is not the observation: an untrained model has no idea.

    And predictions from there are those of a rollout from the observation, whatever was remembered of actions.
    """
    data, _ = noisy(4, 12)
    options = {"latent_size": 6, "encoder_hidden": (4,), "decoder_hidden": (4,), "action_history": action_history}
    model = DynamicsModel.create("koopman", data, **options, key=jax.random.key(0))
    states, actions = np.array(data[0].observations), np.asarray(data[0].actions)
    states[3:5] = np.nan
    found = filter_episode(model, trusting(model), jnp.asarray(states), jnp.asarray(actions))[0]
    seen = ~np.isnan(states).any(1)
    np.testing.assert_allclose(found[seen], states[seen], rtol=1e-4, atol=1e-4)
    ahead = model.rollout(states[2], actions[2:4]).states
    np.testing.assert_allclose(found[3:5], ahead, rtol=1e-4, atol=1e-4)


def test_noise_is_found_in_data_and_filtering_pays():
    model, (data, true) = linear_model(), noisy(seed=2)
    clean, _ = noisy(sensor=0.0, seed=2)
    noise, quiet = fit_noise(model, data), fit_noise(model, clean)
    expected = np.diag(in_modes(model, SENSOR**2 * np.eye(3)))
    modes = slice(0, 2)  # the system's own: one of a pair, and the real one
    found = 2 * np.asarray(noise.observation)[modes]
    np.testing.assert_allclose(found, (expected[:3] + expected[3:])[modes], rtol=0.25)
    assert (np.asarray(quiet.observation)[modes] < 0.05 * np.asarray(noise.observation)[modes]).all()

    def error(noise):
        missed = [
            filter_episode(model, noise, jnp.asarray(e.observations), jnp.asarray(e.actions))[0] - t
            for e, t in zip(list(data)[:5], true[:5], strict=True)
        ]
        return np.mean(np.square(missed))

    assert error(noise) < 0.5 * error(trusting(model))


def test_errors_of_a_wrong_model_are_not_taken_for_noise_of_the_sensors():
    """An untrained model's encoder errs from step to step as noisy sensors would; these are exact."""
    (data, _), (other, _) = noisy(sensor=0.0, seed=3), noisy(5, sensor=0.0, seed=4)
    options = {"latent_size": 6, "encoder_hidden": (4,), "decoder_hidden": (4,)}
    wrong = DynamicsModel.create("koopman", data, **options, key=jax.random.key(0))
    noise = fit_noise(wrong, data)

    def error(noise):
        missed = []
        for episode in other:
            states, true = np.array(episode.observations), np.asarray(episode.observations)
            states[1:][np.random.default_rng(0).random(len(states) - 1) < 0.3] = np.nan
            missed.append(filter_episode(wrong, noise, jnp.asarray(states), jnp.asarray(episode.actions))[0] - true)
        return np.mean(np.square(missed))

    assert error(noise) <= 1.02 * error(trusting(wrong))


def test_other_cores_encode_what_they_see_and_predict_the_rest():
    data, _ = noisy(4, 12)
    for core, options in (("gru", {"latent_size": 4}), ("dssm", {"latent_size": 4, "layers": 1, "state_size": 2})):
        model = DynamicsModel.create(core, data, **options, key=jax.random.key(0))
        stream, actions = Estimator(model), np.asarray(data[0].actions)
        stream.observe(data[0].observations[0])
        for action in actions[:3]:
            stream.act(action).observe(None)
        expected = model.rollout(data[0].observations[0], actions[:5]).states
        np.testing.assert_allclose(stream.state, expected[2], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(stream.predict(actions[3:5]).states, expected[3:], rtol=1e-4, atol=1e-4)
        stream.act(actions[3]).observe(data[0].observations[4])
        np.testing.assert_allclose(stream.latent, model.encode(data[0].observations[4]), rtol=1e-4, atol=1e-5)


def test_bad_input(unchecked_shapes):
    model, (data, _) = linear_model(), noisy(4, 12)
    stream = Estimator(model)
    with pytest.raises(KoopaxError, match="nothing was observed yet"):
        _ = stream.state
    with pytest.raises(KoopaxError, match="the first observation has gaps"):
        stream.observe([1.0, np.nan, 0.0])
    with pytest.raises(KoopaxError, match="shape"):
        stream.observe([1.0])
    stream.observe([1.0, 0.0, 0.0])
    with pytest.raises(KoopaxError, match="two observations came without an action"):
        stream.observe([1.0, 0.0, 0.0])
    with pytest.raises(KoopaxError, match="takes 1 finite numbers"):
        stream.act([np.nan])
    with pytest.raises(KoopaxError, match="the observation noise has shape"):
        Estimator(model, FilterNoise(jnp.ones(3), jnp.ones(4)))
    gru = DynamicsModel.create("gru", data, latent_size=4, key=jax.random.key(0))
    with pytest.raises(KoopaxError, match="needs a Koopman core"):
        fit_noise(gru, data)
    with pytest.raises(KoopaxError, match="has no covariance"):
        _ = Estimator(gru).observe([1.0, 0.0, 0.0]).covariance
