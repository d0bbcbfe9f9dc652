"""A model as plain functions of float32 arrays, in raw units: what leaves koopax.

    encode   state → latent
    step     latent, action → next_latent, state, reward
    rollout  state, actions → states, rewards

The `latent` of an exported model is all that goes on from one step to the next (see `koopax.models.stepping`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import KoopaxError
from koopax._types import Array, Float
from koopax.models.dynamics import DynamicsModel
from koopax.models.stepping import Stepper

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
    if model.config.history > 1:
        raise KoopaxError(
            f"the model has a history of {model.config.history}, but exported functions take one observation: export a "
            "model with a history of 1."
        )
    stepper = Stepper(jax.tree.map(lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x, model))
    states, actions, latents = model.config.state_size, model.config.action_size, stepper.size

    def encode(state: Float[Array, " state"]) -> Outputs:
        return {"latent": stepper.begin(state)}

    def step(latent: Float[Array, " latent"], action: Float[Array, " action"]) -> Outputs:
        found = stepper.step(latent, action)
        return {"next_latent": found.carried, "state": found.state, "reward": found.reward}

    def rollout(state: Float[Array, " state"], actions: Float[Array, "time action"]) -> Outputs:
        def move(latent: Array, action: Array) -> tuple[Array, tuple[Array, Array]]:
            found = stepper.step(latent, action)
            return found.carried, (found.state, found.reward)

        _, (states, rewards) = jax.lax.scan(move, stepper.begin(state), actions)
        return {"states": states, "rewards": rewards}

    return ModelFunctions(
        encode=Function("encode", encode, {"state": (states,)}, ("latent",)),
        step=Function("step", step, {"latent": (latents,), "action": (actions,)}, ("next_latent", "state", "reward")),
        rollout=Function(
            "rollout", rollout, {"state": (states,), "actions": (horizon, actions)}, ("states", "rewards")
        ),
        sizes=Sizes(states, actions, latents, horizon),
    )
