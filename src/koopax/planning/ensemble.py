"""An ensemble as planners see it: the mean reward of its members, less a weight on how far they disagree.

    r̄(x_t, a_t) − risk · unit · d_t,     d_t = √(mean over columns c of Var_m(ŝ_{t+1,c}^{(m)} / std_c))

d is in standard deviations of the training data. The unit is the standard deviation of its rewards, so that a risk of 1
gives up one of them for one of disagreement; under a user's own reward, of whose size nothing is known, it is 1.
"""

import equinox as eqx
import jax.numpy as jnp

from koopax._types import Array, Float
from koopax.models.ensemble import Ensemble
from koopax.models.networks import over_rows
from koopax.planning.learned import LearnedModel, Reencoding, ReturnedLatents, RewardedModel, RewardFunction


class EnsembleModel(eqx.Module):
    """Members that are rolled out side by side; latents are a tuple, one for each."""

    members: tuple[LearnedModel, ...] | tuple[RewardedModel, ...]
    risk: float = eqx.field(static=True)

    def __init__(
        self,
        ensemble: Ensemble,
        *,
        risk: float = 0.0,
        function: RewardFunction | None = None,
        reencode_every: Reencoding = None,
    ):
        """With the learned rewards, or with a user's."""
        if function is None:
            self.members = tuple(LearnedModel(member, reencode_every) for member in ensemble.members)
        else:
            self.members = tuple(RewardedModel(member, function, reencode_every) for member in ensemble.members)
        self.risk = risk

    @property
    def remembered_actions(self) -> int:
        """How many past actions a member makes use of, at most."""
        return max(member.remembered_actions for member in self.members)

    @property
    def remembered_observations(self) -> int:
        """How many observations before the newest a member makes use of, at most."""
        return max(member.remembered_observations for member in self.members)

    def encode(self, observation: Float[Array, "..."], *, horizon: int, past_actions: Array | None = None) -> tuple:
        """The start of every member."""
        return tuple(m.encode(observation, horizon=horizon, past_actions=past_actions) for m in self.members)

    def rollout(self, start: tuple, actions: Float[Array, "time candidate action"]) -> tuple:
        """The latents, or states, of every member."""
        return tuple(m.rollout(own, actions) for m, own in zip(self.members, start, strict=True))

    def reward(self, latents: tuple, actions: Float[Array, "time candidate action"]) -> Float[Array, "time candidate"]:
        """The mean reward, less what the disagreement weighs."""
        each = [m.reward(own, actions) for m, own in zip(self.members, latents, strict=True)]
        mean = jnp.mean(jnp.stack(each), axis=0)
        if self.risk == 0:
            return mean
        learned = isinstance(self.members[0], LearnedModel)
        unit = self.members[0].model.normaliser.reward_std if learned else 1.0
        return mean - self.risk * unit * self.disagreement(latents)

    def disagreement(self, latents: tuple) -> Float[Array, "time candidate"]:
        """d_t for t = 0 … T−1, of latents x_0 … x_T."""
        states = jnp.stack([_states(m, own)[1:] for m, own in zip(self.members, latents, strict=True)])
        return jnp.sqrt(jnp.mean(jnp.var(states, axis=0, ddof=1), axis=-1))

    def value(self, latents: tuple) -> Float[Array, " candidate"]:
        """Zero."""
        return self.members[0].value(latents[0])


def _states(member: LearnedModel | RewardedModel, latents: Array | ReturnedLatents) -> Array:
    """Normalised states of what a member's rollout gives."""
    latents = latents.reached if isinstance(latents, ReturnedLatents) else latents
    if isinstance(member, RewardedModel):
        return member.model.normaliser.normalise_state(latents)
    return over_rows(member.model.decoder, latents)[..., : member.model.config.state_size]
