"""Latents of many candidates that start at one latent, for any core.

A Koopman core is linear in its latent and inputs, so what the start contributes is the same for every candidate:

    x_k = λᵏ x_0 + Σ_{l=1}^{k} λ^{k−l} c_{l−1},     k = 0 … T.

The first term is computed once per plan. The second is for each candidate: all actions are encoded in one product, and
one pass over the steps adds them up and writes every latent once, which is where the time goes. Arrays are time-major;
a core that must go step by step gets all candidates of a step at once.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from koopax._types import Array, Float
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import LatentDynamics
from koopax.models.recurrence import multiply, powers
from koopax.models.spectrum import discretise


def shared_start(core: LatentDynamics, latent: Float[Array, " latent"], horizon: int) -> Array:
    """x_0 `[latent]`, or for a Koopman core x_0 and its free response, λᵏ x_0 for k = 0 … H, `[horizon+1, latent]`."""
    if not isinstance(core, KoopmanCore):
        return latent
    moved = multiply(powers(discretise(core.spectrum).transition, horizon), core.halves(latent))
    # What a latent remembers of actions is the candidates' own from the first step on.
    no_actions = jnp.zeros((horizon, core.latent_size - core.modes_size), latent.dtype)
    return jnp.concatenate([latent[None], jnp.concatenate([*moved, no_actions], axis=-1)])


def candidate_latents(
    core: LatentDynamics, start: Array, actions: Float[Array, "time candidate action"]
) -> Float[Array, "time+1 candidate latent"]:
    """x_0 … x_T of every candidate, from what `shared_start` returned; actions as the core takes them."""
    if not isinstance(core, KoopmanCore):
        latents = jax.vmap(core.rollout, in_axes=(None, 1), out_axes=1)(start, actions)
        return jnp.concatenate([jnp.broadcast_to(start, (1, *latents.shape[1:])), latents])
    steps, candidates, _ = actions.shape
    discrete = discretise(core.spectrum)
    seen, remembered = jax.vmap(core.delays, in_axes=(None, 1), out_axes=1)(start[0], actions)
    # The context is the same for all of them, so it enters once.
    actions_seen, context = jnp.split(seen, [seen.shape[-1] - core.context_size], axis=-1)
    embedded = over_rows(core.action_encoder.given(context[0, 0]), actions_seen)
    inputs = core.input_matrix(discrete)

    def step(driven: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        action, held, free = now
        moved = jnp.concatenate(multiply(discrete.transition, core.halves(driven)), axis=-1)
        return moved + action @ inputs, jnp.concatenate([driven, held], axis=-1) + free

    # Row k adds action k after it is written, so that x_0 is a row like the others; the last one adds nothing.
    at_rest = jnp.zeros((candidates, core.modes_size), embedded.dtype)
    rows = (_pad(embedded, after=1), _pad(remembered, before=1), start[: steps + 1])
    return jax.lax.scan(step, at_rest, rows)[1]


def _pad(array: Array, *, before: int = 0, after: int = 0) -> Array:
    return jnp.pad(array, ((before, after), (0, 0), (0, 0)))


def over_rows(network: Callable[[Array], Array], inputs: Float[Array, "*batch input"]) -> Float[Array, "*batch output"]:
    """A network for one example, over all leading axes at once: one product of large matrices per layer."""
    outputs = jax.vmap(network)(inputs.reshape(-1, inputs.shape[-1]))
    return outputs.reshape(*inputs.shape[:-1], -1)
