"""The listing's way of computing against the Koopman core with the same parameters: same values, same gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from koopax import DynamicsModel, Episodes
from koopax._errors import KoopaxError
from koopax.bench.paper_listing import PaperListingCore, paper_listing_model
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import advance

LATENT, ACTION, EMBEDDING, HORIZON = 16, 3, 5, 24


@pytest.fixture(scope="module")
def twins():
    """A Koopman core with the listing's spectrum, and the listing's core with that core's parameters."""
    koopman_key, listing_key = jax.random.split(jax.random.key(0))
    koopman = KoopmanCore(
        LATENT,
        ACTION,
        spectrum="paper",
        spectrum_options={"mirrored": True},
        action_embedding=EMBEDDING,
        action_hidden=(8,),
        key=koopman_key,
    )
    listing = PaperListingCore(LATENT, ACTION, action_embedding=EMBEDDING, action_hidden=(8,), key=listing_key)
    matrix = jnp.stack([koopman.input_real.T, koopman.input_imag.T], axis=-1)
    listing = eqx.tree_at(
        lambda core: (core.action_encoder, core.input_matrix, core.frequency, core.log_time_step),
        listing,
        (koopman.action_encoder, matrix, koopman.spectrum.frequency, jnp.log(koopman.spectrum.time_step())),
    )
    return koopman, listing


@pytest.fixture(scope="module")
def inputs():
    start_key, action_key = jax.random.split(jax.random.key(1))
    return jax.random.normal(start_key, (LATENT,)), jax.random.normal(action_key, (HORIZON, ACTION))


def test_values_are_those_of_the_koopman_core(twins, inputs):
    expected, found = (eqx.filter_jit(core.rollout)(*inputs) for core in twins)
    assert found.dtype == expected.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_gradients_are_those_of_the_koopman_core(twins, inputs):
    weights = jax.random.normal(jax.random.key(2), (HORIZON, LATENT))

    @eqx.filter_jit
    def gradients(core, inputs):
        def loss(arguments):
            core, (start, actions) = arguments
            return jnp.sum(weights * core.rollout(start, actions))

        return eqx.filter_grad(loss)((core, inputs))

    (koopman, of_inputs), (listing, of_listing_inputs) = (gradients(core, inputs) for core in twins)
    pairs = [
        (listing.input_matrix[..., 0], koopman.input_real.T),
        (listing.input_matrix[..., 1], koopman.input_imag.T),
        (listing.frequency, koopman.spectrum.frequency),
        *zip(of_listing_inputs, of_inputs, strict=True),
    ]
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4 * float(jnp.max(jnp.abs(expected))))


def test_steps_in_a_row_are_the_rollout(twins, inputs):
    _, listing = twins
    np.testing.assert_allclose(advance(listing, *inputs), listing.rollout(*inputs)[-1], atol=2e-5)


def test_the_model_has_the_size_of_the_others_and_the_listings_parameters():
    rng = np.random.default_rng(0)
    data = Episodes.from_arrays([rng.normal(size=(11, 17))], [rng.normal(size=(10, 6))], [rng.normal(size=10)])
    model = eqx.filter_eval_shape(paper_listing_model, data, key=jax.random.key(0))
    published = eqx.filter_eval_shape(DynamicsModel.create, "koopman-paper", data, key=jax.random.key(0))

    def count(model):
        shapes = jax.tree.leaves((model.encoder, model.core, model.decoder, model.reward_head))
        return sum(int(np.prod(leaf.shape)) for leaf in shapes)

    assert count(model) == count(published)
    assert 450_000 <= count(model) <= 550_000


def test_what_the_listing_has_not_is_refused(twins, inputs):
    with pytest.raises(KoopaxError, match="multiple of 4"):
        PaperListingCore(10, ACTION, key=jax.random.key(0))
    with pytest.raises(KoopaxError, match="no durations"):
        twins[1].rollout(*inputs, jnp.ones(HORIZON))
