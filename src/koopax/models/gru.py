"""The GRU core: a gated recurrent unit whose hidden state is the latent.

    r_t = σ(W_r f(a_t) + U_r x_t + b_r)                        reset gate
    z_t = σ(W_z f(a_t) + U_z x_t + b_z)                        how much is kept
    n_t = tanh(W_n f(a_t) + b_n + r_t ∘ (U_n x_t + c_n))
    x_{t+1} = (1 − z_t) ∘ n_t + z_t ∘ x_t

W is applied to every action at once before the scan (the reason for not using `equinox.nn.GRUCell`, which applies it
inside), so a step costs the one product U x_t.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray
from koopax.models.action_inputs import ActionInput
from koopax.models.latent import LatentDynamics


class GRUCore(LatentDynamics):
    """x_{t+1} = (1 − z_t) ∘ n_t + z_t ∘ x_t; gates are stacked as r, z, n; a duration is one more action feature."""

    action_input: ActionInput
    recurrent: Float[Array, "3*latent latent"]
    candidate_bias: Float[Array, " latent"]
    latent_size: int = eqx.field(static=True)
    action_size: int = eqx.field(static=True)

    def __init__(self, latent_size: int, action_size: int, *, action_embedding: int | None = None, key: PRNGKeyArray):
        """Build the core.

        Args:
            latent_size: width of the latent, which is the hidden state.
            action_size: components of an action.
            action_embedding: width of an embedding of the actions, f; None feeds the actions themselves.
            key: for the initial parameters.
        """
        action_key, recurrent_key = jax.random.split(key)
        self.action_input = ActionInput(action_size, action_embedding, 3 * latent_size, key=action_key)
        orthogonal = jax.nn.initializers.orthogonal()
        blocks = [orthogonal(gate_key, (latent_size, latent_size)) for gate_key in jax.random.split(recurrent_key, 3)]
        self.recurrent = jnp.concatenate(blocks)
        self.candidate_bias = jnp.zeros(latent_size)
        self.latent_size = latent_size
        self.action_size = action_size

    def rollout(
        self,
        latent: Float[Array, " latent"],
        actions: Float[Array, "time action"],
        durations: Float[Array, " time"] | None = None,
    ) -> Float[Array, "time latent"]:
        """x_1 … x_T, in sequence."""

        def step(now: Array, inputs: Array) -> tuple[Array, Array]:
            moved = self._move(now, inputs)
            return moved, moved

        return jax.lax.scan(step, latent, self.action_input(actions, durations))[1]

    def step(
        self,
        latent: Float[Array, " latent"],
        action: Float[Array, " action"],
        duration: Float[Array, ""] | None = None,
    ) -> Float[Array, " latent"]:
        """x_1 of x_0."""
        inputs = self.action_input(action[None], None if duration is None else duration[None])
        return self._move(latent, inputs[0])

    def _move(self, latent: Float[Array, " latent"], inputs: Float[Array, " 3*latent"]) -> Float[Array, " latent"]:
        input_reset, input_keep, input_candidate = jnp.split(inputs, 3)
        reset, keep, candidate = jnp.split(latent @ self.recurrent.T, 3)
        reset = jax.nn.sigmoid(input_reset + reset)
        keep = jax.nn.sigmoid(input_keep + keep)
        candidate = jnp.tanh(input_candidate + reset * (candidate + self.candidate_bias))
        return (1 - keep) * candidate + keep * latent
