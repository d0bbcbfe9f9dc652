"""What the pilot of a Koopman core is for; its slow twin is in test_cores.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from koopax import KoopaxError
from koopax.models.koopman import KoopmanCore
from koopax.models.spectrum import discretise

ACTIONS, MODES, PILOT = 2, 3, 2


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def complex_of(pair):
    return np.asarray(pair[0]) + 1j * np.asarray(pair[1])


def piloted(history=2):
    options = {"action_embedding": 4, "action_hidden": (5,), "action_history": history, "pilot_modes": PILOT}
    return KoopmanCore(2 * MODES, ACTIONS, **options, key=jax.random.key(3))


def test_what_an_action_does_depends_on_the_state_with_a_pilot_and_not_without():
    """The effect of an action is the difference to no action; in a linear core it is the same wherever it is taken."""
    action, rest = jnp.ones((1, ACTIONS)), jnp.zeros((1, ACTIONS))

    def effect(core, latent):
        return (core.rollout(latent, action) - core.rollout(latent, rest))[0, : 2 * MODES]

    rng = np.random.default_rng(0)
    plain = KoopmanCore(2 * MODES, ACTIONS, action_embedding=4, action_hidden=(5,), key=jax.random.key(3))
    for core, depends in ((piloted(history=1), True), (plain, False)):
        here, there = (jnp.asarray(rng.normal(size=core.latent_size)) for _ in range(2))
        assert (np.max(np.abs(effect(core, here) - effect(core, there))) > 1e-3) == depends


def test_a_pilot_hears_of_actions_long_ago():
    """An action that the action encoder no longer sees itself changes what a later one does."""
    core, steps = piloted(history=1), 6
    later = jnp.zeros((steps, ACTIONS)).at[-1].set(10.0)
    early = jnp.zeros((steps, ACTIONS)).at[0].set(10.0)

    def modes(actions):
        return core.rollout(jnp.zeros(core.latent_size), actions)[-1, : 2 * MODES]

    mixed = modes(early + later) - modes(early) - modes(later) + modes(jnp.zeros((steps, ACTIONS)))
    assert np.max(np.abs(mixed)) > 1e-4


def test_modes_keep_their_gradients():
    """Theorem 3.1 holds for the core's own modes: through k steps exactly λ̄ᵏ."""
    core, steps = piloted(), 9
    actions = jnp.asarray(np.random.default_rng(1).normal(size=(steps, ACTIONS)))
    jacobian = jax.jacobian(lambda start: core.rollout(start, actions)[-1])(jnp.ones(core.latent_size))
    own = np.asarray(jacobian)[: 2 * MODES, : 2 * MODES]
    moved = complex_of(discretise(core.spectrum).transition) ** steps
    expected = np.block([[np.diag(moved.real), -np.diag(moved.imag)], [np.diag(moved.imag), np.diag(moved.real)]])
    np.testing.assert_allclose(own, expected, rtol=1e-9, atol=1e-12)


def test_a_negative_number_of_modes_is_refused():
    with pytest.raises(KoopaxError, match="pilot_modes is -1"):
        KoopmanCore(4, 1, pilot_modes=-1, key=jax.random.key(0))
