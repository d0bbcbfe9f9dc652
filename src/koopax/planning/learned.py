"""A trained DynamicsModel as planners see it: with the reward it has learned, or with a user's.

A user's reward is a JAX function `reward(states, actions, next_states)` in raw units. It is called once for all steps
of all candidates, with arrays `[time, candidate, …]`, and returns `[time, candidate]`.
"""

from collections.abc import Callable
from typing import TypeAlias, cast

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import KoopaxError
from koopax._imports import import_here
from koopax._types import Array, Float
from koopax.models.dynamics import DynamicsModel, Reencoding
from koopax.models.history import Past
from koopax.models.latent import CandidateStart
from koopax.models.networks import over_rows

RewardFunction: TypeAlias = Callable[[Array, Array, Array], Array]


class RememberedStart(eqx.Module):
    """Where all candidates of a model with a history start: its past tells what a return to the encoder sees."""

    start: CandidateStart
    past: Past


class ReturnedLatents(eqx.Module):
    """Latents of candidates of a model with a history, as they are reached and as the next step starts from them."""

    reached: Float[Array, "*points candidate latent"]
    begun: Float[Array, "*points candidate latent"]


class LearnedModel(eqx.Module):
    """Encoder, core and learned reward of a DynamicsModel; it knows no value beyond the horizon."""

    model: DynamicsModel
    reencode_every: Reencoding = eqx.field(static=True, default=None)

    @property
    def remembered_actions(self) -> int:
        """How many past actions the model makes use of."""
        return self.model.past_steps

    @property
    def remembered_observations(self) -> int:
        """How many observations before the newest the model makes use of."""
        return self.model.config.history - 1

    def encode(
        self, observation: Float[Array, "..."], *, horizon: int, past_actions: Array | None = None
    ) -> CandidateStart | RememberedStart:
        """The latent, with the actions just taken where they are known, and what the core computes of it once."""
        past = self.model.past_of(observation, past_actions)
        start = self.model.core.start_candidates(self.model.encode_past(past), horizon)
        return start if self.model.config.history == 1 else RememberedStart(start, past)

    def rollout(
        self, start: CandidateStart | RememberedStart, actions: Float[Array, "time candidate action"]
    ) -> Float[Array, "time+1 candidate latent"] | ReturnedLatents:
        """x_0 … x_T of every candidate."""
        if isinstance(start, CandidateStart):
            return _latents(self.model, start, actions, self.reencode_every)
        return _remembering(self.model, start, actions, self.reencode_every)

    def reward(
        self,
        latents: Float[Array, "points candidate latent"] | ReturnedLatents,
        actions: Float[Array, "time candidate action"],
    ) -> Float[Array, "time candidate"]:
        """The learned reward, in raw units."""
        normaliser, head = self.model.normaliser, self.model.reward_head
        reached = latents.reached if isinstance(latents, ReturnedLatents) else latents
        if head is None:
            normalised = over_rows(self.model.decoder, reached[1:])[..., -1]
        else:
            begun = latents.begun[:-1] if isinstance(latents, ReturnedLatents) else self._starts(latents[:-1])
            seen = jnp.concatenate([begun, normaliser.normalise_action(actions)], axis=-1)
            normalised = over_rows(head, seen)[..., 0]
        return normaliser.denormalise_reward(normalised)

    def _starts(self, latents: Array) -> Array:
        """x_0 … x_{T−1} as the next step starts from them: some are encoded again."""
        every = self.model.steps_between_returns(self.reencode_every)
        if every is None or every >= len(latents):
            return latents
        return latents.at[every::every].set(over_rows(self.model.reencode, latents[every::every]))

    def value(self, latents: Float[Array, "candidate latent"] | ReturnedLatents) -> Float[Array, " candidate"]:
        """Zero: nothing is known of what comes after a plan."""
        last = latents.reached if isinstance(latents, ReturnedLatents) else latents
        return jnp.zeros(last.shape[0], last.dtype)


class StartInStates(eqx.Module):
    """What candidates share where states are wanted: the observed state, which need not be decoded, and the latent."""

    observation: Float[Array, " state"]
    start: CandidateStart | RememberedStart


def no_reward(states: Array, actions: Array, next_states: Array) -> Array:
    """Zero, for planners that know what they want of the states themselves."""
    del actions, next_states
    return jnp.zeros_like(states[..., 0])


class RewardedModel(eqx.Module):
    """A DynamicsModel under a user's reward: planners see decoded states in the place of latents."""

    model: DynamicsModel
    function: RewardFunction = eqx.field(static=True)
    reencode_every: Reencoding = eqx.field(static=True, default=None)

    @property
    def remembered_actions(self) -> int:
        """How many past actions the model makes use of."""
        return LearnedModel(self.model).remembered_actions

    @property
    def remembered_observations(self) -> int:
        """How many observations before the newest the model makes use of."""
        return self.model.config.history - 1

    def encode(
        self, observation: Float[Array, "..."], *, horizon: int, past_actions: Array | None = None
    ) -> StartInStates:
        """As `LearnedModel.encode`, and the newest observed state."""
        start = LearnedModel(self.model).encode(observation, horizon=horizon, past_actions=past_actions)
        return StartInStates(observation if observation.ndim == 1 else observation[-1], start)

    def rollout(
        self, start: StartInStates, actions: Float[Array, "time candidate action"]
    ) -> Float[Array, "time+1 candidate state"]:
        """s_0 … s_T of every candidate, in raw units."""
        latents = LearnedModel(self.model, self.reencode_every).rollout(start.start, actions)
        latents = latents.reached if isinstance(latents, ReturnedLatents) else latents
        decoded = over_rows(self.model.decoder, latents[1:])[..., : self.model.config.state_size]
        states = self.model.normaliser.denormalise_state(decoded)
        first = jnp.broadcast_to(start.observation.astype(states.dtype), (1, *states.shape[1:]))
        return jnp.concatenate([first, states])

    def reward(
        self, latents: Float[Array, "points candidate state"], actions: Float[Array, "time candidate action"]
    ) -> Float[Array, "time candidate"]:
        """What the user's function says."""
        return self.function(latents[:-1], actions, latents[1:])

    def value(self, latents: Float[Array, "candidate state"]) -> Float[Array, " candidate"]:
        """Zero: nothing is known of what comes after a plan."""
        return jnp.zeros(latents.shape[0], latents.dtype)


def in_states(model: DynamicsModel, reencode_every: Reencoding = None) -> RewardedModel:
    """The model without a reward, for planners with a cost of their own."""
    return RewardedModel(model, no_reward, reencode_every)


def _latents(model: DynamicsModel, start: CandidateStart, actions: Array, reencode_every: Reencoding) -> Array:
    """x_0 … x_T of every candidate; with `reencode_every`, decoded and encoded again after so many steps."""
    every = model.steps_between_returns(reencode_every)
    if every is None or every >= actions.shape[0]:
        return model.core.rollout_candidates(start, model.normaliser.normalise_action(actions))
    first = start.latent

    def one(own: Array) -> Array:
        return model.rollout_from(first, own, reencode_every=reencode_every, return_latents=True).latents  # type: ignore

    latents = jax.vmap(one, in_axes=1, out_axes=1)(actions)
    return jnp.concatenate([jnp.broadcast_to(first, (1, *latents.shape[1:])), latents])


def _remembering(
    model: DynamicsModel, start: RememberedStart, actions: Array, reencode_every: Reencoding
) -> Array | ReturnedLatents:
    """As `_latents`, of a model with a history: a return to the encoder sees it, and what the plan has led to."""
    every = model.steps_between_returns(reencode_every)
    if every is None or every >= actions.shape[0]:
        return _latents(model, start.start, actions, "never")
    first = start.start.latent

    def one(own: Array) -> tuple[Array, Array]:
        return model.unroll(
            first, model.normaliser.normalise_action(own), reencode_every=reencode_every, past=start.past
        )

    before, after = jax.vmap(one, in_axes=1, out_axes=1)(actions)
    reached = jnp.concatenate([jnp.broadcast_to(first, (1, *after.shape[1:])), after])
    return ReturnedLatents(reached, jnp.concatenate([before, after[-1:]]))


def load_reward(name: str, state_size: int, action_size: int) -> RewardFunction:
    """The reward function `module:function`, imported from the path or the working directory and tried once."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise KoopaxError(f"--reward is {name!r}: write MODULE:FUNCTION, such as rewards:upright.")
    try:
        function = getattr(import_here(module_name), attribute)
    except Exception as error:  # whatever the user's module raises
        raise KoopaxError(
            f"the reward function {name!r} can't be imported ({type(error).__name__}: {error}): "
            "give a module on the path or in this folder, and a function in it."
        ) from error
    if not callable(function):
        raise KoopaxError(f"the reward function {name!r} is {function!r}, which can't be called: name a function.")
    function = cast(RewardFunction, function)
    _try_reward(name, function, state_size, action_size)
    return function


def _try_reward(name: str, function: RewardFunction, state_size: int, action_size: int) -> None:
    steps, candidates = 3, 2
    states = jax.ShapeDtypeStruct((steps, candidates, state_size), jnp.float32)
    actions = jax.ShapeDtypeStruct((steps, candidates, action_size), jnp.float32)
    try:
        shape = getattr(jax.eval_shape(function, states, actions, states), "shape", None)
    except Exception as error:  # whatever the user's function raises
        first = str(error).strip().splitlines()
        raise KoopaxError(
            f"the reward function {name!r} fails on states [time, candidate, {state_size}] and actions "
            f"[time, candidate, {action_size}] ({type(error).__name__}: {first[0] if first else 'no message'}): "
            "write it in jax.numpy over the last axis."
        ) from error
    if shape != (steps, candidates):
        raise KoopaxError(
            f"the reward function {name!r} returns shape {shape} for {steps} steps of {candidates} candidates: "
            f"return one number for each, shape {(steps, candidates)}."
        )
