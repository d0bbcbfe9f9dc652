"""The DSSM core: layers of diagonal state space models (S4D) over the start latent and the actions.

Each of the H channels of a layer drives its own N/2 complex modes, whose conjugates are implied:

    A = −exp(log_decay) + i · frequency,      λ̄ = exp(Δ A),      γ = (λ̄ − 1) / A          (zero-order hold)
    s_t = λ̄ s_{t−1} + γ u_t                   recurrent, for `step`
    y_t = 2 Re Σ_n C_n s_{t,n} + D u_t  =  Σ_{l ≤ t} K_{t−l} u_l + D u_t,   K_l = 2 Re Σ_n C_n γ_n λ̄_nˡ
    layer(u) = norm(u + GLU(W GELU(y)))

A state space model starts from nothing, so the start latent is the first input and the actions follow; later states
are masked. The output at action k is x̂_{k+1}. A rollout is a causal convolution with the kernel K by FFT, where the
durations are equal, and the recurrence otherwise: durations scale Δ, so irregular ones need no training.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from scipy.fft import next_fast_len

from koopax._errors import KoopaxError
from koopax._types import Array, Float, PRNGKeyArray
from koopax.models.latent import Memory, SequenceDynamics
from koopax.models.networks import Linear
from koopax.models.recurrence import Pair, linear_recurrence, multiply, powers
from koopax.models.spectrum import held_exponential_mean

TIME_STEP_START = (1e-3, 1e-1)


class DSSMMemory(Memory):
    """The latest latent, and the modes' states in every layer, as pairs of shape `[channels, modes]`."""

    latent: Float[Array, " latent"]
    states: tuple[Pair, ...]


class StateSpace(eqx.Module):
    """u ↦ y: one single-input single-output diagonal state space model per channel."""

    log_decay: Float[Array, "channels modes"]
    frequency: Float[Array, "channels modes"]
    log_time_step: Float[Array, " channels"]
    readout_real: Float[Array, "channels modes"]
    readout_imag: Float[Array, "channels modes"]
    skip: Float[Array, " channels"]

    def __init__(self, channels: int, modes: int, *, key: PRNGKeyArray):
        """S4D-Lin: A_n = −½ + iπn, n = 0 … modes − 1; Δ log-uniform in [0.001, 0.1]; C complex normal."""
        step_key, real_key, imag_key, skip_key = jax.random.split(key, 4)
        low, high = (math.log(bound) for bound in TIME_STEP_START)
        self.log_decay = jnp.full((channels, modes), math.log(0.5))
        self.frequency = jnp.tile(jnp.pi * jnp.arange(modes, dtype=float), (channels, 1))
        self.log_time_step = jax.random.uniform(step_key, (channels,), minval=low, maxval=high)
        self.readout_real = math.sqrt(0.5) * jax.random.normal(real_key, (channels, modes))
        self.readout_imag = math.sqrt(0.5) * jax.random.normal(imag_key, (channels, modes))
        self.skip = jax.random.normal(skip_key, (channels,))

    def zero_state(self) -> Pair:
        """The state before the first input."""
        return jnp.zeros_like(self.frequency), jnp.zeros_like(self.frequency)

    def discretise(self, durations: Float[Array, " time"] | None = None) -> tuple[Pair, Pair]:
        """λ̄ and γ, pairs of shape `[channels, modes]`, or `[time, channels, modes]` for given durations."""
        elapsed = jnp.exp(self.log_time_step)[:, None]
        if durations is not None:
            elapsed = elapsed * durations[:, None, None]
        real, imag = -jnp.exp(self.log_decay) * elapsed, self.frequency * elapsed
        magnitude = jnp.exp(real)
        mean = held_exponential_mean((real, imag))
        return (magnitude * jnp.cos(imag), magnitude * jnp.sin(imag)), (elapsed * mean[0], elapsed * mean[1])

    def read(self, states: Pair) -> Float[Array, "*time channels"]:
        """2 Re Σ_n C_n s_n."""
        return 2 * jnp.sum(multiply((self.readout_real, self.readout_imag), states)[0], axis=-1)

    def respond(
        self, inputs: Float[Array, "time channels"], start: Pair | None, durations: Float[Array, " time"] | None
    ) -> Float[Array, "time channels"]:
        """y_1 … y_T; `start` is the state before the first input, None for zero."""
        if durations is None:
            return self.convolve(inputs, start)
        return self.recur(inputs, self.zero_state() if start is None else start, durations)

    def convolve(self, inputs: Float[Array, "time channels"], start: Pair | None) -> Float[Array, "time channels"]:
        """y_1 … y_T by FFT, zero-padded so that nothing wraps around."""
        horizon = inputs.shape[0]
        transition, gain = self.discretise()
        power = powers(transition, horizon)
        later = multiply((power[0][:-1], power[1][:-1]), gain)
        kernel = self.read((jnp.concatenate([gain[0][None], later[0]]), jnp.concatenate([gain[1][None], later[1]])))
        length = next_fast_len(2 * horizon - 1, real=True)
        product = jnp.fft.rfft(inputs, length, axis=0) * jnp.fft.rfft(kernel, length, axis=0)
        outputs = jnp.fft.irfft(product, length, axis=0)[:horizon] + self.skip * inputs
        return outputs if start is None else outputs + self.read(multiply(power, start))

    def recur(
        self, inputs: Float[Array, "time channels"], start: Pair, durations: Float[Array, " time"]
    ) -> Float[Array, "time channels"]:
        """y_1 … y_T by the recurrence, which takes a duration for each step."""

        def flat(pair: Pair) -> Pair:
            return pair[0].reshape(*pair[0].shape[:-2], -1), pair[1].reshape(*pair[1].shape[:-2], -1)

        transition, gain = self.discretise(durations)
        driven = gain[0] * inputs[..., None], gain[1] * inputs[..., None]
        real, imag = linear_recurrence(flat(transition), flat(driven), flat(start))
        shape = driven[0].shape
        return self.read((real.reshape(shape), imag.reshape(shape))) + self.skip * inputs

    def step(
        self, inputs: Float[Array, " channels"], start: Pair, duration: Float[Array, ""] | None
    ) -> tuple[Float[Array, " channels"], Pair]:
        """y_1 and the state after one input."""
        transition, gain = self.discretise(None if duration is None else duration[None])
        moved = multiply(transition, start)
        state = (
            (moved[0] + gain[0] * inputs[:, None]).reshape(start[0].shape),
            (moved[1] + gain[1] * inputs[:, None]).reshape(start[1].shape),
        )
        return self.read(state) + self.skip * inputs, state


class Layer(eqx.Module):
    """A state space model, mixed over the channels and added to its input."""

    space: StateSpace
    mix: Linear
    norm: eqx.nn.LayerNorm

    def __init__(self, channels: int, modes: int, *, key: PRNGKeyArray):
        space_key, mix_key = jax.random.split(key)
        self.space = StateSpace(channels, modes, key=space_key)
        self.mix = Linear(channels, 2 * channels, key=mix_key)
        self.norm = eqx.nn.LayerNorm(channels)

    def combine(self, inputs: Float[Array, " channels"], outputs: Float[Array, " channels"]) -> Array:
        """norm(u + GLU(W GELU(y)))."""
        return self.norm(inputs + jax.nn.glu(self.mix(jax.nn.gelu(outputs))))


class DSSMCore(SequenceDynamics):
    """A stack of S4D layers over the start latent and the actions; it has as many channels as the latent is wide."""

    action_embedding: Linear
    layers: tuple[Layer, ...]
    latent_size: int = eqx.field(static=True)
    action_size: int = eqx.field(static=True)

    def __init__(self, latent_size: int, action_size: int, *, layers: int = 4, state_size: int = 32, key: PRNGKeyArray):
        """Build the core.

        Args:
            latent_size: width of the latent: the channels of every layer (H).
            action_size: components of an action.
            layers: number of layers.
            state_size: modes of each channel with their conjugates (N).
            key: for the initial parameters.
        """
        if state_size < 2 or state_size % 2:
            raise KoopaxError(
                f"state_size {state_size} can't hold conjugate pairs of modes: use an even number of 2 or more."
            )
        if layers < 1:
            raise KoopaxError(f"a DSSM of {layers} layers sees nothing of the past: use 1 or more.")
        action_key, *layer_keys = jax.random.split(key, 1 + layers)
        self.action_embedding = Linear(action_size, latent_size, key=action_key)
        self.layers = tuple(Layer(latent_size, state_size // 2, key=layer_key) for layer_key in layer_keys)
        self.latent_size = latent_size
        self.action_size = action_size

    def rollout(
        self,
        latent: Float[Array, " latent"] | DSSMMemory,
        actions: Float[Array, "time action"],
        durations: Float[Array, " time"] | None = None,
    ) -> Float[Array, "time latent"]:
        """x̂_1 … x̂_T, every step at once where the durations are equal."""
        tokens = jax.vmap(self.action_embedding)(actions)
        if isinstance(latent, DSSMMemory):
            starts = latent.states
        else:
            starts = (None,) * len(self.layers)
            tokens = jnp.concatenate([latent[None], tokens])
            durations = None if durations is None else jnp.concatenate([jnp.ones_like(durations[:1]), durations])
        for layer, start in zip(self.layers, starts, strict=True):
            tokens = jax.vmap(layer.combine)(tokens, layer.space.respond(tokens, start, durations))
        return tokens[-actions.shape[0] :]

    def step(
        self,
        latent: Float[Array, " latent"] | DSSMMemory,
        action: Float[Array, " action"],
        duration: Float[Array, ""] | None = None,
    ) -> DSSMMemory:
        """x̂_1, with the states that it came from."""
        memory = latent if isinstance(latent, DSSMMemory) else self.begin(latent)
        return self._feed(self.action_embedding(action), memory.states, duration)

    def begin(self, latent: Float[Array, " latent"]) -> DSSMMemory:
        """The memory of the start alone, which takes one step of nominal duration."""
        fed = self._feed(latent, tuple(layer.space.zero_state() for layer in self.layers), None)
        return DSSMMemory(latent, fed.states)

    def _feed(self, token: Float[Array, " latent"], states: tuple[Pair, ...], duration: Array | None) -> DSSMMemory:
        after = []
        for layer, start in zip(self.layers, states, strict=True):
            outputs, state = layer.space.step(token, start, duration)
            token = layer.combine(token, outputs)
            after.append(state)
        return DSSMMemory(token, tuple(after))
