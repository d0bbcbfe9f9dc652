"""The agent as planners see it: encode, rollout, reward, value, and its policy's proposals."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray
from koopax.agents.tdmpc.networks import Network, WorldModel, act, evaluate_critics
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import begin, latent_of
from koopax.models.recurrence import linear_recurrence, multiply, powers
from koopax.models.spectrum import discretise
from koopax.planning.protocol import follow_policy


class AgentModel(eqx.Module):
    """Implements `koopax.planning.protocol.ProposingModel`.

    The latents of a diagonal Koopman core are a sum of what the start alone does, λᵏ x_0, which all candidates of all
    iterations share, and of what the actions add to it: the former is computed once per plan.
    """

    model: WorldModel
    policy: Network
    policy_std: float = eqx.field(static=True)

    def encode(self, observation: Float[Array, " state"], *, horizon: int) -> Float[Array, "steps latent"]:
        """λᵏ x_0 for k = 0 … H with a Koopman core, and x_0 alone with others; x_0 is the first row of either."""
        latent = self.model.encoder(observation)
        core = self.model.core
        if not isinstance(core, KoopmanCore):
            return latent[None]
        real, imag = multiply(
            powers(discretise(core.spectrum).transition, horizon), jnp.split(latent[None], 2, axis=-1)
        )
        return jnp.concatenate([latent[None], jnp.concatenate([real, imag], axis=-1)])

    def rollout(
        self, start: Float[Array, "steps latent"], actions: Float[Array, "time candidate action"]
    ) -> Float[Array, "time+1 candidate latent"]:
        """x_0 … x_T of every candidate."""
        core = self.model.core
        if isinstance(core, KoopmanCore):
            added = _driven(core, actions)
            return start[: len(actions) + 1, None] + jnp.concatenate([jnp.zeros_like(added[:1]), added])
        return self.model.unroll(jnp.broadcast_to(start[0], (actions.shape[1], start.shape[1])), actions)

    def reward(
        self, latents: Float[Array, "time+1 candidate latent"], actions: Float[Array, "time candidate action"]
    ) -> Float[Array, "time candidate"]:
        """R(x_t, a_t) of all steps of all candidates at once."""
        return self.model.reward(latents[:-1], actions)[..., 0]

    def value(self, latents: Float[Array, "candidate latent"]) -> Float[Array, " candidate"]:
        """minᵢ Qᵢ(x, tanh π(x))."""
        return jnp.min(evaluate_critics(self.model.critics, latents, jnp.tanh(self.policy(latents))), axis=0)

    def propose(
        self, start: Float[Array, "steps latent"], *, horizon: int, count: int, key: PRNGKeyArray
    ) -> Float[Array, "time candidate action"]:
        """Actions of the noisy policy along its own rollouts."""
        core = self.model.core
        first = jnp.broadcast_to(start[0], (count, start.shape[1]))

        def policy(now: Any, step_key: PRNGKeyArray) -> Array:
            return act(self.policy, jax.vmap(latent_of)(now), self.policy_std, key=step_key)

        begun = jax.vmap(lambda latent: begin(core, latent))(first)
        return follow_policy(policy, jax.vmap(core.step), begun, horizon=horizon, key=key)


def _driven(core: KoopmanCore, actions: Float[Array, "time candidate action"]) -> Float[Array, "time candidate latent"]:
    """What the actions add to x_1 … x_T: the rollout from zero."""
    discrete = discretise(core.spectrum)
    inputs = jax.vmap(lambda one: core.inputs(one, discrete), in_axes=1, out_axes=1)(actions)
    zero = jnp.zeros_like(inputs[0][0, 0])
    unroll = jax.vmap(
        lambda one: linear_recurrence(discrete.transition, one, (zero, zero), method=core.recurrence),
        in_axes=1,
        out_axes=1,
    )
    return jnp.concatenate(unroll(inputs), axis=-1)
