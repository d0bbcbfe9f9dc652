"""A batch's gradient by microbatches: the mean over some windows at a time, whose intermediates fit into the cache.

The Koopman model decodes all chosen steps of all windows in a few large products, and a Transformer or a DSSM computes
all steps of all windows at once. Where that no longer fits into the processor's cache, each operation waits for memory.
MLP and GRU go step by step: their products are small already, and smaller ones are slower. Milliseconds of a training
step of 256 windows, states alone, on two cores with 32 MiB of shared cache:

| core        | horizon | loss on       | microbatch        | ms                     |
|-------------|---------|---------------|-------------------|------------------------|
| koopman     | 100     | 1 step in 10  | 256, 128, 64      | 69, 70, 72             |
| koopman     | 200     | 1 step in 10  | 256, 64           | 160, 126               |
| koopman     | 500     | 1 step in 10  | 256, 64, 32       | 368, 316, 322          |
| koopman     | 100     | every step    | 256, 64, 32, 16   | 515, 508, 469, 398     |
| transformer | 100     | 1 step in 10  | 256, 64, 16, 4    | 1472, 1216, 1215, 1273 |
| transformer | 10      | 1 step in 2   | 256, 64           | 149, 114               |
| dssm        | 100     | 1 step in 10  | 256, 64, 16, 4    | 1094, 1025, 1080, 1804 |
| mlp         | 200     | 1 step in 10  | 256, 128, 64      | 708, 711, 802          |
| mlp         | 100     | every step    | 256, 64, 32       | 432, 470, 531          |
| gru         | 200     | 1 step in 10  | 256, 64           | 897, 961               |
| gru         | 100     | every step    | 256, 64           | 469, 507               |

Medians of three; those of the Koopman model at stride 10, of MLP and GRU at 200 steps and of the Koopman model on every
step come from runs with smaller batches, one after another, the others from interleaved ones.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from koopax._types import Array, PyTree
from koopax.data.windows import Windows
from koopax.training.config import TrainConfig

# Steps of windows at a time, by core: the decoded ones of the Koopman core, all of the others'.
STEPS = {"koopman": 1600, "transformer": 1600, "dssm": 6400}


def fastest_microbatch(config: TrainConfig, core: str) -> int:
    """Windows of a microbatch, a divisor of the batch; all of them with the other cores and on accelerators."""
    if core not in STEPS or jax.default_backend() != "cpu":
        return config.batch_size
    stride = config.loss_stride or 1 if core == "koopman" else 1
    assert config.horizon is not None  # resolved
    most = max(1, STEPS[core] * stride // config.horizon)
    divisor = max(count for count in range(1, min(most, config.batch_size) + 1) if config.batch_size % count == 0)
    # An awkward number of windows has small divisors only, and small microbatches are slow.
    return divisor if 4 * divisor >= min(most, config.batch_size) else config.batch_size


def mean_over_microbatches(function: Callable[[Windows], PyTree], windows: Windows, size: int) -> PyTree:
    """What a function that is a mean over time-major windows says of all of them, by microbatches of `size`."""
    count = windows.rewards.shape[1] // size
    if count == 1:
        return function(windows)

    def cut(array: Array) -> Array:
        return jnp.moveaxis(array.reshape(array.shape[0], count, size, *array.shape[2:]), 1, 0)

    def add(total: PyTree, microbatch: Windows) -> tuple[PyTree, None]:
        return jax.tree.map(jnp.add, total, function(microbatch)), None

    microbatches = jax.tree.map(cut, windows)
    first = jax.eval_shape(function, jax.tree.map(lambda array: array[0], microbatches))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), first)
    total, _ = jax.lax.scan(add, nothing, microbatches)
    return jax.tree.map(lambda leaf: leaf / count, total)
