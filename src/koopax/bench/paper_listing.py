"""The Koopman core computed the way the paper's listing does: a yardstick for `koopax bench speed`, not for training.

    Λ = μ ± iω  (the second half of the modes mirrors the first),   Λ̄ = exp(Λ Δt),   L̄ = Λ⁻¹ (Λ̄ − 1) L
    c_t = L̄ f_φ(a_t),   V_{j,k} = λ̄_jᵏ  (Vandermonde, k = 0 … T)
    x_k = V_{·,k} x_0 + Σ_{l=1}^{k} V_{·,k−l} c_{l−1},   k = 1 … T

All of it in complex numbers, the sum as a causal convolution by FFT, zero-padded to twice the horizon. Its values are
those of `KoopmanCore` with the mirrored `paper` spectrum; the difference is in how they are computed.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import KoopaxError
from koopax._types import Array, Float, PRNGKeyArray
from koopax.data.episodes import Episodes
from koopax.models.dynamics import DynamicsModel
from koopax.models.latent import LatentDynamics
from koopax.models.networks import MLP

DECAY = 0.2
TIME_STEP_START = (1e-3, 1e-1)
# The preset that has the listing's widths; its core is replaced.
PRESET = "koopman-paper"


class PaperListingCore(LatentDynamics):
    """x_{t+1} = Λ̄ x_t + L̄ f_φ(a_t) in complex numbers, unrolled by FFT; a latent holds real parts, then imaginary."""

    action_encoder: MLP
    input_matrix: Float[Array, "embedding modes 2"]
    frequency: Float[Array, " free"]
    log_time_step: Float[Array, ""]
    latent_size: int = eqx.field(static=True)
    action_size: int = eqx.field(static=True)

    def __init__(
        self,
        latent_size: int,
        action_size: int,
        *,
        action_embedding: int = 64,
        action_hidden: tuple[int, ...] = (128,),
        key: PRNGKeyArray,
    ):
        """Build the core.

        Args:
            latent_size: real width of the latent, four times the number of free frequencies.
            action_size: components of an action.
            action_embedding: complex numbers that an action is encoded into.
            action_hidden: widths of the action encoder's hidden layers.
            key: for the initial parameters.
        """
        if latent_size < 4 or latent_size % 4:
            raise KoopaxError(f"latent_size {latent_size} can't hold mirrored modes: use a multiple of 4, such as 512.")
        encoder_key, input_key, step_key = jax.random.split(key, 3)
        low, high = (math.log(bound) for bound in TIME_STEP_START)
        self.action_encoder = MLP((action_size, *action_hidden, 2 * action_embedding), key=encoder_key)
        self.input_matrix = 0.1 * jax.random.normal(input_key, (action_embedding, latent_size // 2, 2))
        self.frequency = jnp.pi * jnp.arange(latent_size // 4, dtype=float)
        self.log_time_step = jax.random.uniform(step_key, (), minval=low, maxval=high)
        self.latent_size = latent_size
        self.action_size = action_size

    def rollout(
        self,
        latent: Float[Array, " latent"],
        actions: Float[Array, "time action"],
        durations: Float[Array, " time"] | None = None,
    ) -> Float[Array, "time latent"]:
        """x_1 … x_T, every step at once."""
        _check_regular(durations)
        horizon = actions.shape[0]
        transition, matrix = self._discretise()
        powers = jnp.vander(transition, horizon + 1, increasing=True).T
        inputs = _complex(jax.vmap(self.action_encoder)(actions)) @ matrix
        padded = 2 * horizon
        product = jnp.fft.fft(inputs, padded, axis=0) * jnp.fft.fft(powers[:-1], padded, axis=0)
        states = jnp.fft.ifft(product, axis=0)[:horizon] + powers[1:] * _complex(latent)
        return _real(states)

    def step(
        self,
        latent: Float[Array, " latent"],
        action: Float[Array, " action"],
        duration: Float[Array, ""] | None = None,
    ) -> Float[Array, " latent"]:
        """x_1 = λ̄ x_0 + c_0."""
        _check_regular(duration)
        transition, matrix = self._discretise()
        return _real(transition * _complex(latent) + _complex(self.action_encoder(action)) @ matrix)

    def _discretise(self) -> tuple[Array, Array]:
        """Λ̄ `[modes]` and L̄ `[embedding, modes]`, complex."""
        rates = jnp.concatenate([-DECAY + 1j * self.frequency, -DECAY - 1j * self.frequency])
        transition = jnp.exp(rates * jnp.exp(self.log_time_step))
        matrix = self.input_matrix[..., 0] + 1j * self.input_matrix[..., 1]
        return transition, (transition - 1) / rates * matrix


def paper_listing_model(data: Episodes, *, key: PRNGKeyArray) -> DynamicsModel:
    """A model of the published size around a `PaperListingCore`."""
    model_key, core_key = jax.random.split(key)
    model = DynamicsModel.create(PRESET, data, key=model_key)
    config = model.config
    sizes = {name: config.core_options[name] for name in ("action_embedding", "action_hidden")}
    core = PaperListingCore(config.latent_size, config.action_size, key=core_key, **sizes)
    return eqx.tree_at(lambda model: model.core, model, core)


def _complex(halves: Array) -> Array:
    real, imag = jnp.split(halves, 2, axis=-1)
    return real + 1j * imag


def _real(values: Array) -> Array:
    return jnp.concatenate([values.real, values.imag], axis=-1)


def _check_regular(durations: Array | None) -> None:
    if durations is not None:
        raise KoopaxError("the paper's listing knows no durations: use the Koopman core for irregular sampling.")
