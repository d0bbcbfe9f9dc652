"""A batch's gradient in pieces: the mean over some windows at a time, whose intermediate results fit into the cache.

The Koopman model decodes all chosen steps of all windows in a few large products. Once their inputs no longer fit into
the processor's cache, each product waits for memory. The cores that go step by step gain nothing: their products are
small already. Training steps of 256 windows on two cores, with 32 MiB of shared cache:

| core    | horizon | loss on every | windows at a time | decoded rows | ms for 256 windows |
|---------|---------|---------------|-------------------|--------------|--------------------|
| koopman | 100     | 10th step     | 256, 128, 64      | 2560 … 640   | 69, 70, 72         |
| koopman | 200     | 10th step     | 256, 64           | 5120, 1280   | 160, 126           |
| koopman | 500     | 10th step     | 256, 64, 32       | 12800 … 1600 | 368, 316, 322      |
| koopman | 100     | step          | 256, 64, 32, 16   | 25600 … 1600 | 515, 508, 469, 398 |
| mlp     | 200     | 10th step     | 256, 128, 64      | 5120 … 1280  | 708, 711, 802      |
| gru     | 200     | 10th step     | 256, 64           | 5120, 1280   | 897, 961           |

Medians of single runs, one after another.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from koopax._types import Array, PyTree
from koopax.data.windows import Windows
from koopax.training.config import TrainConfig

# Decoded rows at a time, by core; the others take a batch as a whole.
ROWS = {"koopman": 1600}


def fastest_pieces(config: TrainConfig, core: str) -> int:
    """Windows at a time that divide the batch, for settings whose `loss_stride` is known."""
    if core not in ROWS or jax.default_backend() != "cpu":
        return config.batch_size
    assert config.loss_stride is not None
    most = max(1, ROWS[core] * config.loss_stride // config.horizon)
    divisor = max(count for count in range(1, min(most, config.batch_size) + 1) if config.batch_size % count == 0)
    # An awkward number of windows has small divisors only, and small pieces are slow.
    return divisor if 4 * divisor >= min(most, config.batch_size) else config.batch_size


def mean_over_pieces(function: Callable[[Windows], PyTree], windows: Windows, size: int) -> PyTree:
    """What a function that is a mean over time-major windows says of all of them, from `size` of them at a time."""
    count = windows.rewards.shape[1] // size
    if count == 1:
        return function(windows)

    def cut(array: Array) -> Array:
        return jnp.moveaxis(array.reshape(array.shape[0], count, size, *array.shape[2:]), 1, 0)

    def add(total: PyTree, piece: Windows) -> tuple[PyTree, None]:
        return jax.tree.map(jnp.add, total, function(piece)), None

    pieces = jax.tree.map(cut, windows)
    first = jax.eval_shape(function, jax.tree.map(lambda array: array[0], pieces))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), first)
    total, _ = jax.lax.scan(add, nothing, pieces)
    return jax.tree.map(lambda leaf: leaf / count, total)
