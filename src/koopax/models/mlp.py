"""The MLP core: two linear layers with a ReLU between them, applied step after step.

    x_{t+1} = W₂ ReLU(W₁ [x_t, f(a_t)] + b₁) + b₂

The most common latent dynamics in model-based reinforcement learning. Nothing bounds its Jacobian, so errors and
gradients grow or vanish over long horizons. With two hidden layers and ELU it is TOLD's, the latent dynamics of TD-MPC.
"""

import equinox as eqx
import jax

from koopax._errors import KoopaxError, unknown_name
from koopax._types import Array, Float, PRNGKeyArray
from koopax.models.action_inputs import ActionInput
from koopax.models.latent import LatentDynamics
from koopax.models.networks import ACTIVATIONS, Linear


class MLPCore(LatentDynamics):
    """x_{t+1} = W₂ σ(W₁ [x_t, f(a_t)] + b₁) + b₂; a duration is one more feature of the action."""

    action_input: ActionInput
    latent_input: Linear
    between: tuple[Linear, ...]
    output: Linear
    activation: str = eqx.field(static=True)
    latent_size: int = eqx.field(static=True)
    action_size: int = eqx.field(static=True)

    def __init__(
        self,
        latent_size: int,
        action_size: int,
        *,
        hidden: int = 512,
        hidden_layers: int = 1,
        activation: str = "relu",
        action_embedding: int | None = None,
        key: PRNGKeyArray,
    ):
        """Build the core.

        Args:
            latent_size: width of the latent.
            action_size: components of an action.
            hidden: width of the hidden layers.
            hidden_layers: how many hidden layers there are.
            activation: σ, after each of them, by name: relu, elu, silu, gelu or tanh.
            action_embedding: width of an embedding of the actions, f; None feeds the actions themselves.
            key: for the initial parameters.
        """
        if hidden_layers < 1:
            raise KoopaxError(f"hidden_layers is {hidden_layers}: use 1 or more.")
        if activation not in ACTIVATIONS:
            raise unknown_name("activation", activation, list(ACTIVATIONS))
        action_key, latent_key, output_key = jax.random.split(key, 3)
        between_keys = jax.random.split(jax.random.fold_in(key, 1), hidden_layers)[1:]
        # W₁ in two parts: that of the actions is applied to all steps at once, before the scan.
        self.action_input = ActionInput(action_size, action_embedding, hidden, key=action_key)
        self.latent_input = Linear(latent_size, hidden, use_bias=False, key=latent_key)
        self.between = tuple(Linear(hidden, hidden, key=layer_key) for layer_key in between_keys)
        self.output = Linear(hidden, latent_size, key=output_key)
        self.activation = activation
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

    def _move(self, latent: Float[Array, " latent"], inputs: Float[Array, " hidden"]) -> Float[Array, " latent"]:
        activation = ACTIVATIONS[self.activation]
        x = activation(self.latent_input(latent) + inputs)
        for layer in self.between:
            x = activation(layer(x))
        return self.output(x)
