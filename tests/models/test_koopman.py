"""The Koopman core: rollouts against steps, continuation, durations, and theorem 3.1 by automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koopax._errors import KoopaxError
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import make_core
from koopax.models.pushes import pushing
from koopax.models.recurrence import METHODS, linear_recurrence
from koopax.models.spectrum import SPECTRA, discretise

MODES, ACTIONS = 4, 3


def build(spectrum="multiscale", method="scan", seed=0):
    options = {"spectrum": spectrum, "action_embedding": 5, "action_hidden": (7,), "recurrence": method}
    return make_core("koopman", 2 * MODES, ACTIONS, key=jax.random.key(seed), **options)


def trajectory(seed, horizon):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=2 * MODES)), jnp.asarray(rng.normal(size=(horizon, ACTIONS)))


def repeated_steps(core, latent, actions, durations=None):
    latents = []
    for t, action in enumerate(actions):
        latent = core.step(latent, action, None if durations is None else durations[t])
        latents.append(latent)
    return jnp.stack(latents)


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("method", METHODS)
def test_rollout_equals_repeated_steps(spectrum, method):
    with jax.enable_x64(True):
        core = build(spectrum, method)
        latent, actions = trajectory(1, 9)
        expected = repeated_steps(core, latent, actions)
        np.testing.assert_allclose(core.rollout(latent, actions), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["scan", "associative"])
@given(seed=st.integers(0, 10_000))
@settings(max_examples=5)
def test_irregular_rollout_equals_repeated_steps(method, seed):
    with jax.enable_x64(True):
        core = build("paper", method)
        latent, actions = trajectory(seed, 6)
        durations = jnp.asarray(np.random.default_rng(seed).uniform(0.1, 3.0, 6))
        expected = repeated_steps(core, latent, actions, durations)
        np.testing.assert_allclose(core.rollout(latent, actions, durations), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_two_rollouts_in_a_row_equal_one(spectrum):
    with jax.enable_x64(True):
        core = build(spectrum)
        latent, actions = trajectory(2, 11)
        whole = core.rollout(latent, actions)
        first = core.rollout(latent, actions[:4])
        second = core.rollout(first[-1], actions[4:])
        np.testing.assert_allclose(jnp.concatenate([first, second]), whole, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_equal_durations_equal_no_durations(spectrum):
    with jax.enable_x64(True):
        core = build(spectrum)
        latent, actions = trajectory(3, 8)
        timed = core.rollout(latent, actions, jnp.ones(8))
        np.testing.assert_allclose(timed, core.rollout(latent, actions), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_a_held_action_does_not_care_where_the_steps_are_cut(spectrum):
    """Zero-order hold: one step of 3 nominal steps equals three steps under the same action."""
    with jax.enable_x64(True):
        core = build(spectrum)
        latent, actions = trajectory(4, 1)
        long = core.rollout(latent, actions, jnp.asarray([3.0]))
        short = core.rollout(latent, jnp.repeat(actions, 3, axis=0))
        np.testing.assert_allclose(long[-1], short[-1], rtol=1e-9, atol=1e-12)


@given(changed=st.integers(0, 6))
@settings(max_examples=7)
def test_an_action_changes_no_earlier_latent(changed):
    core = build()
    latent, actions = trajectory(5, 7)
    before = core.rollout(latent, actions)
    after = core.rollout(latent, actions.at[changed].add(1.0))
    same = np.all(np.asarray(before == after), axis=-1)
    assert same[:changed].all()
    assert not same[changed:].any()


def complex_norms(gradient):
    """|∂L/∂xʲ| of each mode from the gradient with respect to (real, imaginary)."""
    return np.hypot(np.asarray(gradient[0]), np.asarray(gradient[1]))


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("method", METHODS)
def test_theorem_3_1(spectrum, method):
    """|∂L_k/∂x_t| = e^{kΔtμ} |∂L_k/∂x_{t+k}| and |∂L_k/∂c_{t+l−1}| = e^{(k−l)Δtμ} |∂L_k/∂x_{t+k}|, mode by mode."""
    horizon = 30
    with jax.enable_x64(True):
        core = build(spectrum)
        rng = np.random.default_rng(6)
        start, inputs = jnp.asarray(rng.normal(size=(2, MODES))), jnp.asarray(rng.normal(size=(2, horizon, MODES)))
        target = rng.normal(size=(2, MODES))
        discrete = discretise(core.spectrum)
        rate = np.asarray(core.spectrum.rates()[0] * core.spectrum.time_step())

        def loss(latent):  # any loss: here one that couples the modes and is not quadratic
            return jnp.sum(jnp.tanh(latent[0] - target[0]) ** 2) + jnp.prod(jnp.cos(latent[1] + target[1]))

        def of_step(x, c, k):
            states = linear_recurrence(discrete.transition, (c[0], c[1]), (x[0], x[1]), method=method)
            return loss((states[0][k - 1], states[1][k - 1]))

        gradients = jax.jit(jax.grad(of_step, argnums=(0, 1)))
        states = linear_recurrence(discrete.transition, (inputs[0], inputs[1]), (start[0], start[1]), method=method)
        for k in (1, 2, 7, horizon):
            of_start, of_inputs = gradients(start, inputs, k)
            at_loss = complex_norms(jax.grad(loss)((states[0][k - 1], states[1][k - 1])))
            np.testing.assert_allclose(complex_norms(of_start), np.exp(k * rate) * at_loss, rtol=1e-7, atol=1e-12)
            for l in range(1, horizon + 1):  # noqa: E741
                expected = np.exp((k - l) * rate) * at_loss if l <= k else np.zeros(MODES)
                actual = complex_norms((of_inputs[0][l - 1], of_inputs[1][l - 1]))
                np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-12)


def test_time_major_batches_by_vmap():
    core = build()
    latents, actions = jax.vmap(lambda i: 1.0 * i * jnp.ones(8))(jnp.arange(3)), jnp.ones((5, 3, ACTIONS))
    batched = jax.vmap(core.rollout, in_axes=(0, 1), out_axes=1)(latents, actions)
    assert batched.shape == (5, 3, 8)
    np.testing.assert_allclose(batched[:, 2], core.rollout(latents[2], actions[:, 2]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "options", "message"),
    [
        (7, {}, "latent_size 7 can't hold complex modes"),
        (0, {}, "latent_size 0"),
        (8, {"spectrum": "multi"}, "unknown spectrum 'multi'"),
        (8, {"spectra": "paper"}, "no option 'spectra'"),
    ],
)
def test_bad_input(size, options, message):
    with pytest.raises(KoopaxError, match=message):
        make_core("koopman", size, ACTIONS, key=jax.random.key(0), **options)


def test_unknown_core():
    with pytest.raises(KoopaxError, match="unknown model 'koopmann': did you mean 'koopman'"):
        make_core("koopmann", 8, ACTIONS, key=jax.random.key(0))


def test_a_rollout_of_no_steps_is_refused():
    with pytest.raises(KoopaxError, match="horizon is 0"):
        KoopmanCore(8, ACTIONS, key=jax.random.key(0)).rollout(jnp.zeros(8), jnp.zeros((0, ACTIONS)))


@pytest.mark.parametrize(("embedding", "joined"), [(1, False), (8, True)])
def test_candidates_are_the_same_whether_encoder_and_inputs_are_one_product_or_two(embedding, joined):
    options = {"action_embedding": embedding, "action_hidden": (8,), "context_size": 3, "action_history": 2}
    core = KoopmanCore(16, 2, key=jax.random.key(0), **options)
    latent = jax.random.normal(jax.random.key(1), (core.latent_size,))
    actions = jax.random.normal(jax.random.key(2), (5, 3, 2))
    assert (pushing(core.action_encoder.given(latent[-3:]), (core.input_real, core.input_imag)) is not None) == joined
    found = core.rollout_candidates(core.start_candidates(latent, 5), actions)
    for candidate in range(3):
        np.testing.assert_allclose(found[0, candidate], latent, rtol=1e-6)
        np.testing.assert_allclose(found[1:, candidate], core.rollout(latent, actions[:, candidate]), atol=1e-5)
