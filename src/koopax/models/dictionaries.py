"""Fixed functions of the state that a regression is linear in: polynomials, and random Fourier features.

All see the normalised state, and begin with the constant 1 and the state itself, so that the state can be read off.
Outside the range of the data the further functions are not to be trusted: a polynomial explodes there. So they see the
state brought back into that range, widened by half its width on either side.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError, unknown_name
from koopax._types import Array, Float, PRNGKeyArray

# How far beyond the data, in widths of its range, the further functions take a state as it is.
MARGIN = 0.5
# A dictionary is squared in a regression, and multiplied by the actions.
MOST_FUNCTIONS = 2_000


class Dictionary(eqx.Module):
    """(1, s, further functions of s), for one normalised state."""

    low: Float[Array, " state"]
    high: Float[Array, " state"]

    def __check_init__(self) -> None:
        if self.size > MOST_FUNCTIONS:
            raise KoopaxError(
                f"the dictionary has {self.size} functions, more than {MOST_FUNCTIONS}: lower its degree or count."
            )

    @property
    def size(self) -> int:
        """How many functions there are, 1 and the state among them."""
        raise NotImplementedError

    def further(self, state: Float[Array, " state"]) -> Float[Array, " further"]:
        """The functions besides 1 and s, of a state within bounds."""
        raise NotImplementedError

    def __call__(self, state: Float[Array, " state"]) -> Float[Array, " functions"]:
        """All functions of a state."""
        margin = MARGIN * (self.high - self.low)
        within = jnp.clip(state, self.low - margin, self.high + margin)
        return jnp.concatenate([jnp.ones_like(state[:1]), state, self.further(within)])

    def within(self, low: Float[Array, " state"], high: Float[Array, " state"]) -> "Dictionary":
        """The dictionary for data of that range."""
        return eqx.tree_at(lambda own: (own.low, own.high), self, (low, high))


class Polynomials(Dictionary):
    """All monomials of the state's components up to a degree; degree 1 is the dictionary of DMDc."""

    degree: int = eqx.field(static=True)

    def __init__(self, state_size: int, *, degree: int = 3, key: PRNGKeyArray):
        """Of unbounded range until it is told the data's."""
        del key
        if degree < 1:
            raise KoopaxError(f"degree is {degree}: use 1 for a linear model, or more.")
        self.low, self.high = jnp.full(state_size, -1e6), jnp.full(state_size, 1e6)
        self.degree = degree

    @property
    def size(self) -> int:
        """The monomials of degree 0 to d in S components: (S + d choose d)."""
        return math.comb(self.low.shape[0] + self.degree, self.degree)

    def further(self, state: Float[Array, " state"]) -> Float[Array, " further"]:
        """Each monomial is one of a degree less times a component that does not come before its last one."""
        found, last = [state], np.arange(state.shape[0])
        for _ in range(self.degree - 1):
            pairs = [(parent, factor) for parent, own in enumerate(last) for factor in range(own, state.shape[0])]
            parents, factors = (np.array(column, int) for column in zip(*pairs, strict=True))
            found.append(found[-1][parents] * state[factors])
            last = factors
        return jnp.concatenate(found[1:]) if len(found) > 1 else state[:0]


class FourierFeatures(Dictionary):
    """√(2/n) cos(w_iᵀ s + b_i) with w ~ N(0, 1/ℓ²): a Gaussian kernel of length ℓ in n random features."""

    frequencies: Float[Array, "count state"]
    phases: Float[Array, " count"]

    def __init__(self, state_size: int, *, count: int = 200, length: float = 2.0, key: PRNGKeyArray):
        """`length` is in standard deviations of the states."""
        if count < 1 or not length > 0:
            raise KoopaxError(f"{count} features of length {length}: use 1 or more, and a positive length.")
        frequency_key, phase_key = jax.random.split(key)
        self.low, self.high = jnp.full(state_size, -1e6), jnp.full(state_size, 1e6)
        self.frequencies = jax.random.normal(frequency_key, (count, state_size)) / length
        self.phases = jax.random.uniform(phase_key, (count,), maxval=2 * math.pi)

    @property
    def size(self) -> int:
        """The constant, the state and the features."""
        return 1 + self.low.shape[0] + self.phases.shape[0]

    def further(self, state: Float[Array, " state"]) -> Float[Array, " further"]:
        """The random features."""
        return math.sqrt(2 / self.phases.shape[0]) * jnp.cos(state @ self.frequencies.T + self.phases)


DICTIONARIES: dict[str, Callable[..., Dictionary]] = {"polynomials": Polynomials, "fourier": FourierFeatures}


def make_dictionary(name: str, state_size: int, *, key: PRNGKeyArray, **options) -> Dictionary:
    """The dictionary of that name for states of that size."""
    if name not in DICTIONARIES:
        raise unknown_name("dictionary", name, list(DICTIONARIES))
    return DICTIONARIES[name](state_size, key=key, **options)
