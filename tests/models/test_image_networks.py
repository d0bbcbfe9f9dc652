"""Encoders and decoders of images: every pair keeps its contract, and patches are what they say."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koopax._errors import KoopaxError
from koopax.models.images import (
    IMAGE_NETWORKS,
    Convolution,
    from_patches,
    make_image_decoder,
    make_image_encoder,
    scale_pixels,
    to_patches,
    to_pixels,
)


@pytest.mark.parametrize("name", IMAGE_NETWORKS)
@pytest.mark.parametrize("shape", [(28, 36, 3), (44, 32, 6)])
def test_every_pair_maps_images_to_vectors_and_back(name, shape):
    encoder = make_image_encoder(name, shape, 7, key=jax.random.key(0))
    decoder = make_image_decoder(name, 7, shape, key=jax.random.key(1))
    images = np.random.default_rng(0).integers(0, 256, (2, *shape), np.uint8)
    vectors = jax.vmap(encoder)(scale_pixels(images))
    assert vectors.shape == (2, 7)
    np.testing.assert_allclose(jax.vmap(encoder)(jnp.asarray(images)), vectors, atol=1e-5)
    assert jnp.linalg.norm(vectors[0] - vectors[1]) > 1e-3
    assert to_pixels(decoder(vectors[0])).shape == shape


def test_the_published_encoder_has_the_published_sizes():
    encoder = make_image_encoder("published", (84, 84, 9), 50, key=jax.random.key(0))
    shapes = [leaf.shape for leaf in jax.tree.leaves(encoder) if leaf.ndim > 1]
    assert shapes == [(3, 3, 9, 32), (3, 3, 32, 32), (3, 3, 32, 32), (3, 3, 32, 32), (50, 35 * 35 * 32)]


@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_every_parameter_learns_to_draw(name):
    shape = (28, 28, 3)
    images = scale_pixels(np.random.default_rng(1).integers(0, 256, (2, *shape), np.uint8))
    keys = jax.random.split(jax.random.key(2))
    pair = make_image_encoder(name, shape, 8, key=keys[0]), make_image_decoder(name, 8, shape, key=keys[1])

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(pair):
        return jnp.mean((jax.vmap(lambda image: pair[1](pair[0](image)))(images) - images) ** 2)

    before, gradients = loss(pair)
    assert all(jnp.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradients))
    size = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradients))
    moved = eqx.apply_updates(pair, jax.tree.map(lambda leaf: -0.01 * before / size * leaf, gradients))
    assert loss(moved)[0] < before


@settings(max_examples=5)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
def test_patches_are_put_together_again(rows, columns, size, channels):
    image = np.arange(rows * columns * size * size * channels).reshape(rows * size, columns * size, channels)
    patches = to_patches(jnp.asarray(image), size)
    assert patches.shape == (rows, columns, size * size * channels)
    np.testing.assert_array_equal(patches[-1, -1].reshape(size, size, channels), image[-size:, -size:])
    np.testing.assert_array_equal(from_patches(patches, size), image)


def test_a_product_over_patches_is_a_convolution_whose_stride_is_its_size():
    convolution = Convolution(4, 3, 5, key=jax.random.key(0))
    image = jax.random.normal(jax.random.key(1), (12, 8, 3))
    product = to_patches(image, 4) @ convolution.weight.reshape(-1, 5)
    np.testing.assert_allclose(product, convolution(image, stride=4), atol=1e-4)


def test_pixels_survive_scaling():
    pixels = np.arange(256, dtype=np.uint8)
    scaled = scale_pixels(pixels)
    assert (scaled.min(), scaled.max()) == (-0.5, 0.5)
    np.testing.assert_array_equal(to_pixels(scaled), pixels)
    np.testing.assert_array_equal(to_pixels(jnp.array([-3.0, 3.0])), [0, 255])


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("published", (14, 84, 3), "14×84 .* use 15×15 or more"),
        ("patches", (24, 64, 3), "24×64 .* sides of 28 or more"),
        ("patches", (64, 50, 3), "64×50 .* multiples of 4"),
        ("patchs", (64, 64, 3), "did you mean 'patches'"),
    ],
)
def test_sizes_and_names_that_do_not_work_are_refused(name, shape, says):
    with pytest.raises(KoopaxError, match=says):
        make_image_encoder(name, shape, 8, key=jax.random.key(0))
    with pytest.raises(KoopaxError, match=says):
        make_image_decoder(name, 8, shape, key=jax.random.key(0))
