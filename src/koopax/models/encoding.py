"""Between raw states and latents: what a model makes of observations, and what a latent tells of them."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._types import Array, Float, UInt8
from koopax.data.normalisation import Normaliser
from koopax.data.windows import Windows
from koopax.models.config import ModelConfig
from koopax.models.dictionaries import Dictionary
from koopax.models.examples import as_states, check_start, whole_history
from koopax.models.frames import FrameDecoder, FrameEncoder, frame_shape
from koopax.models.history import DelayedDictionary, HistoryEncoder, Past, latest
from koopax.models.latent import LatentDynamics
from koopax.models.networks import MLP, LinearPath

# What users pass where an array goes; its shape is checked.
Numbers: TypeAlias = Array | np.ndarray | Sequence[Any]


class Encoding(eqx.Module):
    """The half of a model that encodes and decodes, with the history that it may see. For one example."""

    normaliser: eqx.AbstractVar[Normaliser]
    encoder: eqx.AbstractVar[MLP | LinearPath | Dictionary | HistoryEncoder | FrameEncoder]
    core: eqx.AbstractVar[LatentDynamics]
    decoder: eqx.AbstractVar[MLP | LinearPath | FrameDecoder]
    config: eqx.AbstractVar[ModelConfig]

    # Raw units.

    def encode(self, state: Numbers, past_actions: Numbers | None = None) -> Float[Array, " latent"]:
        """The latent of a raw state `[state]`, and of the raw actions `[past, action]` that led to it, where known.

        With a history of n it is that of up to n states `[n, state]`, of which all but the last may be NaN, and a
        Koopman core with an action history remembers `core.remembered_actions` of the actions, oldest first and NaN
        where unknown. Without a history the state tells all and past actions change nothing.
        """
        return self.encode_past(self.past_of(state, past_actions))

    @property
    def past_steps(self) -> int:
        """How many steps before the newest observation the model makes use of; 0 without a history."""
        return 0 if self.config.history == 1 else max(self.config.history - 1, self.core.remembered_actions)

    def past_of(self, states: Numbers, actions: Numbers | None = None) -> Past:
        """Raw observations `[observed, state]` or `[state]` and actions before the newest, normalised, whole or NaN."""
        states = as_states(self.config, states)
        check_start(self.config, states, actions)
        rows = whole_history(self.config, states, 0)
        taken = self.normaliser.normalise_action(
            jnp.zeros((0, self.config.action_size)) if actions is None else jnp.asarray(actions)
        )
        if self.config.history > 1:
            taken = latest(taken, max(self.past_steps, rows.shape[0] - 1))
        return Past(self.normaliser.normalise_state(rows if rows.ndim == 2 else rows[None]), taken)

    def decode(self, latent: Float[Array, " latent"]) -> Float[Array, " state"]:
        """The raw state of a latent."""
        return self.normaliser.denormalise_state(self.decoder(latent)[: self.config.state_size])

    def frames(self, states: Float[Array, "*batch state"]) -> UInt8[Array, "*batch height width channels"]:
        """Predicted states of a model of frames as the pictures that they are."""
        shape = frame_shape(self.config)
        return jnp.round(jnp.clip(states, 0, 255)).astype(jnp.uint8).reshape(*states.shape[:-1], *shape)

    # Normalised units.

    def encode_past(self, past: Past) -> Float[Array, " latent"]:
        """The latent of a normalised past, which is the newest state alone where there is no history.

        Then training shows the model no actions before its windows. What the encoder puts in their place is no guess of
        them but what it has learned to say of the state there, and the actions themselves would be noise instead of it.
        """
        if not isinstance(self.encoder, HistoryEncoder):
            return self.encoder(past.states[-1])
        between = past.actions[len(past.actions) - len(past.states) + 1 :]
        return self.core.with_known(self.encoder(past.states, between), past.actions)

    def reencode(self, latent: Float[Array, " latent"], past: Past | None = None) -> Float[Array, " latent"]:
        """g_θ(d_ξ(x)) with the past actions that x remembers: the encoder would replace what is known by a guess.

        With a history, that of the `past` which led to x (see `remember`).
        """
        if self.config.history > 1:
            known = self.known_past(latent) if past is None else past
            assert known is not None
            return self.encode_past(known)
        encoded = self.encoder(self.decoder(latent)[: self.config.state_size])  # type: ignore[call-arg]
        return self.core.with_known(encoded, self.core.known_actions(latent))

    def known_past(self, latent: Float[Array, " latent"]) -> Past | None:
        """All that a latent tells of the past: the state, and actions that it remembers; None without a history."""
        if self.config.history == 1:
            return None
        if isinstance(self.encoder, DelayedDictionary):
            return self.encoder.past(latent)
        state = self.decoder(latent)[None, : self.config.state_size]
        return Past(latest(state, self.config.history), latest(self.core.known_actions(latent), self.past_steps))

    def remember(
        self, past: Past | None, latents: Float[Array, "time latent"], actions: Float[Array, "time action"]
    ) -> Past | None:
        """The past after some more steps, whose states are as predicted; nothing to remember without a history."""
        if past is None or self.config.history == 1:
            return past
        states = jax.vmap(self.decoder)(latents[-len(past.states) :])[:, : self.config.state_size]
        return past.then(states, actions)


def past_of_windows(model: Encoding, windows: Windows) -> Past:
    """What the model sees at the start of time-major windows, normalised: `[batch, …]`."""
    steps, states, actions = model.past_steps, windows.states[:1], None
    if steps:
        assert windows.past_states is not None  # asked for with the windows
        assert windows.past_actions is not None
        observed = model.config.history - 1
        states = jnp.concatenate([windows.past_states[len(windows.past_states) - observed :], states])
        actions = windows.past_actions[len(windows.past_actions) - steps :]
    if not steps:
        return jax.vmap(model.past_of)(states[0])
    return jax.vmap(model.past_of, in_axes=(1, 1))(states, actions)
