"""How far gradients travel through time in a latent dynamics core.

For a loss L_k on the latent after k steps, the profile holds the norms of ∂L_k/∂x_0 and of ∂L_k/∂a_l, next to that of
∂L_k/∂x_k. Their ratio is what one learns from: for a Koopman core, theorem 3.1 says that |∂L_k/∂x_0ʲ| is exactly
exp(k Δt μ_j) |∂L_k/∂x_kʲ|; a network applied in sequence makes no promise.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from koopax._types import Array, Float
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


def mean_square(latent: Float[Array, " latent"]) -> Float[Array, ""]:
    """A loss that depends on every component of a latent."""
    return 0.5 * jnp.mean(latent**2)


def gradient_profile(
    core: LatentDynamics,
    latent: Float[Array, " latent"],
    actions: Float[Array, "time action"],
    *,
    loss: Callable[[Array], Array] = mean_square,
) -> GradientProfile:
    """The gradient norms of `loss` at every step, for any core, from one start latent and action sequence.

    Of a Koopman core's latent the modes are looked at, not the actions that it may remember beside them.
    """
    horizon = actions.shape[0]
    width = core.modes_size if isinstance(core, KoopmanCore) else core.latent_size

    def moving(start: Array, actions: Array) -> Array:
        return core.rollout(jnp.concatenate([start, latent[width:]]), actions)[:, :width]

    latents, pull_back = jax.vjp(moving, latent[:width], actions)
    at_loss = jax.vmap(jax.grad(loss))(latents)

    def of_step(k: Array) -> tuple[Array, Array]:
        only_k = jnp.zeros_like(latents).at[k].set(at_loss[k])
        of_start, of_actions = pull_back(only_k)
        return jnp.linalg.norm(of_start), jnp.linalg.norm(of_actions, axis=-1)

    # One pull-back at a time: a batch of T of them would hold T² latents.
    start, inputs = jax.lax.map(jax.jit(of_step), jnp.arange(horizon))
    return GradientProfile(
        at_loss=np.asarray(jnp.linalg.norm(at_loss, axis=-1)), start=np.asarray(start), inputs=np.asarray(inputs)
    )
