"""What an encoder sees besides the newest observation: those before it, and the actions between them.

    x_t = g_θ(s_{t−n+1}, …, s_t;  a_{t−n+1}, …, a_{t−1})

A position without its speed, a voltage without the currents behind it: what one observation does not tell, several do.
At the start of an episode fewer are known. Those that are not are NaN, and each encoder here has its own way to know of
them. All of it is in normalised units; oldest first.
"""

import abc
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, Int, PRNGKeyArray
from koopax.models.config import ModelConfig
from koopax.models.dictionaries import Dictionary
from koopax.models.networks import ACTIVATIONS, MLP, Linear, LinearPath
from koopax.models.recurrence import multiply, powers
from koopax.models.spectrum import MultiscaleSpectrum, discretise

# Modes of the encoder that takes histories of any length.
MODES = 32


class Past(NamedTuple):
    """The latest observations and the latest actions before the newest of them, oldest first; NaN where unknown."""

    states: Float[Array, "observed state"]
    """The last one is where a rollout starts."""
    actions: Float[Array, "past action"]
    """The last one led to the newest observation."""

    def then(self, states: Float[Array, "later state"], actions: Float[Array, "later action"]) -> "Past":
        """As long a past, some steps later."""
        observed, taken = len(self.states), len(self.actions)
        return Past(
            latest(jnp.concatenate([self.states, states]), observed),
            latest(jnp.concatenate([self.actions, actions]), taken),
        )


def latest(rows: Float[Array, "rows column"], count: int) -> Float[Array, "count column"]:
    """The last `count` rows, with rows of NaN before them where there are fewer."""
    missing = max(0, count - rows.shape[0])
    return jnp.pad(rows, ((missing, 0), (0, 0)), constant_values=jnp.nan)[missing + rows.shape[0] - count :]


def seen_later(
    past: Past,
    states: Float[Array, "points batch state"],
    actions: Float[Array, "time batch action"],
    steps: Int[Array, " steps"],
) -> Past:
    """What an encoder sees after those steps of a batch of windows, counted from 0: `[steps, batch, …]`.

    `past` is `[batch, …]`, of the windows' starts; states and actions are normalised.
    """
    observed, taken = past.states.shape[1], past.actions.shape[1]
    all_states = jnp.concatenate([jnp.swapaxes(past.states, 0, 1)[:-1], states])
    all_actions = jnp.concatenate([jnp.swapaxes(past.actions, 0, 1), actions])

    def rows(line: Array, count: int) -> Array:
        return jnp.moveaxis(line[steps[:, None] + 1 + jnp.arange(count)], 1, 2)

    return Past(rows(all_states, observed), rows(all_actions, taken))


class HistoryEncoder(eqx.Module):
    """The latent of observations and of the actions between them, for one example."""

    @abc.abstractmethod
    def __call__(
        self, states: Float[Array, "observed state"], actions: Float[Array, "observed-1 action"]
    ) -> Float[Array, " latent"]:
        """x_t; the newest observation is known, any other row may be NaN."""


def known_before(states: Array, actions: Array) -> tuple[Array, Array, Array]:
    """Of each step before the newest observation its state and its action, zero where one is unknown, and if so."""
    known = ~(jnp.isnan(states[:-1]).any(-1) | jnp.isnan(actions).any(-1))
    return jnp.where(known[:, None], states[:-1], 0.0), jnp.where(known[:, None], actions, 0.0), known


class StackedHistory(HistoryEncoder):
    """One network of all n observations, n − 1 actions and, for each earlier step, whether it is unknown."""

    network: MLP | LinearPath

    def __call__(
        self, states: Float[Array, "observed state"], actions: Float[Array, "observed-1 action"]
    ) -> Float[Array, " latent"]:
        """x_t, of the newest first."""
        before, taken, known = known_before(states, actions)
        unknown = (~known[::-1]).astype(states.dtype)
        return self.network(jnp.concatenate([states[-1], before[::-1].ravel(), taken[::-1].ravel(), unknown]))


class RecurrentHistory(HistoryEncoder):
    """A network of the newest observation and of a diagonal recurrence over the steps before it, however many:

        h = Σ_{k=1}^{n−1} λ̄ᵏ⁻¹ γ (W [s_{t−k}, a_{t−k}] + b),    a term being zero where its step is unknown.

    The bias adds up only over what is known, which is how the network is told how much that is.
    """

    embedding: Linear
    spectrum: MultiscaleSpectrum
    network: MLP | LinearPath

    def __call__(
        self, states: Float[Array, "observed state"], actions: Float[Array, "observed-1 action"]
    ) -> Float[Array, " latent"]:
        """x_t, all steps at once."""
        before, taken, known = known_before(states, actions)
        embedded = jax.vmap(self.embedding)(jnp.concatenate([before, taken], axis=-1)[::-1])
        real, imag = jnp.split(jnp.where(known[::-1, None], embedded, 0.0), 2, axis=-1)
        discrete = discretise(self.spectrum)
        power = powers(discrete.transition, max(1, len(before)))
        one = jnp.ones_like(power[0][:1])
        weight = jnp.concatenate([one, power[0][:-1]]), jnp.concatenate([0 * one, power[1][:-1]])
        total = multiply(multiply((weight[0][: len(before)], weight[1][: len(before)]), discrete.gain), (real, imag))
        return self.network(jnp.concatenate([states[-1], total[0].sum(0), total[1].sum(0)]))


class DelayedDictionary(HistoryEncoder):
    """A regression's functions of z = (s_t, …, s_{t−n+1}, a_{t−1}, …, a_{t−n+1}): delay coordinates.

    Only whole histories are fitted. What is unknown is what is to be expected, as a linear function of what came after
    it, the newest first, so that each sees what was filled in before:

        (s_{t−j}, a_{t−j}) = W_j (1, s_t, …, s_{t−j+1}, a_{t−1}, …, a_{t−j+1}),   j = 1 … n − 1.

    Before W is fitted, with the rest, a state is the one after it and an action is zero.
    """

    dictionary: Dictionary
    before: Float[Array, "past column delays+1"]
    """W_j, of the constant and of z, zero for what is not newer."""
    state_size: int = eqx.field(static=True)
    history: int = eqx.field(static=True)

    def __init__(self, dictionary: Dictionary, state_size: int, history: int):
        """Of a dictionary of so many columns as z has."""
        self.dictionary, self.state_size, self.history = dictionary, state_size, history
        size = dictionary.low.shape[0]
        width = state_size + (size - history * state_size) // (history - 1)
        held = [jnp.eye(width, size + 1, k=1 + j * state_size) for j in range(history - 1)]
        of_state = (jnp.arange(width) < state_size)[:, None]
        self.before = jnp.stack(held) * of_state

    @property
    def size(self) -> int:
        """How many functions there are."""
        return self.dictionary.size

    def __call__(
        self, states: Float[Array, "observed state"], actions: Float[Array, "observed-1 action"]
    ) -> Float[Array, " functions"]:
        """φ(z)."""
        delays = jnp.concatenate([states[::-1].ravel(), actions[::-1].ravel()])
        for step, weights in enumerate(self.before, 1):
            # What is older has no weight, but may be unknown yet.
            expected = weights[:, 0] + weights[:, 1:] @ jnp.where(jnp.isnan(delays), 0.0, delays)
            for places, values in zip(self.places(step), jnp.split(expected, [self.state_size]), strict=True):
                own = delays[places]
                delays = delays.at[places].set(jnp.where(jnp.isnan(own), values, own))
        return self.dictionary(delays)

    def places(self, step: int) -> tuple[slice, slice]:
        """Where in z the state and the action of so many steps ago stand."""
        states, action = self.history * self.state_size, self.before.shape[1] - self.state_size
        return (
            slice(step * self.state_size, (step + 1) * self.state_size),
            slice(states + (step - 1) * action, states + step * action),
        )

    def past(self, functions: Float[Array, " functions"]) -> Past:
        """What a latent says of the past: z stands in it, behind the constant."""
        observed = self.history * self.state_size
        joined = functions[1 : 1 + self.dictionary.low.shape[0]]
        states = joined[:observed].reshape(self.history, self.state_size)
        action = (joined.size - observed) // (self.history - 1)
        return Past(states[::-1], joined[observed:].reshape(self.history - 1, action)[::-1])


def delay_size(config: ModelConfig) -> int:
    """Numbers in a whole history."""
    return config.history * config.state_size + (config.history - 1) * config.action_size


def make_history_encoder(config: ModelConfig, latent_size: int, *, key: PRNGKeyArray) -> HistoryEncoder:
    """The encoder of a network with a history of more than one observation."""
    coder = partial(LinearPath if config.linear_paths else MLP, activation=ACTIVATIONS[config.activation])
    if config.history_encoder == "stacked":
        seen = delay_size(config) + config.history - 1
        return StackedHistory(coder((seen, *config.encoder_hidden, latent_size), key=key))
    network_key, embedding_key, spectrum_key = jax.random.split(key, 3)
    return RecurrentHistory(
        Linear(config.state_size + config.action_size, 2 * MODES, key=embedding_key),
        MultiscaleSpectrum(MODES, key=spectrum_key),
        coder((config.state_size + 2 * MODES, *config.encoder_hidden, latent_size), key=network_key),
    )
