"""Members: several small models side by side in one, each with modes and networks of its own.

    x_t = (x_t¹, …, x_tᴹ),    u_tᵐ = f_φᵐ(a_t, y_tᵐ),    ŝ_t = (d_ξ¹(x_t¹) + … + d_ξᴹ(x_tᴹ)) / M

No member sees another's modes, pilot or embedded actions, and each is trained to predict by itself as well as together
with the others (`joint_share`): what they miss by chance is not the same, and partly cancels in the mean. Together they
are one diagonal system, unrolled like any other.

Modes and pilots stand in a latent as real parts, then imaginary ones, in both of them member after member.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray
from koopax.models.networks import MLP, LinearPath
from koopax.models.spectrum import Spectrum


def share_of(pairs: Float[Array, "*batch width"], member: int, count: int) -> Float[Array, "*batch share"]:
    """Of real parts and then imaginary ones, those of a member."""
    size = pairs.shape[-1] // (2 * count)
    real, imag = jnp.split(pairs, 2, axis=-1)
    own = slice(member * size, (member + 1) * size)
    return jnp.concatenate([real[..., own], imag[..., own]], axis=-1)


def joined(shares: Sequence[Float[Array, "*batch share"]]) -> Float[Array, "*batch width"]:
    """The members' real parts, then their imaginary ones: what `share_of` divides."""
    if len(shares) == 1:
        return shares[0]
    halves = [jnp.split(share, 2, axis=-1) for share in shares]
    return jnp.concatenate([half[part] for part in (0, 1) for half in halves], axis=-1)


def dealt(spectrum: Spectrum, modes: int, count: int) -> Spectrum:
    """The spectrum with its modes dealt in turn, so that every member has fast and slow ones."""
    order = jnp.concatenate([jnp.arange(member, modes, count) for member in range(count)])
    return jax.tree.map(lambda leaf: leaf[order] if leaf.shape[:1] == (modes,) else leaf, spectrum)


class MemberActionEncoders(eqx.Module):
    """An action encoder for each member, which sees all actions and its own pilot; their outputs, one after another."""

    networks: tuple[MLP | LinearPath, ...]
    actions_seen: int = eqx.field(static=True)
    pilot_size: int = eqx.field(static=True)

    def __init__(
        self,
        make: Callable[..., MLP | LinearPath],
        count: int,
        sizes: Sequence[int],
        *,
        actions_seen: int,
        pilot_size: int,
        key: PRNGKeyArray,
    ):
        """`sizes` from what is seen in all, whose last part is a context that all members see, to a member's output."""
        seen, *others = sizes
        own = (seen - pilot_size + pilot_size // count, *others)
        self.networks = tuple(make(own, key=each) for each in jax.random.split(key, count))
        self.actions_seen, self.pilot_size = actions_seen, pilot_size

    def given(self, last: Float[Array, " known"]) -> "MemberActionEncoders":
        """As `MLP.given`."""
        return eqx.tree_at(lambda own: own.networks, self, tuple(network.given(last) for network in self.networks))

    def __call__(self, seen: Float[Array, " seen"]) -> Float[Array, " embedding"]:
        """What all members make of the actions, with the pilots behind them and the context behind those."""
        actions, pilots, context = jnp.split(seen, [self.actions_seen, self.actions_seen + self.pilot_size])
        count = len(self.networks)
        return jnp.concatenate(
            [
                network(jnp.concatenate([actions, share_of(pilots, member, count), context]))
                for member, network in enumerate(self.networks)
            ]
        )


class MemberDecoders(eqx.Module):
    """A decoder for each member, which sees its own modes and pilot, and whatever else a latent holds."""

    networks: tuple[MLP | LinearPath, ...]
    modes_size: int = eqx.field(static=True)
    pilot: tuple[int, int] = eqx.field(static=True)
    """Where the pilots begin and end in a latent."""

    def __init__(
        self,
        make: Callable[..., MLP | LinearPath],
        count: int,
        sizes: Sequence[int],
        *,
        modes_size: int,
        pilot: tuple[int, int],
        key: PRNGKeyArray,
    ):
        """`sizes` from the width of a latent to that of what is decoded."""
        latent, *others = sizes
        shared = latent - modes_size - (pilot[1] - pilot[0])
        own = ((latent - shared) // count + shared, *others)
        self.networks = tuple(make(own, key=each) for each in jax.random.split(key, count))
        self.modes_size, self.pilot = modes_size, pilot

    def each(self, latent: Float[Array, " latent"]) -> Float[Array, "member output"]:
        """What every member reads off a latent."""
        cuts = [self.modes_size, *self.pilot]
        modes, actions, pilots, context = jnp.split(latent, cuts)
        count = len(self.networks)
        return jnp.stack(
            [
                network(
                    jnp.concatenate([share_of(modes, member, count), actions, share_of(pilots, member, count), context])
                )
                for member, network in enumerate(self.networks)
            ]
        )

    def __call__(self, latent: Float[Array, " latent"]) -> Float[Array, " output"]:
        """Their mean."""
        return jnp.mean(self.each(latent), axis=0)


def is_affine(part: object) -> bool:
    """Whether it is a network of a single layer, which has no activation, or such a one for each member."""
    if isinstance(part, MemberActionEncoders | MemberDecoders):
        return all(is_affine(network) for network in part.networks)
    network = part.network if isinstance(part, LinearPath) else part
    return isinstance(network, MLP) and len(network.layers) == 1
