"""Dictionaries against their definition, one function at a time."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koopax import KoopaxError
from koopax.models.dictionaries import FourierFeatures, Polynomials, make_dictionary
from koopax.models.linear import BilinearReward


@given(size=st.integers(1, 5), degree=st.integers(1, 5), seed=st.integers(0, 100))
def test_polynomials_are_all_monomials_once(size, degree, seed):
    dictionary = Polynomials(size, degree=degree, key=jax.random.key(0))
    state = np.random.default_rng(seed).uniform(0.5, 1.5, size).astype(np.float32)
    monomials = [
        np.prod(state[list(factors)], dtype=float)
        for order in range(degree + 1)
        for factors in itertools.combinations_with_replacement(range(size), order)
    ]
    found = np.asarray(dictionary(jnp.asarray(state)))
    assert found.shape == (dictionary.size,) == (len(monomials),)
    assert found[0] == 1
    assert np.array_equal(found[1 : size + 1], state)
    np.testing.assert_allclose(np.sort(found), np.sort(monomials), rtol=1e-5)


def test_fourier_features_approach_a_gaussian_kernel():
    dictionary = FourierFeatures(3, count=1900, length=1.5, key=jax.random.key(0))
    first, second = jnp.array([0.2, -0.4, 1.0]), jnp.array([-0.3, 0.5, 0.1])
    features = [dictionary(state)[4:] for state in (first, second)]
    kernel = np.exp(-np.sum((np.asarray(first) - np.asarray(second)) ** 2) / (2 * 1.5**2))
    assert abs(float(features[0] @ features[1]) - kernel) < 0.05


def test_further_functions_see_states_brought_back_to_the_data():
    dictionary = Polynomials(2, degree=3, key=jax.random.key(0)).within(jnp.array([-1.0, 0.0]), jnp.array([1.0, 4.0]))
    far, near = dictionary(jnp.array([100.0, -50.0])), dictionary(jnp.array([2.0, -2.0]))
    assert np.array_equal(far[1:3], [100.0, -50.0])
    assert np.array_equal(far[3:], near[3:])  # half a width beyond: [−2, 2] and [−2, 6]
    assert not np.array_equal(near[3:], dictionary(jnp.array([1.9, -2.0]))[3:])


def test_bad_dictionaries_are_one_sentence():
    key = jax.random.key(0)
    with pytest.raises(KoopaxError, match="more than 2000: lower its degree"):
        make_dictionary("polynomials", 20, degree=5, key=key)
    with pytest.raises(KoopaxError, match="degree is 0: use 1"):
        make_dictionary("polynomials", 2, degree=0, key=key)
    with pytest.raises(KoopaxError, match="unknown dictionary 'polynomial': did you mean 'polynomials'"):
        make_dictionary("polynomial", 2, key=key)


def test_bilinear_reward_term_by_term():
    rng = np.random.default_rng(0)
    head = BilinearReward(5, 3, 2)
    state, coupled, pairs = rng.normal(size=5), rng.normal(size=(3, 2)), rng.normal(size=6)
    head = jax.tree.unflatten(jax.tree.structure(head), [jnp.asarray(part) for part in (state, coupled, pairs)])
    latent, action = rng.normal(size=5), rng.normal(size=3)
    expected, number = state @ latent, 0
    for i in range(3):
        expected += action[i] * (coupled[i] @ latent[:2])
        for j in range(i, 3):
            expected += pairs[number] * action[i] * action[j]
            number += 1
    np.testing.assert_allclose(head(jnp.concatenate([latent, action]))[0], expected, rtol=1e-5)
