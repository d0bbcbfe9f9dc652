"""Gradient profiles against derivatives that are taken in another way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from koopax.evaluation.gradients import gradient_profile
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import CORES, make_core

LATENT, ACTION, HORIZON = 16, 2, 6
KEY = jax.random.key(3)
SMALL = {"transformer": {"layers": 1, "heads": 2, "feedforward": 16}, "dssm": {"layers": 1, "state_size": 4}}


def koopman(spectrum, action_history):
    return KoopmanCore(8, ACTION, spectrum=spectrum, action_history=action_history, key=jax.random.key(0))


def case(name):
    core = make_core(name, LATENT, ACTION, key=jax.random.key(0), **SMALL.get(name, {}))
    start, actions = jax.random.split(jax.random.key(1))
    return core, jax.random.normal(start, (LATENT,)), jax.random.normal(actions, (HORIZON, ACTION))


def width_of(core):
    return core.modes_size if isinstance(core, KoopmanCore) else core.latent_size


def direction(core):
    drawn = jax.random.normal(KEY, (width_of(core),))
    return drawn / jnp.linalg.norm(drawn)


@pytest.mark.quick("koopman")
@pytest.mark.parametrize("name", CORES)
def test_the_profile_is_that_of_finite_differences(name):
    core, latent, actions = case(name)
    profile = gradient_profile(core, latent, actions, key=KEY)
    width, v = width_of(core), direction(core)
    step = 1e-2 * jnp.eye(width, LATENT)
    ahead, behind = (jax.vmap(core.rollout, (0, None))(latent + sign * step, actions) for sign in (1, -1))
    of_start = (ahead - behind)[..., :width] @ v / 2e-2  # [component, time]
    np.testing.assert_allclose(profile.start, jnp.linalg.norm(of_start, axis=0), rtol=0.02, atol=2e-4)
    of_actions = jax.jacfwd(lambda a: core.rollout(latent, a)[:, :width] @ v)(actions)
    np.testing.assert_allclose(profile.inputs, jnp.linalg.norm(of_actions, axis=-1), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(profile.at_loss, 1.0, rtol=1e-6)


def typical_transfer(core, latent, actions):
    """|∂x_k/∂x_0|_F / √n: the root mean square of |∂⟨v, x_k⟩/∂x_0| over all directions v, shape [time]."""
    width = width_of(core)
    jacobian = jax.jacfwd(lambda x: core.rollout(x, actions)[:, :width])(latent)[..., :width]
    return jnp.sqrt(jnp.sum(jacobian**2, axis=(1, 2)) / width)


@pytest.mark.parametrize("name", CORES)
def test_what_a_core_passes_on_is_seen(name):
    core, latent, actions = case(name)
    typical = typical_transfer(core, latent, actions)
    transfer = gradient_profile(core, latent, actions, key=KEY).transfer
    assert (transfer > 0.3 * typical).all()
    assert (transfer < 3 * typical).all()


@pytest.mark.parametrize("name", ["dssm", pytest.param("transformer", marks=pytest.mark.slow)])
def test_a_mean_square_would_not_see_it(name):
    """Why the loss is linear: both cores end in LayerNorm, whose output has a constant mean square."""
    core, latent, actions = case(name)

    def loss(x, k):
        return 0.5 * jnp.mean(core.rollout(x, actions)[k] ** 2)

    sent = jnp.linalg.norm(core.rollout(latent, actions), axis=-1) / LATENT
    arrived = jnp.stack([jnp.linalg.norm(jax.grad(loss)(latent, k)) for k in range(HORIZON)])
    assert (arrived / sent < 1e-3 * typical_transfer(core, latent, actions)).all()


@pytest.mark.parametrize("action_history", [1, 4])
@pytest.mark.parametrize(("spectrum", "rate"), [("unitary", 0.0), ("paper", None)])
def test_the_profile_follows_the_theorem_where_all_modes_decay_alike(spectrum, rate, action_history):
    built = koopman(spectrum, action_history)
    if rate is None:
        rate = -0.2 * float(built.spectrum.time_step())
    profile = gradient_profile(built, jnp.ones(built.latent_size), jnp.ones((20, ACTION)), key=KEY)
    np.testing.assert_allclose(profile.transfer, np.exp(rate * np.arange(1, 21)), rtol=1e-5)
