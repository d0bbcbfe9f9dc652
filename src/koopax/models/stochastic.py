"""How sure a stochastic Koopman core is: noise in every mode, and its variance in closed form at every step.

    x_{t+1} = λ̄ x_t + L̄ u_t + w_t,   w_t ~ N(0, q)            independent in every mode, complex and circular
    P_{t+1} = |λ̄|² P_t + q,          P_0 = p e^{2 tanh(v(x_0))}  the variance of the real and the imaginary part

A diagonal system keeps the modes independent and a rotation keeps a circle round, so one more diagonal recurrence is
all there is, and with g = ln |λ̄|² its solution needs no recurrence: after t steps, or t nominal steps of irregular
length, where it is that of the Ornstein–Uhlenbeck process,

    P_t = e^{g t} P_0 + q (e^{g t} − 1) / (e^g − 1)            and q t where g = 0.

What it means for the states is found by carrying the variance through the decoder layer by layer, as if hidden units
were independent and activations linear around their mean: (W²) v after a layer with weights W, φ′(h)² v after an
activation. To it comes what the latent does not explain, a variance that a small network f reads off the latent:

    s_t ~ N(d(x̂_t), σ²_t),   σ²_t = diag(J P_t Jᵀ), approximately, + r e^{2 tanh(f(x̂_t))}

v is a small network as well. What depends on a latent is bounded, by a factor of e in the deviation: beyond the data it
would be without measure.

q, p, v, r and f are learned by the likelihood of states and rewards. The mean, its eigenvalues and the decoder are
those of the squared error: by the likelihood they would neglect what is hard to predict, and explain it by noise.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import KoopaxError
from koopax._types import Array, Float, PRNGKeyArray
from koopax.models.koopman import KoopmanCore
from koopax.models.networks import MLP, LinearPath

# Variances at the start, in units of the latents and of the training data's variance.
FIRST_PROCESS, FIRST_START, FIRST_READOUT = 1e-3, 1e-2, 1e-1
START_HIDDEN, READOUT_HIDDEN = 16, 64
# Logarithms of variances stay within these bounds, where neither they nor their inverses are lost in float32.
LOWEST, HIGHEST = -16.0, 8.0
# How far a latent may move such a logarithm.
REACH = 2.0
# Parameters are logarithms over this, so that an optimiser that moves a network's weights as they need to be moved, by
# thousandths a step, also finds variances that are wrong by orders of magnitude, within a short training.
SPEED = 10.0


class LatentNoise(eqx.Module):
    """The noise of a Koopman core and of the readout of its latents."""

    raw_process: Float[Array, " modes"]
    raw_start: Float[Array, " modes"]
    raw_readout: Float[Array, " output"]
    start: MLP
    readout: MLP

    def __init__(self, core: KoopmanCore, outputs: int, *, key: PRNGKeyArray):
        """For a core and a decoder of so many outputs; it begins with the same small noise everywhere."""
        start_key, readout_key = jax.random.split(key)
        modes = core.modes_size // 2
        self.raw_process = jnp.full(modes, math.log(FIRST_PROCESS) / SPEED)
        self.raw_start = jnp.full(modes, math.log(FIRST_START) / SPEED)
        self.raw_readout = jnp.full(outputs, math.log(FIRST_READOUT) / SPEED)
        self.start = _silent(MLP((core.latent_size, START_HIDDEN, modes), activation=jax.nn.gelu, key=start_key))
        readout = MLP((core.latent_size, READOUT_HIDDEN, outputs), activation=jax.nn.gelu, key=readout_key)
        self.readout = _silent(readout)

    def variances(
        self, core: KoopmanCore, start: Float[Array, " latent"], times: Float[Array, " time"]
    ) -> Float[Array, "time modes"]:
        """P_t at these times after the start, in nominal steps."""
        decay, _ = core.spectrum.rates()
        growth = 2 * decay * core.spectrum.time_step()
        lasting, time = _variance(self.raw_process), times[:, None]
        begun = _variance(self.raw_start, self.start(start))
        return jnp.exp(growth * time) * begun + lasting * time * _mean_growth(growth * time) / _mean_growth(growth)

    def deviations(
        self,
        core: KoopmanCore,
        decoder: MLP | LinearPath,
        start: Float[Array, " latent"],
        latents: Float[Array, "time latent"],
        durations: Float[Array, " time"] | None = None,
    ) -> Float[Array, "time output"]:
        """σ of every output of the decoder at every step, for the latents x̂_1 … x̂_T of a rollout from x_0."""
        steps = jnp.arange(1.0, len(latents) + 1) if durations is None else jnp.cumsum(durations)
        return self.deviations_at(core, decoder, start, latents, steps)

    def deviations_at(
        self,
        core: KoopmanCore,
        decoder: MLP | LinearPath,
        start: Float[Array, " latent"],
        latents: Float[Array, "steps latent"],
        times: Float[Array, " steps"],
    ) -> Float[Array, "steps output"]:
        """As `deviations`, at some steps."""
        modes = self.variances(core, start, times)
        known = jnp.zeros((len(latents), core.latent_size - core.modes_size), modes.dtype)  # actions and context
        of_latents = jnp.concatenate([modes, modes, known], axis=-1)
        carried = jax.vmap(lambda x, v: carried_variance(decoder, x, v))(latents, of_latents)
        return jnp.sqrt(carried + _variance(self.raw_readout, jax.vmap(self.readout)(latents)))


def _variance(raw: Array, moved: Array | float = 0.0) -> Array:
    return jnp.exp(jnp.clip(SPEED * raw, LOWEST, HIGHEST) + REACH * jnp.tanh(moved))


def carried_variance(
    network: MLP | LinearPath, inputs: Float[Array, " input"], variance: Float[Array, " input"]
) -> Float[Array, " output"]:
    """The variance of a network's outputs, carried through it layer by layer."""
    if isinstance(network, LinearPath):
        path = variance @ (network.linear.weight**2).T
        return path + carried_variance(network.network, inputs, variance)
    for layer in network.layers[:-1]:
        before = layer(inputs)
        inputs, slope = jax.jvp(network.activation, (before,), (jnp.ones_like(before),))
        variance = variance @ (layer.weight**2).T * slope**2
    return variance @ (network.layers[-1].weight ** 2).T


def make_noise(config: Any, core: Any, *, key: PRNGKeyArray) -> LatentNoise | None:
    """The noise of a model that is to have some; raises where its parts know no closed form."""
    if not config.stochastic:
        return None
    reasons = {
        f"the core {config.core!r}": not isinstance(core, KoopmanCore),
        "bilinear eigenvalues": getattr(core, "bilinear", False),
        "adaptive eigenvalues": getattr(core, "adaptive", False),
        "frames": config.image_shape is not None,
        f"reencode_every={config.reencode_every}": config.reencode_every is not None,
        f"reward_hidden={config.reward_hidden}": config.reward_hidden is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise KoopaxError(
                f"a stochastic model does not go with {reason}: use a koopman core with constant eigenvalues, "
                "reward_hidden=None and no returns to the encoder; action histories, contexts and every spectrum do."
            )
    return LatentNoise(core, config.state_size + 1, key=key)


def _silent(network: MLP) -> MLP:
    """The network, saying zero, whatever it sees, until it is trained."""
    last = jax.tree.map(jnp.zeros_like, network.layers[-1])
    return eqx.tree_at(lambda own: own.layers[-1], network, last)


def _mean_growth(z: Array) -> Array:
    """(e^z − 1) / z, with its series near zero, where value and gradient are finite as well."""
    small = jnp.abs(z) < 1e-3
    safe = jnp.where(small, 1.0, z)
    return jnp.where(small, 1 + z / 2 + z**2 / 6, jnp.expm1(safe) / safe)
