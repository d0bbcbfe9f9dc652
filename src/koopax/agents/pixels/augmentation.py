"""Random shifts of images, inside the compiled step."""

import jax
import jax.numpy as jnp

from koopax._types import Array, PRNGKeyArray, UInt8


def random_shift(
    images: UInt8[Array, "batch height width channel"], largest: int, *, key: PRNGKeyArray
) -> UInt8[Array, "batch height width channel"]:
    """Each image moved by up to `largest` pixels in both directions; its border's pixels fill what becomes free.

    A padded image and a slice of it: a gather with indices of its own for each pixel takes three times as long.
    """
    if largest == 0:
        return images
    batch, height, width, channels = images.shape
    padding = ((0, 0), (largest, largest), (largest, largest), (0, 0))
    offsets = jax.random.randint(key, (batch, 2), 0, 2 * largest + 1)

    def cut(image: Array, offset: Array) -> Array:
        return jax.lax.dynamic_slice(image, (offset[0], offset[1], 0), (height, width, channels))

    return jax.vmap(cut)(jnp.pad(images, padding, mode="edge"), offsets)
