"""Floating-point operations of a training step, by formula: what the mathematics needs, not what a program spends.

Counted are products of matrices, attention, and the recurrences that run along time (or the transforms that stand in
for them), forward and backward. Activations, biases, normalisation layers, losses and the optimiser are left out: they
are few. An addition and a multiplication count one each, so

| operation                                      | forward            | backward                                   |
|------------------------------------------------|--------------------|--------------------------------------------|
| real product, n rows by [in, out]              | 2 n in out         | twice that; once where the rows are data   |
| complex x ← λ x + c                            | 8                  | 8 for the adjoint, 8 for the gradient of λ |
| complex convolution by FFT of padded length N  | 10 N log₂ N + 6 N  | 10 N log₂ N + 12 N                         |
| real convolution by FFT of padded length N     | half of that       | half of that                               |

What is recomputed to save memory is not counted twice.
"""

import math
from dataclasses import dataclass
from functools import singledispatch

import equinox as eqx
import jax
from scipy.fft import next_fast_len

from koopax.bench.paper_listing import PaperListingCore
from koopax.models.action_inputs import ActionInput
from koopax.models.dssm import DSSMCore
from koopax.models.dynamics import DynamicsModel
from koopax.models.gru import GRUCore
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import LatentDynamics
from koopax.models.members import MemberActionEncoders, MemberDecoders
from koopax.models.mlp import MLPCore
from koopax.models.networks import MLP, LinearPath
from koopax.models.transformer import TransformerCore
from koopax.training.losses import consistency_every


@dataclass(frozen=True)
class Flops:
    """Operations, forward and backward."""

    products: float
    """Of matrices, attention included."""
    recurrence: float = 0.0
    """Of what runs along time besides: diagonal recurrences and convolutions."""

    @property
    def total(self) -> float:
        """All that is counted."""
        return self.products + self.recurrence


def training_flops(
    model: DynamicsModel,
    *,
    horizon: int,
    batch_size: int,
    consistency_steps: int | None,
    reward: bool,
    loss_stride: int = 1,
) -> Flops:
    """One gradient step on `batch_size` windows of `horizon` steps.

    Args:
        model: whose sizes count.
        horizon: T.
        batch_size: windows.
        consistency_steps: decoded steps of a window on which the consistency loss is taken, None for all, 0 for none.
        reward: whether rewards are predicted too.
        loss_stride: n, where only every n-th step is decoded and compared.
    """
    decoded = -(-horizon // loss_stride)
    rows = batch_size * decoded
    # On all of them in every step, or on some of them in some steps.
    compared = decoded if consistency_steps is None else min(consistency_steps, decoded)
    parts = (
        model.encoder,
        model.core,
        model.decoder,
        model.reward_head,
    )  # counted by their shapes, also without values
    every = consistency_every(sum(leaf.size for leaf in jax.tree.leaves(parts)))
    encoded = batch_size * (1 + (compared if compared == decoded else compared / every))
    products = encoded * _network(model.encoder, of_data=True) + rows * _network(model.decoder)
    if reward and model.reward_head is not None:
        products += rows * _network(model.reward_head)
    core = core_flops(model.core, horizon, batch_size, loss_stride if model.reward_head is None else 1)
    return Flops(products + core.products, core.recurrence)


@singledispatch
def core_flops(core: LatentDynamics, horizon: int, batch_size: int, stride: int = 1) -> Flops:
    """The core's share of `training_flops`: every `stride`-th latent of each window, and the gradient.

    Only a diagonal linear core saves anything by leaving latents out: n of its steps are one step of another.
    """
    raise NotImplementedError(f"the operations of {type(core).__name__} have no formula in koopax.bench.flops")


@core_flops.register
def _(core: KoopmanCore, horizon: int, batch_size: int, stride: int = 1) -> Flops:
    rows, modes = batch_size * horizon, core.modes_size // 2
    embedded = 2 * core.input_real.shape[1]
    # Actions are data; a pilot, which the encoder sees beside them, is not.
    each = _network(core.action_encoder, of_data=core.pilot is None) + _product(embedded, core.modes_size)
    recurrent = batch_size * -(-horizon // stride) * 24.0 * modes
    if core.pilot is not None:  # all of its steps are seen
        each += _product(core.pilot.input_real.shape[1], core.pilot_size)
        recurrent += rows * 12.0 * core.pilot_size
    return Flops(rows * each, recurrent)


@core_flops.register
def _(core: PaperListingCore, horizon: int, batch_size: int, stride: int = 1) -> Flops:
    rows, modes = batch_size * horizon, core.latent_size // 2
    embedded = core.action_encoder.layers[-1].weight.shape[0]
    each = _network(core.action_encoder, of_data=True) + _product(embedded, core.latent_size)
    # λ̄ᵏ x_0 is added at every step, and both factors have a gradient.
    return Flops(rows * each, batch_size * modes * _complex_convolution(2 * horizon) + rows * 24.0 * modes)


@core_flops.register
def _(core: MLPCore, horizon: int, batch_size: int, stride: int = 1) -> Flops:
    hidden = core.latent_input.weight.shape[0]
    between = len(core.between) * _product(hidden, hidden)
    each = _actions(core.action_input) + 2 * _product(core.latent_size, hidden) + between
    return Flops(batch_size * horizon * each)


@core_flops.register
def _(core: GRUCore, horizon: int, batch_size: int, stride: int = 1) -> Flops:
    each = _actions(core.action_input) + _product(core.latent_size, 3 * core.latent_size)
    return Flops(batch_size * horizon * each)


@core_flops.register
def _(core: TransformerCore, horizon: int, batch_size: int, stride: int = 1) -> Flops:
    tokens, width = horizon + 1, core.latent_size
    embedding = horizon * _product(*core.action_embedding.weight.shape, of_data=True)
    feedforward = core.blocks[0].feedforward_in.weight.shape[0]
    each = 4 * _product(width, width) + 2 * _product(width, feedforward)
    # Scores and mixed values over all pairs of tokens: the mask hides half of them, but they are computed.
    attention = 2 * tokens * _product(tokens, width)
    return Flops(batch_size * (embedding + len(core.blocks) * (tokens * each + attention)))


@core_flops.register
def _(core: DSSMCore, horizon: int, batch_size: int, stride: int = 1) -> Flops:
    tokens, channels = horizon + 1, core.latent_size
    embedding = horizon * _product(*core.action_embedding.weight.shape, of_data=True)
    mixing = len(core.layers) * tokens * _product(channels, 2 * channels)
    length: int = next_fast_len(2 * tokens - 1, real=True)  # pyright: ignore[reportAssignmentType]  (untyped)
    convolution = channels * _complex_convolution(length) / 2
    # The kernel, once per layer: powers of λ̄ and their gain (6 each), the real part of the readout (4).
    kernel = tokens * core.layers[0].space.frequency.size * 3 * 16.0
    return Flops(batch_size * (embedding + mixing), len(core.layers) * (batch_size * convolution + kernel))


def _product(fan_in: int, fan_out: int, *, of_data: bool = False) -> float:
    """One row by a matrix. Data has no gradient."""
    return (4.0 if of_data else 6.0) * fan_in * fan_out


def _network(network: eqx.Module, *, of_data: bool = False) -> float:
    if isinstance(network, LinearPath):
        return _product(*network.linear.weight.shape, of_data=of_data) + _network(network.network, of_data=of_data)
    if isinstance(network, MemberActionEncoders | MemberDecoders):
        return sum(_network(own, of_data=of_data) for own in network.networks)
    if not isinstance(network, MLP):
        raise NotImplementedError(f"the operations of {type(network).__name__} have no formula in koopax.bench.flops")
    first, *others = (layer.weight.shape for layer in network.layers)
    return _product(*first, of_data=of_data) + sum(_product(*shape) for shape in others)


def _actions(layer: ActionInput) -> float:
    if layer.embedding is None:
        return _product(*layer.projection.weight.shape, of_data=True)
    return _product(*layer.embedding.weight.shape, of_data=True) + _product(*layer.projection.weight.shape)


def _complex_convolution(padded: int) -> float:
    """Two transforms and a product, then two transforms and two products; the kernel's own are shared by the batch."""
    return 20.0 * padded * math.log2(padded) + 18.0 * padded
