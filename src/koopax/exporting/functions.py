"""A model as plain functions of float32 arrays, in raw units: what leaves koopax.

    encode   state → latent
    step     latent, action → next_latent, state, reward
    rollout  state, actions → states, rewards

The `latent` of an exported model is everything that goes on from one step to the next in one vector: the core's latent,
or what a core remembers beneath it, and where the model returns to its encoder every n > 1 steps, the number of steps
since. So `step` after `step` is the model's own rollout at any length.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PyTree
from koopax.models.dynamics import DynamicsModel
from koopax.models.latent import Start, begin, latent_of

Outputs: TypeAlias = dict[str, Array]


@dataclass(frozen=True)
class Sizes:
    """The lengths of an exported model's vectors."""

    state: int
    action: int
    latent: int
    horizon: int
    """Steps of its rollout."""


@dataclass(frozen=True)
class Function:
    """One exported function: takes the named arrays in order and returns a dictionary of named ones."""

    name: str
    call: Callable[..., Outputs]
    inputs: dict[str, tuple[int, ...]]
    """Name and shape of each input, all of float32."""
    outputs: tuple[str, ...]
    """The names of what it returns, in the order of a file's outputs."""


@dataclass(frozen=True)
class ModelFunctions:
    """What is exported of a model."""

    encode: Function
    step: Function
    rollout: Function
    sizes: Sizes

    def __iter__(self):
        return iter((self.encode, self.step, self.rollout))


def model_functions(model: DynamicsModel, horizon: int) -> ModelFunctions:
    """The functions of a model, in float32; `horizon` is the length of the rollout."""
    model = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, model)
    states, actions = model.config.state_size, model.config.action_size
    example = jax.eval_shape(lambda state: begin(model.core, model.encode(state)), _vector(states))
    every = model.steps_between_returns()
    counted = every is not None and every > 1

    def encode(state: Float[Array, " state"]) -> Outputs:
        latent = _flatten(begin(model.core, model.encode(state)))
        return {"latent": jnp.concatenate([latent, jnp.zeros(1, jnp.float32)]) if counted else latent}

    def step(latent: Float[Array, " latent"], action: Float[Array, " action"]) -> Outputs:
        now = _unflatten(latent[:-1] if counted else latent, example)
        normalised = model.normaliser.normalise_action(action)
        after = model.core.step(now, normalised)
        state, reward = model.read(latent_of(now), latent_of(after), normalised)
        moved = _flatten(after)
        if every is not None:
            returned = _flatten(begin(model.core, model.reencode(latent_of(after))))
            if counted:
                count = latent[-1:] + 1
                due = count >= every
                moved = jnp.concatenate([jnp.where(due, returned, moved), jnp.where(due, 0, count)])
            else:
                moved = returned
        return {
            "next_latent": moved,
            "state": model.normaliser.denormalise_state(state),
            "reward": model.normaliser.denormalise_reward(reward),
        }

    def rollout(state: Float[Array, " state"], actions: Float[Array, "time action"]) -> Outputs:
        def move(latent: Array, action: Array) -> tuple[Array, tuple[Array, Array]]:
            found = step(latent, action)
            return found["next_latent"], (found["state"], found["reward"])

        _, (states, rewards) = jax.lax.scan(move, encode(state)["latent"], actions)
        return {"states": states, "rewards": rewards}

    latent = sum(leaf.size for leaf in jax.tree.leaves(example)) + counted
    return ModelFunctions(
        encode=Function("encode", encode, {"state": (states,)}, ("latent",)),
        step=Function("step", step, {"latent": (latent,), "action": (actions,)}, ("next_latent", "state", "reward")),
        rollout=Function(
            "rollout", rollout, {"state": (states,), "actions": (horizon, actions)}, ("states", "rewards")
        ),
        sizes=Sizes(states, actions, latent, horizon),
    )


def _vector(size: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((size,), jnp.float32)


def _flatten(start: Start) -> Float[Array, " flat"]:
    return jnp.concatenate([leaf.ravel().astype(jnp.float32) for leaf in jax.tree.leaves(start)])


def _unflatten(flat: Float[Array, " flat"], example: PyTree) -> Start:
    leaves, structure = jax.tree.flatten(example)
    ends = [sum(leaf.size for leaf in leaves[: index + 1]) for index in range(len(leaves))]
    parts = [flat[end - leaf.size : end] for leaf, end in zip(leaves, ends, strict=True)]
    shaped = [part.reshape(leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)
