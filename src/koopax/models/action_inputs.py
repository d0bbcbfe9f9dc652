"""How a core without a continuous time of its own sees a step: its action, and its duration as one more feature."""

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray
from koopax.models.networks import Linear


def timed_actions(
    actions: Float[Array, "time action"], durations: Float[Array, " time"] | None = None
) -> Float[Array, "time action+1"]:
    """[a_t, d_t − 1]: a step of nominal duration has a last feature of zero, exactly as without durations.

    What a duration does is learned, not built in: a core trained on equal durations knows nothing of others.
    """
    excess = jnp.zeros_like(actions, shape=actions.shape[:1]) if durations is None else durations - 1
    excess = excess.astype(actions.dtype)
    return jnp.concatenate([actions, excess[:, None]], axis=-1)


class ActionInput(eqx.Module):
    """The part W f(a_t) + b of a layer that sees actions, for every step at once; f embeds them, or is the identity."""

    embedding: Linear | None
    projection: Linear

    def __init__(self, action_size: int, embedding_size: int | None, output_size: int, *, key: PRNGKeyArray):
        """`embedding_size` is the width of f, a linear layer and a ReLU; None feeds the actions themselves."""
        embedding_key, projection_key = jax.random.split(key)
        features = action_size + 1
        self.embedding = None if embedding_size is None else Linear(features, embedding_size, key=embedding_key)
        self.projection = Linear(embedding_size or features, output_size, key=projection_key)

    def __call__(
        self, actions: Float[Array, "time action"], durations: Float[Array, " time"] | None = None
    ) -> Float[Array, "time output"]:
        """What the actions, and the durations as a feature, add to the layer at each step."""
        features = timed_actions(actions, durations)
        if self.embedding is not None:
            features = jax.nn.relu(jax.vmap(self.embedding)(features))
        return jax.vmap(self.projection)(features)
