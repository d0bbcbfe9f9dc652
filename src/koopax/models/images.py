"""From images to vectors and back: encoders and decoders by name, with one interface.

An image is `[height, width, channel]`, uint8 as cameras and files have it; frames seen together are stacked along the
channels. `scale_pixels` makes the numbers in [−½, ½] that networks work with, `to_pixels` makes pixels of them again.

    encoder = make_image_encoder("patches", (64, 64, 9), 50, key=key)
    vector = encoder(image)                       # [50], also of scale_pixels(image)
    decoder = make_image_decoder("patches", 50, (64, 64, 9), key=key)
    image = to_pixels(decoder(vector))            # [64, 64, 9], uint8

An encoder is `Encoder(shape, output_size, *, key)` and maps an image, as pixels or scaled, to a vector, ending in a
linear layer, so that whoever uses it chooses what follows (LayerNorm and tanh in agents, nothing in models). A decoder
is `Decoder(input_size, shape, *, key)` and returns an image in the scale of `scale_pixels`, not clipped. Both are
written for one example; `jax.vmap` makes batches of them without a transposition. A new pair is two classes and a line
in `IMAGE_NETWORKS`.
"""

import abc
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError, unknown_name
from koopax._types import Array, Float, Num, PRNGKeyArray, UInt8
from koopax.models.networks import Linear, over_rows

ImageShape: TypeAlias = tuple[int, int, int]
LAYOUT = ("NHWC", "HWIO", "NHWC")
CHANNELS = 32


def scale_pixels(image: Num[Array | np.ndarray, "*image"]) -> Float[Array, "*image"]:
    """Pixels in 0 … 255 as numbers in [−½, ½]."""
    return jnp.asarray(image, jnp.float32) / 255 - 0.5


def _scaled(image: Num[Array, "*image"]) -> Float[Array, "*image"]:
    """The image as networks take it, whichever kind it is."""
    return scale_pixels(image) if image.dtype == jnp.uint8 else image


def to_pixels(values: Float[Array, "*image"]) -> UInt8[Array, "*image"]:
    """The nearest pixels of numbers that should be in [−½, ½]."""
    return jnp.round(jnp.clip(values + 0.5, 0, 1) * 255).astype(jnp.uint8)


class Convolution(eqx.Module):
    """A convolution for one image; its transpose over a dilated image, for decoders, is one as well."""

    weight: Float[Array, "height width inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, size: int, inputs: int, outputs: int, *, key: PRNGKeyArray):
        """He's normal initialisation, without a bias."""
        self.weight = jax.nn.initializers.he_normal()(key, (size, size, inputs, outputs))
        self.bias = jnp.zeros(outputs)

    def __call__(
        self,
        image: Float[Array, "height width inputs"],
        *,
        stride: int = 1,
        dilation: int = 1,
        padding: str | tuple[tuple[int, int], tuple[int, int]] = "VALID",
    ) -> Float[Array, "rows columns outputs"]:
        """The filtered image; `dilation` puts zeros between its pixels first."""
        filtered = jax.lax.conv_general_dilated(
            image[None], self.weight, (stride, stride), padding, (dilation, dilation), dimension_numbers=LAYOUT
        )
        return filtered[0] + self.bias


def to_patches(image: Num[Array, "height width channel"], size: int) -> Num[Array, "rows columns patch"]:
    """An image cut into square patches, each a vector."""
    height, width, channels = image.shape
    lines = image.reshape(height // size, size, width // size, size * channels)
    # The lines of a patch side by side: XLA copies them whole, where it would transpose number by number.
    return jnp.concatenate([lines[:, line] for line in range(size)], axis=-1)


def from_patches(patches: Num[Array, "rows columns patch"], size: int) -> Num[Array, "height width channel"]:
    """The image whose patches these are."""
    rows, columns, _ = patches.shape
    cut = patches.reshape(rows, columns, size, size, -1).transpose(0, 2, 1, 3, 4)
    return cut.reshape(rows * size, columns * size, -1)


class ImageEncoder(eqx.Module):
    """From an image, as uint8 or scaled, to a vector."""

    @abc.abstractmethod
    def __call__(self, image: Num[Array, "height width channel"]) -> Float[Array, " output"]:
        """The vector of one image."""


class ImageDecoder(eqx.Module):
    """From a vector to a scaled image, not clipped."""

    @abc.abstractmethod
    def __call__(self, vector: Float[Array, " input"]) -> Float[Array, "height width channel"]:
        """The image of one vector."""


class PublishedEncoder(ImageEncoder):
    """Four 3×3 convolutions of 32 channels with strides 2, 1, 1, 1, as pixel SAC, DrQ and SPR have on 84×84.

    Its gradient is slow on a CPU; it is for accelerators, and for comparison.
    """

    convolutions: tuple[Convolution, ...]
    output: Linear

    def __init__(self, shape: ImageShape, output_size: int, *, key: PRNGKeyArray):
        """Sides of 15 pixels or more."""
        rows, columns = _published_grid(shape)
        keys = jax.random.split(key, 5)
        inputs = (shape[2], CHANNELS, CHANNELS, CHANNELS)
        self.convolutions = tuple(Convolution(3, n, CHANNELS, key=k) for n, k in zip(inputs, keys[:4], strict=True))
        self.output = Linear(rows * columns * CHANNELS, output_size, key=keys[4])

    def __call__(self, image: Num[Array, "height width channel"]) -> Float[Array, " output"]:
        """Convolutions with ReLU, then a linear layer."""
        x = jax.nn.relu(self.convolutions[0](_scaled(image), stride=2))
        for convolution in self.convolutions[1:]:
            x = jax.nn.relu(convolution(x))
        return self.output(x.reshape(-1))


class PublishedDecoder(ImageDecoder):
    """The encoder's mirror image: a linear layer, three transposed convolutions of stride 1 and one of stride 2."""

    input: Linear
    convolutions: tuple[Convolution, ...]
    shape: ImageShape = eqx.field(static=True)

    def __init__(self, input_size: int, shape: ImageShape, *, key: PRNGKeyArray):
        """Sides of 15 pixels or more."""
        rows, columns = _published_grid(shape)
        keys = jax.random.split(key, 5)
        outputs = (CHANNELS, CHANNELS, CHANNELS, shape[2])
        self.input = Linear(input_size, rows * columns * CHANNELS, key=keys[0])
        self.convolutions = tuple(Convolution(3, CHANNELS, n, key=k) for n, k in zip(outputs, keys[1:], strict=True))
        self.shape = shape

    def __call__(self, vector: Float[Array, " input"]) -> Float[Array, "height width channel"]:
        """The image, of the very size it was made for."""
        x = jax.nn.relu(self.input(vector)).reshape(*_published_grid(self.shape), CHANNELS)
        for convolution in self.convolutions[:-1]:
            x = jax.nn.relu(convolution(x, padding=((2, 2), (2, 2))))
        # Stride 2 drops the last row or column of an even side, which is put back here.
        more = [side - (2 * grown + 1) for side, grown in zip(self.shape[:2], x.shape[:2], strict=True)]
        return self.convolutions[-1](x, dilation=2, padding=((2, 2 + more[0]), (2, 2 + more[1])))


def _published_grid(shape: ImageShape) -> tuple[int, int]:
    """Rows and columns of what the four convolutions make of an image."""
    if min(shape[:2]) < 15:
        raise KoopaxError(f"images of {_size(shape)} pixels are too small for 'published': use 15×15 or more.")
    rows, columns = ((side - 3) // 2 + 1 - 6 for side in shape[:2])
    return rows, columns


PATCH = 4


class PatchEncoder(ImageEncoder):
    """4×4 patches as one matrix product, then 3×3 convolutions of stride 2 and 1, all of 32 channels.

    A convolution whose kernel equals its stride is a reshape and a product, and runs at the speed of products; those
    that overlap, whose gradients are slow on a CPU, see an image of a sixteenth of the size.
    """

    stem: Linear
    convolutions: tuple[Convolution, Convolution]
    output: Linear

    def __init__(self, shape: ImageShape, output_size: int, *, key: PRNGKeyArray):
        """Sides of 28 pixels or more, in multiples of 4."""
        _check_patches(shape)
        keys = jax.random.split(key, 4)
        rows, columns = ((side // PATCH - 3) // 2 + 1 - 2 for side in shape[:2])
        self.stem = Linear(PATCH * PATCH * shape[2], CHANNELS, key=keys[0])
        self.convolutions = (
            Convolution(3, CHANNELS, CHANNELS, key=keys[1]),
            Convolution(3, CHANNELS, CHANNELS, key=keys[2]),
        )
        self.output = Linear(rows * columns * CHANNELS, output_size, key=keys[3])

    def __call__(self, image: Num[Array, "height width channel"]) -> Float[Array, " output"]:
        """Patches and convolutions with ReLU, then a linear layer."""
        # Pixels are cut before they are scaled: bytes are moved, not floats. Without the barrier XLA scales them first.
        patches = jax.lax.optimization_barrier(to_patches(image, PATCH))
        x = jax.nn.relu(over_rows(self.stem, _scaled(patches)))
        x = jax.nn.relu(self.convolutions[0](x, stride=2))
        x = jax.nn.relu(self.convolutions[1](x))
        return self.output(x.reshape(-1))


class PatchDecoder(ImageDecoder):
    """A linear layer onto a coarse grid, whose cells grow into 2×2 cells, which are smoothed and grow into patches."""

    input: Linear
    grow: Linear
    smooth: Convolution
    output: Linear
    shape: ImageShape = eqx.field(static=True)

    def __init__(self, input_size: int, shape: ImageShape, *, key: PRNGKeyArray):
        """Sides of 28 pixels or more, in multiples of 4."""
        _check_patches(shape)
        keys = jax.random.split(key, 4)
        rows, columns = _coarse_grid(shape)
        self.input = Linear(input_size, rows * columns * CHANNELS, key=keys[0])
        self.grow = Linear(CHANNELS, 4 * CHANNELS, key=keys[1])
        self.smooth = Convolution(3, CHANNELS, CHANNELS, key=keys[2])
        self.output = Linear(CHANNELS, PATCH * PATCH * shape[2], key=keys[3])
        self.shape = shape

    def __call__(self, vector: Float[Array, " input"]) -> Float[Array, "height width channel"]:
        """The image; 3×3 cells have a say in each of its patches, so that seams between them can be avoided."""
        x = jax.nn.relu(self.input(vector)).reshape(*_coarse_grid(self.shape), CHANNELS)
        x = jax.nn.relu(from_patches(over_rows(self.grow, x), 2))[: self.shape[0] // PATCH, : self.shape[1] // PATCH]
        x = jax.nn.relu(self.smooth(x, padding="SAME"))
        return from_patches(over_rows(self.output, x), PATCH)


def _check_patches(shape: ImageShape) -> None:
    if min(shape[:2]) < 28 or shape[0] % PATCH or shape[1] % PATCH:
        raise KoopaxError(
            f"images of {_size(shape)} pixels don't suit 'patches': use sides of 28 or more in multiples of {PATCH}, "
            "such as 64×64, or the encoder 'published'."
        )


def _coarse_grid(shape: ImageShape) -> tuple[int, int]:
    return -(-shape[0] // (2 * PATCH)), -(-shape[1] // (2 * PATCH))


def _size(shape: ImageShape) -> str:
    return f"{shape[0]}×{shape[1]}"


class ImageNetworks(NamedTuple):
    """An encoder and the decoder that goes with it."""

    encoder: type[ImageEncoder]
    decoder: type[ImageDecoder]


IMAGE_NETWORKS: dict[str, ImageNetworks] = {
    "patches": ImageNetworks(PatchEncoder, PatchDecoder),
    "published": ImageNetworks(PublishedEncoder, PublishedDecoder),
}


def make_image_encoder(name: str, shape: ImageShape, output_size: int, *, key: PRNGKeyArray) -> ImageEncoder:
    """An encoder by name for images of that shape; raises where it can't take them."""
    return _networks(name).encoder(shape, output_size, key=key)  # pyright: ignore[reportCallIssue]  (a convention)


def make_image_decoder(name: str, input_size: int, shape: ImageShape, *, key: PRNGKeyArray) -> ImageDecoder:
    """The decoder of that name for images of that shape."""
    return _networks(name).decoder(input_size, shape, key=key)  # pyright: ignore[reportCallIssue]  (a convention)


def _networks(name: str) -> ImageNetworks:
    if name not in IMAGE_NETWORKS:
        raise unknown_name("image encoder", name, list(IMAGE_NETWORKS))
    return IMAGE_NETWORKS[name]
