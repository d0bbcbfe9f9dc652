"""The core of the regressions: a dense matrix that depends linearly on the action.

    x_{t+1} = (A_0 + Σ_i a_i A_i) x_t

With x = φ(s) for fixed functions φ this is the Koopman operator with control, K(a), of section 2 of the paper in a
finite dictionary. A dictionary that holds the constant 1 makes it affine: the column of A_i that belongs to 1 is how
action i enters whatever the state, and DMDc is the case φ(s) = (1, s) with nothing else in A_1, A_2, ….

A step of duration d moves d times as far, x + d (K(a) − 1) x: exact for d = 1, to first order for others.

Unlike the diagonal core it is unrolled in sequence, and nothing bounds it: it is meant to be returned to its dictionary
every step or every few (`reencode_every`). Its matrices are found by least squares, see `koopax.training.regression`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import KoopaxError
from koopax._types import Array, Float, PRNGKeyArray
from koopax.models.latent import LatentDynamics


class LinearCore(LatentDynamics):
    """x_{t+1} = (A_0 + Σ_i a_i A_i) x_t, begun at the identity with small couplings of the actions."""

    matrix: Float[Array, "latent latent"]
    inputs: Float[Array, "action latent coupled"]
    """A_1 … A_a, of which only the first columns are kept: those of the latent's components that actions couple to."""
    latent_size: int = eqx.field(static=True)
    action_size: int = eqx.field(static=True)

    def __init__(self, latent_size: int, action_size: int, *, coupled: int | None = None, key: PRNGKeyArray):
        """Build the core.

        Args:
            latent_size: functions in the dictionary.
            action_size: components of an action.
            coupled: how many of the first functions actions multiply; 1 with a constant in front is a linear input,
                None is all of them, a bilinear one.
            key: for the initial couplings.
        """
        coupled = latent_size if coupled is None else coupled
        if not 1 <= coupled <= latent_size:
            raise KoopaxError(f"coupled is {coupled}: use from 1 to the {latent_size} functions of the dictionary.")
        self.matrix = jnp.eye(latent_size)
        self.inputs = 0.1 * coupled**-0.5 * jax.random.normal(key, (action_size, latent_size, coupled))
        self.latent_size = latent_size
        self.action_size = action_size

    @property
    def linear_in_actions(self) -> bool:
        """Where actions multiply the constant alone."""
        return self.coupled == 1

    @property
    def coupled(self) -> int:
        """How many of the latent's first components actions multiply."""
        return self.inputs.shape[-1]

    def rollout(
        self,
        latent: Float[Array, " latent"],
        actions: Float[Array, "time action"],
        durations: Float[Array, " time"] | None = None,
    ) -> Float[Array, "time latent"]:
        """x_1 … x_T, in sequence."""

        def step(now: Array, inputs: tuple[Array, Array | None]) -> tuple[Array, Array]:
            moved = self.step(now, *inputs)
            return moved, moved

        return jax.lax.scan(step, latent, (actions, durations))[1]

    def step(
        self,
        latent: Float[Array, " latent"],
        action: Float[Array, " action"],
        duration: Float[Array, ""] | None = None,
    ) -> Float[Array, " latent"]:
        """x_1 of x_0."""
        moved = latent @ self.matrix.T + jnp.einsum("a,anc,c->n", action, self.inputs, latent[: self.coupled])
        return moved if duration is None else latent + duration * (moved - latent)


class BilinearReward(eqx.Module):
    """r = wᵀ x + Σ_i a_i w_iᵀ x + Σ_{i ≤ j} m_ij a_i a_j: linear in what a regression knows, quadratic in actions.

    Called, as any reward head, with the latent and the action side by side.
    """

    state_weights: Float[Array, " latent"]
    coupled_weights: Float[Array, "action coupled"]
    action_weights: Float[Array, " pairs"]

    def __init__(self, latent_size: int, action_size: int, coupled: int):
        """Zero until it is fitted."""
        self.state_weights = jnp.zeros(latent_size)
        self.coupled_weights = jnp.zeros((action_size, coupled))
        self.action_weights = jnp.zeros(action_size * (action_size + 1) // 2)

    def __call__(self, joined: Float[Array, " joined"]) -> Float[Array, " 1"]:
        """The normalised reward of [x, a]."""
        latent, action = jnp.split(joined, [self.state_weights.shape[0]])
        coupled = latent[: self.coupled_weights.shape[1]]
        value = latent @ self.state_weights + action @ (self.coupled_weights @ coupled)
        return (value + action_products(action) @ self.action_weights)[None]


def action_products(action: Float[Array, " action"]) -> Float[Array, " pairs"]:
    """a_i a_j for i ≤ j."""
    first, second = jnp.triu_indices(action.shape[0])
    return action[first] * action[second]
