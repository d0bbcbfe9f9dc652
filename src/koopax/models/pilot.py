"""The pilot: a thin diagonal system that runs ahead of a Koopman core and tells its action encoder where it is.

    y_{t+1} = Λ̄ᵖ y_t + L̄ᵖ (a_{t−h+1}, …, a_t),      y_0 from the encoder

What an action does depends on the state. A network applied to the state of every step in turn would know it, and would
have to be applied in sequence. The pilot is linear in actions, so that all of its latents follow at once; the action
encoder sees y_t beside the actions, and the core's own modes remain a linear recurrence in what it says.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray
from koopax.models.members import dealt
from koopax.models.recurrence import Method, linear_recurrence, multiply
from koopax.models.spectrum import Spectrum, discretise, make_spectrum


class Pilot(eqx.Module):
    """y_{t+1} = Λ̄ᵖ y_t + L̄ᵖ a: real parts of y, then imaginary ones."""

    spectrum: Spectrum
    input_real: Float[Array, "modes seen"]
    input_imag: Float[Array, "modes seen"]

    def __init__(self, modes: int, seen: int, *, members: int = 1, key: PRNGKeyArray):
        """With so many modes, which members share, pushed by so many numbers at every step."""
        spectrum_key, real_key, imag_key = jax.random.split(key, 3)
        self.spectrum = dealt(make_spectrum("multiscale", modes, key=spectrum_key), modes, members)
        # Inputs of unit variance push each mode by as much; without actions nothing does.
        std = max(seen, 1) ** -0.5
        self.input_real = std * jax.random.normal(real_key, (modes, seen))
        self.input_imag = std * jax.random.normal(imag_key, (modes, seen))

    def rollout(
        self,
        start: Float[Array, " pilot"],
        actions: Float[Array, "time seen"],
        durations: Float[Array, " time"] | None = None,
        *,
        recurrence: Method = "auto",
    ) -> Float[Array, "time pilot"]:
        """y_1 … y_T, every step at once."""
        discrete = discretise(self.spectrum, durations)
        pushed = multiply(discrete.gain, (actions @ self.input_real.T, actions @ self.input_imag.T))
        real, imag = jnp.split(start, 2)
        if actions.shape[0] == 1:  # a step needs no loop, which a program in C could not have
            moved = multiply(discrete.transition, (real, imag))
            return jnp.concatenate([moved[0] + pushed[0], moved[1] + pushed[1]], axis=-1)
        rolled = linear_recurrence(discrete.transition, pushed, (real, imag), method=recurrence)
        return jnp.concatenate(rolled, axis=-1)
