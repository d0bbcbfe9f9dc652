"""Eigenvalues that depend on the action (K(u)) or on where a segment starts (λ(x)): the same laws as the plain core."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from koopax._errors import KoopaxError
from koopax.models.koopman import PHASE_REACH, KoopmanCore
from koopax.models.spectrum import discretise

MODES, ACTION = 3, 2
KINDS = {
    "bilinear": {"bilinear": True},
    "adaptive": {"adaptive": True, "context_size": 2},
    "both": {"bilinear": True, "adaptive": True, "context_size": 2, "action_history": 2},
}


def make(kind, **options):
    core = KoopmanCore(
        2 * MODES, ACTION, action_embedding=2, action_hidden=(4,), key=jax.random.key(0), **KINDS[kind], **options
    )
    weight = jax.random.normal(jax.random.key(1), core.modulator.weight.shape)
    return eqx.tree_at(lambda own: own.modulator.weight, core, weight)


def sample(core, steps=7):
    latent = jax.random.normal(jax.random.key(2), (core.latent_size,))
    actions = jax.random.normal(jax.random.key(3), (steps, ACTION))
    return latent, actions


@pytest.mark.parametrize("method", ["scan", "associative"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_is_its_steps(kind, method):
    core = make(kind, recurrence=method)
    latent, actions = sample(core)
    rolled, now = core.rollout(latent, actions), latent
    for step, action in enumerate(actions):
        now = core.step(now, action)
        np.testing.assert_allclose(rolled[step], now, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_it_begins_as_the_plain_core_and_then_differs(kind):
    core = make(kind)
    flat = eqx.tree_at(lambda own: own.modulator.weight, core, jnp.zeros_like(core.modulator.weight))
    plain = eqx.tree_at(lambda own: own.modulator, core, None, is_leaf=lambda leaf: leaf is None)
    latent, actions = sample(core)
    expected = plain.rollout(latent, actions)
    np.testing.assert_allclose(flat.rollout(latent, actions), expected, rtol=1e-5, atol=1e-6)
    assert float(jnp.max(jnp.abs(core.rollout(latent, actions) - expected))) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_every_nth_step_and_candidates_agree_with_rollouts(kind):
    core = make(kind)
    latent, actions = sample(core)
    rolled = core.rollout(latent, actions)
    some = core.rollout_every(latent[None], actions[:, None], stride=3, first=jnp.asarray(1))
    np.testing.assert_allclose(some[:, 0], rolled[jnp.asarray([1, 4, 6])], rtol=1e-4, atol=1e-5)
    candidates = core.rollout_candidates(core.start_candidates(latent, 7), actions[:, None])
    np.testing.assert_allclose(candidates[1:, 0], rolled, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_theorem_with_bounds(kind):
    """|∂x_k / ∂x_0| is Π|λ̄_t| in each mode, between exp(k e μ Δt) and exp(k μ Δt / e); actions never make it grow."""
    core = make(kind)
    latent, actions = sample(core, steps=20)
    actions = 50.0 * actions
    parts = 2 * MODES

    def modes(start):
        return core.rollout(latent.at[:parts].set(start), actions)[-1, :parts]

    jacobian = np.asarray(jax.jacobian(modes)(latent[:parts]))
    size = np.hypot(jacobian.diagonal()[:MODES], jacobian[MODES:, :MODES].diagonal())
    decay = np.asarray(core.spectrum.rates()[0])
    assert (size <= np.exp(20 * decay / np.e) * (1 + 1e-4)).all()
    assert (size >= np.exp(20 * decay * np.e) * (1 - 1e-4)).all()
    off = jacobian - np.block(
        [[np.diag(jacobian[i : i + MODES, j : j + MODES].diagonal()) for j in (0, MODES)] for i in (0, MODES)]
    )
    assert np.abs(off).max() == 0  # modes do not mix


def test_phases_reach_no_further_than_said():
    core = make("bilinear")
    _, actions = sample(core)
    embedded = jax.vmap(core.action_encoder)(100 * actions)
    found = core.modulation(embedded, jnp.zeros(core.latent_size))
    assert float(jnp.abs(found.phase).max()) <= PHASE_REACH * (1 + 1e-6)
    step = discretise(core.spectrum, None, found).transition
    assert float(jnp.hypot(*step).max()) < 1


def test_adaptive_needs_a_context():
    with pytest.raises(KoopaxError, match="context_size"):
        KoopmanCore(4, 1, adaptive=True, key=jax.random.key(0))
