"""The agent as planners see it: encode, rollout, reward, value, and its policy's proposals."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray
from koopax.agents.networks import Ensemble
from koopax.agents.tdmpc.networks import Network, WorldModel, act, evaluate_critics, predict_reward
from koopax.models.latent import CandidateStart, begin, latent_of
from koopax.planning.protocol import follow_policy


class AgentModel(eqx.Module):
    """Implements `koopax.planning.protocol.ProposingModel`; with a Koopman core, λᵏ x_0 is computed once per plan."""

    model: WorldModel
    policy: Network
    policy_std: float = eqx.field(static=True)

    def encode(self, observation: Float[Array, " state"], *, horizon: int) -> CandidateStart:
        """What all candidates share."""
        return self.model.core.start_candidates(self.model.encoder(observation), horizon)

    def rollout(
        self, start: CandidateStart, actions: Float[Array, "time candidate action"]
    ) -> Float[Array, "points candidate latent"]:
        """x_0 … x_T of every candidate; from the first refreshment on, each goes on from a latent of its own."""
        every = self.model.refresh_every
        if every is None or every > actions.shape[0]:
            return self.model.core.rollout_candidates(start, actions)
        first = self.model.core.rollout_candidates(start, actions[:every])
        moved = self.model.refreshed_end(first[1:])
        begun = jnp.concatenate([first[:1], moved])
        if every == actions.shape[0]:
            return begun
        return jnp.concatenate([begun, self.model.unroll(moved[-1], actions[every:])[1:]])

    def reward(
        self, latents: Float[Array, "points candidate latent"], actions: Float[Array, "time candidate action"]
    ) -> Float[Array, "time candidate"]:
        """R(x_t, a_t) of all steps of all candidates at once."""
        return predict_reward(self.model, latents[:-1], actions)

    def value(self, latents: Float[Array, "candidate latent"]) -> Float[Array, " candidate"]:
        """V(x), or min(Q₁, Q₂)(x, tanh π(x)) where there is none."""
        features = self.model.features(latents)
        if self.model.value is not None:
            return self.model.value(features)[..., 0]
        pair = Ensemble(self.model.critics.members[:2])
        return jnp.min(evaluate_critics(pair, features, jnp.tanh(self.policy(features))), axis=0)

    def propose(
        self, start: CandidateStart, *, horizon: int, count: int, key: PRNGKeyArray
    ) -> Float[Array, "time candidate action"]:
        """Actions of the noisy policy along its own rollouts."""
        core, every = self.model.core, self.model.refresh_every
        first = begin(core, start.latent)
        latents = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), first)

        def policy(now: tuple[Any, Array], step_key: PRNGKeyArray) -> Array:
            return act(self.policy, self.model.features(jax.vmap(latent_of)(now[0])), self.policy_std, key=step_key)

        def step(now: tuple[Any, Array], actions: Array) -> tuple[Any, Array]:
            moved: Any = jax.vmap(core.step)(now[0], actions)
            taken = now[1] + 1
            if every is not None:
                moved = jnp.where(taken % every == 0, self.model.refreshed(moved), moved)
            return moved, taken

        return follow_policy(policy, step, (latents, jnp.zeros((), jnp.int32)), horizon=horizon, key=key)
