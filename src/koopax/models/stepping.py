"""A model one step at a time: all that goes on from a step to the next in one vector.

That is the core's latent, or what a core remembers beneath it, and where the model returns to its encoder every n > 1
steps, the number of steps since, and the history that its encoder then sees, where it has one. So step after step is
the model's own rollout, whatever its core, at any length.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PyTree
from koopax.models.dynamics import DynamicsModel
from koopax.models.history import Past
from koopax.models.latent import Start, begin, latent_of


class Step(NamedTuple):
    """What one action leads to, in raw units."""

    carried: Float[Array, " carried"]
    """What the next step goes on from."""
    state: Float[Array, " state"]
    reward: Float[Array, ""]


class Stepper(eqx.Module):
    """`begin` at a state, then `step` by step; for one example, in raw units: `jax.vmap` for batches."""

    model: DynamicsModel

    @property
    def size(self) -> int:
        """The length of the vector that is carried."""
        return sum(leaf.size for leaf in jax.tree.leaves(self._example())) + self._counts

    @property
    def _counts(self) -> bool:
        every = self.model.steps_between_returns()
        return every is not None and every > 1

    def begin(
        self, state: Float[Array, "*observed state"], past_actions: Float[Array, "past action"] | None = None
    ) -> Float[Array, " carried"]:
        """The vector of an observed state, or history, and of the actions that led to it, where they are known."""
        carried = _flatten(_started(self.model, state, past_actions))
        return jnp.concatenate([carried, jnp.zeros_like(carried[:1])]) if self._counts else carried

    def step(self, carried: Float[Array, " carried"], action: Float[Array, " action"]) -> Step:
        """What an action leads to."""
        model, every = self.model, self.model.steps_between_returns()
        now, past = _unflatten(carried[:-1] if self._counts else carried, self._example())
        normalised = model.normaliser.normalise_action(action)
        after = model.core.step(now, normalised)
        state, reward = model.read(latent_of(now), latent_of(after), normalised)
        past = model.remember(past, latent_of(after)[None], normalised[None])
        moved = _flatten((after, past))
        if every is not None:
            returned = _flatten((begin(model.core, model.reencode(latent_of(after), past)), past))
            if self._counts:
                count = carried[-1:] + 1
                due = count >= every
                moved = jnp.concatenate([jnp.where(due, returned, moved), jnp.where(due, 0, count)])
            else:
                moved = returned
        return Step(moved, model.normaliser.denormalise_state(state), model.normaliser.denormalise_reward(reward))

    def _example(self) -> PyTree:
        state = jax.ShapeDtypeStruct((self.model.config.state_size,), jnp.float32)
        return eqx.filter_eval_shape(_started, self.model, state, None)


def _started(model: DynamicsModel, state: Array, past_actions: Array | None) -> tuple[Start, Past | None]:
    """Where it starts, and the history where a return to the encoder will see it."""
    past = model.past_of(state, past_actions)
    returns = model.config.history > 1 and model.steps_between_returns() is not None
    return begin(model.core, model.encode_past(past)), past if returns else None


def _flatten(start: PyTree) -> Float[Array, " flat"]:
    return jnp.concatenate([leaf.ravel().astype(jnp.float32) for leaf in jax.tree.leaves(start)])


def _unflatten(flat: Float[Array, " flat"], example: PyTree) -> PyTree:
    leaves, structure = jax.tree.flatten(example)
    shaped, used = [], 0
    for leaf in leaves:
        shaped.append(flat[used : used + leaf.size].reshape(leaf.shape).astype(leaf.dtype))
        used += leaf.size
    return jax.tree.unflatten(structure, shaped)
