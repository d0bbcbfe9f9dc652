"""The equations of a plant as planners see a model: what a learned one is compared with."""

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float
from koopax.envs.plants import PLANTS


class TrueModel(eqx.Module):
    """A plant of `koopax.envs.plants`, its latents being its states, without a reward."""

    plant: str = eqx.field(static=True)

    def encode(self, observation: Float[Array, " state"], *, horizon: int) -> Float[Array, " state"]:
        """The state itself."""
        del horizon
        return observation

    def rollout(
        self, start: Float[Array, " state"], actions: Float[Array, "time candidate action"]
    ) -> Float[Array, "time+1 candidate state"]:
        """s_0 … s_T, by the equations."""
        plant = PLANTS[self.plant]
        first = jnp.broadcast_to(start, (actions.shape[1], start.shape[0]))

        def step(state: Array, action: Array) -> tuple[Array, Array]:
            moved = plant.advance(state, action[:, 0], jnp)
            return moved, moved

        return jnp.concatenate([first[None], jax.lax.scan(step, first, actions)[1]])

    def reward(self, latents: Array, actions: Float[Array, "time candidate action"]) -> Float[Array, "time candidate"]:
        """Zero: a planner with a cost of its own has no need of it."""
        del latents
        return jnp.zeros(actions.shape[:2])

    def value(self, latents: Float[Array, "candidate state"]) -> Float[Array, " candidate"]:
        """Zero."""
        return jnp.zeros(latents.shape[0])
