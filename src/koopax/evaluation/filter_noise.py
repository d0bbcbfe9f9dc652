"""How noisy a filter takes steps and observations to be."""

import equinox as eqx
import jax.numpy as jnp

from koopax._errors import KoopaxError
from koopax._types import Array, Float
from koopax.models.dynamics import DynamicsModel
from koopax.models.koopman import KoopmanCore


class FilterNoise(eqx.Module):
    """Covariances of a filter: a variance for each mode, `[modes]`, or matrices over their real parts and then their
    imaginary ones, `[2 modes, 2 modes]`.

    A variance is that of a mode's real part and as well of its imaginary part.
    """

    process: Float[Array, "..."]
    """Q, of what a step adds to a latent that the core does not know of."""
    observation: Float[Array, "..."]
    """R, of what the encoder says of an observation."""


def trusting(model: DynamicsModel) -> FilterNoise:
    """The noise of sensors that have none: every whole observation replaces what was predicted."""
    modes = mode_width(model) // 2
    return FilterNoise(jnp.ones(modes), jnp.zeros(modes))


def check_noise(model: DynamicsModel, noise: FilterNoise) -> None:
    """Raise unless a model can be filtered with that noise."""
    if not isinstance(model.core, KoopmanCore):
        raise KoopaxError(f"a filter with noise needs a Koopman core, not {model.config.core!r}: leave the noise out.")
    if model.core.modulator is not None:
        raise KoopaxError("eigenvalues that depend on actions or context have no constant Λ̄: leave the noise out.")
    width = model.core.modes_size
    for name, values in (("process", noise.process), ("observation", noise.observation)):
        if values.shape not in ((width // 2,), (width, width)) or values.ndim != noise.process.ndim:
            raise KoopaxError(
                f"the {name} noise has shape {values.shape}: give both as {width // 2} variances or both as matrices "
                f"({width}, {width})."
            )


def mode_width(model: DynamicsModel) -> int:
    """Real numbers that the modes of a latent are."""
    assert isinstance(model.core, KoopmanCore)
    return model.core.modes_size
