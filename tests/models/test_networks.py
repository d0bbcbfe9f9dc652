"""Linear layers and what is made of them."""

import equinox as eqx
import jax
import numpy as np
import pytest

from koopax.models.networks import MLP, Linear


@pytest.mark.parametrize("use_bias", [True, False])
def test_a_linear_layer_is_that_of_equinox(use_bias):
    key = jax.random.key(0)
    ours, theirs = Linear(5, 3, use_bias=use_bias, key=key), eqx.nn.Linear(5, 3, use_bias=use_bias, key=key)
    rows = jax.random.normal(jax.random.key(1), (7, 5))
    np.testing.assert_allclose(jax.vmap(ours)(rows), jax.vmap(theirs)(rows), rtol=1e-5, atol=1e-6)


def test_rows_stay_rows():
    network = MLP((5, 8, 3), key=jax.random.key(0))
    program = jax.make_jaxpr(jax.vmap(jax.vmap(network)))(np.ones((2, 7, 5), np.float32))
    moved = [line for line in program.eqns if line.primitive.name == "transpose" and line.invars[0].aval.ndim > 2]
    assert not moved
