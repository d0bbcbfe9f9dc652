"""TrainState: all that a training run carries from step to step, and the step itself."""

from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from koopax._types import Array, Float, Int, PRNGKeyArray
from koopax.data.windows import Windows, WindowSampler
from koopax.models.dynamics import DynamicsModel
from koopax.models.spectrum import Spectrum
from koopax.training.config import TrainConfig
from koopax.training.losses import loss_terms, loss_weights, total_loss
from koopax.training.microbatch import fastest_microbatch, mean_over_microbatches


class TrainState(eqx.Module):
    """Parameters, optimiser and running sums. Saved whole, so that a resumed run continues bit for bit."""

    model: DynamicsModel
    optimiser: optax.OptState
    step: Int[Array, ""]
    sums: dict[str, Float[Array, ""]]
    """Sums of each metric since the last line of metrics."""
    first_bad_step: Int[Array, ""]
    """The first step whose loss or gradient was not finite, or −1."""


def optimiser(config: TrainConfig) -> optax.GradientTransformation:
    """Clipped Adam without its learning rate, which depends on progress and is applied in `train_step`."""

    def matrices(parameters):
        return jax.tree.map(lambda leaf: leaf is not None and jnp.ndim(leaf) >= 2, parameters)

    assert config.beta2 is not None  # fit resolves it
    decay = optax.add_decayed_weights(_decay(config), mask=matrices) if config.weight_decay else optax.identity()
    adam = rising_adam(config.beta2, config.beta2_rise) if config.beta2_rise else optax.scale_by_adam(b2=config.beta2)
    return optax.chain(optax.clip_by_global_norm(config.clip), adam, decay)


def _decay(config: TrainConfig) -> optax.ScalarOrSchedule:
    """The weight decay, or how it rises to that."""
    assert config.weight_decay is not None  # fit resolves it
    if not config.decay_steps:
        return config.weight_decay
    return optax.linear_schedule(0.0, config.weight_decay, config.decay_steps)


def rising_adam(
    beta2: float, rise: float, *, beta1: float = 0.9, epsilon: float = 1e-8
) -> optax.GradientTransformation:
    """Adam whose memory of squared gradients grows with the step, as Adafactor's does:

        v_t = β_t v_{t−1} + (1 − β_t) g_t²,    β_t = min(β₂, 1 − t^−κ),    t = 1, 2, …

    A short memory follows gradients that fall fast at first, a long one averages those that hardly change at the end.
    β_1 = 0, so that v has no bias to correct. (Optax's Adam has a fixed β₂, its Adafactor no m of plain gradients.)
    """
    adam = optax.scale_by_adam(b1=beta1)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        count = state.count + 1
        now = count.astype(jnp.float32)  # which leaves parameters their own precision
        decay = jnp.minimum(beta2, 1 - now**-rise)
        mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.mu, updates)
        square = jax.tree.map(lambda v, g: decay * v + (1 - decay) * g**2, state.nu, updates)
        unbiased = 1 - beta1**now
        scaled = jax.tree.map(lambda m, v: m / unbiased / (jnp.sqrt(v) + epsilon), mean, square)
        return scaled, optax.ScaleByAdamState(count, mean, square)

    return optax.GradientTransformation(adam.init, update)


def initial_state(model: DynamicsModel, config: TrainConfig) -> TrainState:
    """The state before the first step."""
    parameters = eqx.filter(model, model.trainable())
    return TrainState(
        model=model,
        optimiser=optimiser(config).init(parameters),
        step=jnp.zeros((), jnp.int32),
        sums=no_sums(config),
        first_bad_step=-jnp.ones((), jnp.int32),
    )


def no_sums(config: TrainConfig) -> dict[str, Array]:
    """Empty running sums of the loss, its terms and the gradient norm."""
    names = ["loss", *(name for name, weight in loss_weights(config).items() if weight > 0), "gradient_norm"]
    return {name: jnp.zeros(()) for name in names}


def learning_rate(progress: Float[Array, ""], config: TrainConfig) -> Float[Array, ""]:
    """Linear warm-up, then a cosine from the peak to `final_learning_rate` of it; progress runs from 0 to 1."""
    rise = progress / config.warmup if config.warmup else jnp.ones(())
    along = jnp.clip((progress - config.warmup) / (1 - config.warmup), 0, 1)
    end = config.final_learning_rate
    fall = end + (1 - end) * 0.5 * (1 + jnp.cos(jnp.pi * along))
    assert config.learning_rate is not None  # fit resolves it
    return config.learning_rate * jnp.minimum(rise, fall)


def step_keys(key: PRNGKeyArray, step: Int[Array, ""]) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Keys of a step: that of its windows, and that of the random steps of its losses."""
    of_windows, of_losses = jax.random.split(jax.random.fold_in(key, step))
    return of_windows, of_losses


class FedWindows(eqx.Module):
    """Batches of the next steps, which the host has read: what a sampler is to data on the device."""

    windows: Windows
    """With an axis for the steps in front."""

    def at(self, index: Int[Array, ""]) -> Windows:
        """The batch of the step of that number in the block."""
        return jax.tree.map(lambda leaf: leaf[index], self.windows)


def _part(rows: Int[Array, " batch"], axis: str) -> Int[Array, " part"]:
    """Of the windows of a batch, those of this device."""
    size = rows.shape[0] // jax.lax.axis_size(axis)
    return jax.lax.dynamic_slice_in_dim(rows, size * jax.lax.axis_index(axis), size)


def _averaged(tree: Any, axis: str) -> Any:
    """The mean over devices, in one message: each has its price, however small it is."""
    flat, restored = ravel_pytree(tree)
    return restored(jax.lax.pmean(flat, axis))


def train_step(
    state: TrainState,
    windows: Windows,
    progress: Float[Array, ""],
    config: TrainConfig,
    subset_key: PRNGKeyArray,
    axis: str | None = None,
) -> TrainState:
    """One gradient step; with an `axis` of devices, `windows` are this device's part of the batch."""
    parameters, rest = eqx.partition(state.model, state.model.trainable())

    def loss(parameters, windows: Windows):
        terms = loss_terms(eqx.combine(parameters, rest), windows, config, key=subset_key)
        return total_loss(terms, config), terms

    differentiate = partial(jax.value_and_grad(loss, has_aux=True), parameters)
    here = replace(config, batch_size=windows.rewards.shape[1])
    of_frames = state.model.config.image_shape is not None  # microbatches are a loop, in which convolutions are slow
    own = here.batch_size if of_frames else fastest_microbatch(here, state.model.config.core)
    size = config.microbatch_size or own
    found = mean_over_microbatches(differentiate, windows, size)
    (value, terms), gradients = found if axis is None else _averaged(found, axis)
    updates, optimiser_state = optimiser(config).update(gradients, state.optimiser, parameters)
    rate = learning_rate(progress, config)
    updates = jax.tree.map(lambda update: -rate * update, updates)
    updates = _scale_spectrum(updates, config.spectrum_learning_rate)
    parameters = eqx.apply_updates(parameters, updates)

    metrics = {"loss": value, **terms, "gradient_norm": optax.tree.norm(gradients)}
    bad_now = (state.first_bad_step < 0) & ~(jnp.isfinite(value) & jnp.isfinite(metrics["gradient_norm"]))
    return TrainState(
        model=eqx.combine(parameters, rest),
        optimiser=optimiser_state,
        step=state.step + 1,
        sums={name: total + metrics[name] for name, total in state.sums.items()},
        first_bad_step=jnp.where(bad_now, state.step, state.first_bad_step),
    )


def train_steps(
    state: TrainState,
    source: WindowSampler | FedWindows,
    progress: Float[Array, " most"],
    count: Int[Array, ""],
    config: TrainConfig,
    key: PRNGKeyArray,
    axis: str | None = None,
) -> TrainState:
    """`count` gradient steps, at most as many as there are values of `progress`.

    All randomness comes from `key` and the steps' numbers. With an `axis`, each of its devices has a part of the batch.

    One program for many steps keeps its intermediate results in the same memory, where one program for each would take
    it from the system, which clears it page by page, and give it back. One step at a time is no loop: inside of one,
    XLA's convolutions are twenty times slower on a CPU.
    """
    arrays, rest = eqx.partition(state, eqx.is_array)

    def body(index: Array, arrays: TrainState) -> TrainState:
        state = eqx.combine(arrays, rest)
        window_key, subset_key = step_keys(key, state.step)
        if isinstance(source, FedWindows):
            windows = source.at(index)
        elif axis is None:
            windows = source.sample(window_key, config.batch_size)
        else:
            windows = source.gather(_part(source.rows(window_key, config.batch_size), axis))
        state = train_step(state, windows, progress[index], config, subset_key, axis)
        return eqx.filter(state, eqx.is_array)

    if progress.shape[0] == 1:
        return eqx.combine(body(jnp.zeros((), int), arrays), rest)
    return eqx.combine(jax.lax.fori_loop(0, count, body, arrays), rest)


def _scale_spectrum(updates, factor: float):
    def scale(node):
        return jax.tree.map(lambda leaf: factor * leaf, node) if isinstance(node, Spectrum) else node

    return jax.tree.map(scale, updates, is_leaf=lambda node: isinstance(node, Spectrum))
