"""What a user sees of a planner: a decision for an observation, by a search through a model."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray
from koopax.models.dynamics import DynamicsModel, Numbers
from koopax.planning.learned import LearnedModel
from koopax.planning.protocol import Box, PlanningModel, PlanStart, PlanState, RememberingModel


class Diagnostics(NamedTuple):
    """How a search went."""

    value: Float[Array, ""]
    """G of the best candidate."""
    std: Float[Array, ""]
    """Mean standard deviation of the first action at the end of the search, in units of the cube; 0 without one."""
    nonfinite: Float[Array, ""]
    """Share of the last candidates whose G was not finite."""


class Decision(NamedTuple):
    """What a planner decided."""

    action: Float[Array, " action"]
    """The action to take now, within the bounds."""
    state: PlanState
    """Warm start of the next decision."""
    diagnostics: Diagnostics
    """How the search went."""


class Planner(eqx.Module):
    """Chooses actions by searching through a model. The search's state is separate: it can be scanned and saved."""

    box: eqx.AbstractVar[Box]

    @property
    @abc.abstractmethod
    def longest(self) -> int:
        """H: steps of a plan."""

    def seen(self, model: DynamicsModel) -> PlanningModel:
        """A trained model as this planner sees it."""
        return LearnedModel(model)

    @abc.abstractmethod
    def init(self, action_size: int) -> PlanState:
        """The state at an episode's start."""

    @abc.abstractmethod
    def search(
        self,
        model: PlanningModel,
        start: PlanStart,
        state: PlanState,
        *,
        key: PRNGKeyArray,
        explore: bool | Array = False,
        horizon: int | Array | None = None,
    ) -> Decision:
        """`plan`, once the observation is encoded: what a planner has of its own."""

    def plan(
        self,
        model: PlanningModel | DynamicsModel,
        observation: Numbers,
        state: PlanState,
        *,
        key: PRNGKeyArray,
        explore: bool | Array = False,
        horizon: int | Array | None = None,
        past_actions: Numbers | None = None,
        **options: Any,
    ) -> Decision:
        """The action for one observation.

        Args:
            model: what to search through: a trained model, for its learned reward, or any `PlanningModel`.
            observation: of one environment, `[state]`; for a model with a history of n also the latest ones of the
                episode, `[n, state]`, oldest first and NaN where there was none yet.
            state: what the last decision of this episode returned, or `init`.
            key: for candidates and exploration.
            explore: add the planner's exploration noise; may be traced.
            horizon: h in G, from 1 to the planner's own H, which it is by default; may be traced.
            past_actions: the actions before this one in this episode, `[past, action]`, oldest first and NaN where
                there was none yet: a `RememberingModel` makes use of them, any other has no need of them.
            **options: of the planner's own `search`.
        """
        seen = self.seen(model) if isinstance(model, DynamicsModel) else model
        start = self.start(seen, observation, past_actions)
        return self.search(seen, start, state, key=key, explore=explore, horizon=horizon, **options)

    def start(self, seen: PlanningModel, observation: Numbers, past_actions: Numbers | None = None) -> PlanStart:
        """Where all candidates start: the observation, encoded; `past_actions` only of a model that remembers some."""
        observed = jnp.asarray(observation)
        if past_actions is not None and isinstance(seen, RememberingModel):
            return seen.encode(observed, horizon=self.longest, past_actions=jnp.asarray(past_actions))
        return seen.encode(observed, horizon=self.longest)
