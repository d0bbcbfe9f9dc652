"""The self-prediction loss, and what tells whether representations collapse."""

import jax
import jax.numpy as jnp

from koopax._types import Array, Float


def self_prediction_loss(
    predicted: Float[Array, "steps batch representation"],
    targets: Float[Array, "steps batch representation"],
    inside: Float[Array, "steps batch"],
) -> Float[Array, ""]:
    """Σ_k ‖d(x̂_{t+k}) − e(s_{t+k})‖² / K over the steps inside of an episode; targets have no gradient.

    There is no term in x-space: with one, the paper's authors saw representations collapse.
    """
    errors = jnp.sum((predicted - jax.lax.stop_gradient(targets)) ** 2, axis=-1)
    return jnp.sum(inside * errors) / jnp.maximum(jnp.sum(inside), 1)


def spread_and_rank(z: Float[Array, "batch representation"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The standard deviation of z over a batch, and the effective rank of its covariance C: (tr C)² / tr C².

    Both vanish in a collapse: the spread when all observations look alike, the rank, which counts directions of equal
    variance, when they differ in one direction only (then it is 1).
    """
    centred = z - jnp.mean(z, axis=0)
    covariance = centred.T @ centred / z.shape[0]
    variance = jnp.trace(covariance)
    rank = variance**2 / jnp.maximum(jnp.sum(covariance**2), 1e-12)
    return jnp.sqrt(variance / z.shape[1]), rank
