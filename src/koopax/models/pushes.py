"""What embedded actions do to modes: c_t = L̄ u_t as products of real matrices, member by member.

Modes and embedded actions are complex, u = a + ib and L̄ = R + iI, and travel as real parts, then imaginary ones:

    (Re c, Im c) = (a, b) [[Rᵀ, Iᵀ], [−Iᵀ, Rᵀ]]
"""

import equinox as eqx
import jax.numpy as jnp

from koopax._types import Array, Float
from koopax.models.members import joined
from koopax.models.networks import MLP
from koopax.models.recurrence import Pair, multiply


def halves(array: Float[Array, "*batch width"]) -> Pair:
    """Real parts and imaginary ones."""
    real, imag = jnp.split(array, 2, axis=-1)
    return real, imag


def push(embedded: Float[Array, "*batch embedding"], inputs: Pair, *, members: int) -> Float[Array, "*batch latent"]:
    """Every member's embedded actions times its rows of L̄, pairs `[modes, l]`."""
    rows = zip(*(jnp.split(half, members) for half in inputs), strict=True)
    own = jnp.split(embedded, members, axis=-1)
    return joined([each @ _real_matrix(matrix) for each, matrix in zip(own, rows, strict=True)])


def push_many(
    embedded: Float[Array, "batch time embedding"], inputs: Pair, power: Pair, *, members: int
) -> Float[Array, "batch steps latent"]:
    """What n steps at a time add up to, [λ̄ⁿ⁻¹ L̄, …, λ̄ L̄, L̄] [u_k; …; u_{k+n−1}], in one product per member.

    `power` are λ̄¹ … λ̄ⁿ, and the time is a multiple of n.
    """
    stride, batch = len(power[0]), len(embedded)
    one = jnp.ones_like(power[0][:1])
    earlier = (
        jnp.concatenate([power[0][: stride - 1][::-1], one]),
        jnp.concatenate([power[1][: stride - 1][::-1], 0 * one]),
    )
    both = multiply((earlier[0][:, None], earlier[1][:, None]), (inputs[0].T[None], inputs[1].T[None]))
    pushed = []
    for number, own in enumerate(jnp.split(embedded, members, axis=-1)):
        real, imag = (jnp.split(half, members, axis=-1)[number] for half in both)
        from_real, from_imag = jnp.concatenate([real, imag], axis=-1), jnp.concatenate([-imag, real], axis=-1)
        stacked = jnp.concatenate([from_real, from_imag], axis=1)
        pushed.append(own.reshape(batch, -1, stride * own.shape[-1]) @ stacked.reshape(-1, stacked.shape[-1]))
    return joined(pushed)


def pushing(encoder: MLP, inputs: Pair) -> MLP | None:
    """One network that encodes an action and pushes the modes by it, where that has less to multiply; else None."""
    last, modes = encoder.layers[-1], 2 * len(inputs[0])
    embedding, width = last.weight.shape
    if width * modes > embedding * (width + modes):
        return None
    assert last.bias is not None
    matrix = _real_matrix(inputs)
    both = eqx.tree_at(lambda own: (own.weight, own.bias), last, ((last.weight.T @ matrix).T, last.bias @ matrix))
    return eqx.tree_at(lambda own: own.layers[-1], encoder, both)


def _real_matrix(inputs: Pair) -> Float[Array, "embedding latent"]:
    """[[Rᵀ, Iᵀ], [−Iᵀ, Rᵀ]]."""
    real, imag = inputs
    return jnp.block([[real, -imag], [imag, real]]).T
