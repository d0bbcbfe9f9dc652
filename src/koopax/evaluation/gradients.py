"""How far gradients travel through time in a latent dynamics core.

The loss is a random linear functional of the latent after k steps, L_k = ⟨v, x_k⟩ with |v| = 1, the same v for every k.
The profile holds the norms of ∂L_k/∂x_0 and of ∂L_k/∂a_l, next to that of ∂L_k/∂x_k = v. Their ratio is what one learns
from: for a Koopman core, theorem 3.1 says that |∂L_k/∂x_0ʲ| is exactly exp(k Δt μ_j) |∂L_k/∂x_kʲ|; a network applied in
sequence makes no promise.

A mean square in its place would say nothing about cores that end in LayerNorm: its output has a constant mean square,
so that the gradient is zero however well the core remembers.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._types import Array, Float, PRNGKeyArray
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import LatentDynamics


@dataclass(frozen=True)
class GradientProfile:
    """Gradient norms for a loss at each step k = 1 … T."""

    at_loss: np.ndarray
    """|∂L_k/∂x_k|, shape [T]."""
    start: np.ndarray
    """|∂L_k/∂x_0|, shape [T]."""
    inputs: np.ndarray
    """|∂L_k/∂a_l| for l = 0 … T−1, shape [T, T]; zero for l ≥ k, which comes after the loss."""

    @property
    def transfer(self) -> np.ndarray:
        """|∂L_k/∂x_0| / |∂L_k/∂x_k|, shape [T]: 1 is a gradient that arrives as it left."""
        return self.start / self.at_loss


def gradient_profile(
    core: LatentDynamics,
    latent: Float[Array, " latent"],
    actions: Float[Array, "time action"],
    *,
    key: PRNGKeyArray,
) -> GradientProfile:
    """The gradient norms of ⟨v, x_k⟩ at every step k, for any core, from one start latent and action sequence.

    `key` draws v, evenly from the unit sphere. Of a Koopman core's latent the modes are looked at, not the actions that
    it may remember beside them.
    """
    width = core.modes_size if isinstance(core, KoopmanCore) else core.latent_size
    direction = jax.random.normal(key, (width,))
    direction = direction / jnp.linalg.norm(direction)
    start, inputs = _pulled_back(core, latent, actions, direction)
    at_loss = np.full(actions.shape[0], jnp.linalg.norm(direction))
    return GradientProfile(at_loss=at_loss, start=np.asarray(start), inputs=np.asarray(inputs))


@eqx.filter_jit
def _pulled_back(
    core: LatentDynamics,
    latent: Float[Array, " latent"],
    actions: Float[Array, "time action"],
    direction: Float[Array, " width"],
) -> tuple[Float[Array, " time"], Float[Array, "time time"]]:
    """The norms of ∂⟨v, x_k⟩/∂x_0 and of ∂⟨v, x_k⟩/∂a_l for every k; compiled once for a kind of core."""
    width = direction.shape[0]

    def moving(start: Array, actions: Array) -> Array:
        return core.rollout(jnp.concatenate([start, latent[width:]]), actions)[:, :width]

    latents, pull_back = jax.vjp(moving, latent[:width], actions)

    def of_step(k: Array) -> tuple[Array, Array]:
        of_start, of_actions = pull_back(jnp.zeros_like(latents).at[k].set(direction))
        return jnp.linalg.norm(of_start), jnp.linalg.norm(of_actions, axis=-1)

    # One pull-back at a time: a batch of T of them would hold T² latents.
    return jax.lax.map(of_step, jnp.arange(actions.shape[0]))
