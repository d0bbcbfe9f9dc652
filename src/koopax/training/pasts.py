"""Histories in training: some windows forget part of theirs.

An episode's first steps are few, and there less is known than anywhere else. So that a model learns what to make of
that, a share of all windows forgets the older part of its history, as if the episode had begun later.
"""

import jax
import jax.numpy as jnp

from koopax._types import PRNGKeyArray
from koopax.models.history import Past

FORGETTING = 0.1


def forgetting(past: Past, key: PRNGKeyArray) -> Past:
    """The past as it is or, in a tenth of the cases, with any number of the steps before the newest state unknown."""
    whether_key, count_key = jax.random.split(key)
    steps = max(len(past.states) - 1, len(past.actions))
    known = jax.random.randint(count_key, (), 0, steps)
    known = jnp.where(jax.random.bernoulli(whether_key, FORGETTING), known, steps)
    age = jnp.arange(len(past.states))[::-1]
    taken = jnp.arange(1, len(past.actions) + 1)[::-1]
    return Past(
        jnp.where((age <= known)[:, None], past.states, jnp.nan),
        jnp.where((taken <= known)[:, None], past.actions, jnp.nan),
    )
