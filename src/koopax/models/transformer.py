"""The causal Transformer core: the start latent is the first token, every action is a token, later states are masked.

    tokens    x_0, e(a_0), e(a_1), …, e(a_{T−1})         positions 0, 1, …, T
    blocks    h ← h + attention(norm(h)),  h ← h + feedforward(norm(h))
    x̂_{k+1} = norm(h at a_k),  k = 0 … T−1

Positions enter as linear biases (ALiBi): head i adds −2^{−8i/heads} · distance to its attention scores. They have no
parameters, so no horizon is out of range; they depend on distances alone, so a rollout can go on from a memory; and,
unlike rotations and learned tables, they are known to hold up at lengths beyond those trained on.

A token sees the start and the last `context` actions, itself included. Below that many steps this is full attention;
above, it bounds the memory of `step`, and step and rollout stay the same function at any length.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import KoopaxError
from koopax._types import Array, Float, Int, PRNGKeyArray
from koopax.models.action_inputs import timed_actions
from koopax.models.latent import Memory, SequenceDynamics
from koopax.models.networks import Linear


class KeysAndValues(NamedTuple):
    """What tokens offer to later ones in one block."""

    keys: Float[Array, "tokens heads head"]
    values: Float[Array, "tokens heads head"]


class TransformerMemory(Memory):
    """The latest latent, and the keys and values of the start (slot 0) and of the last `context` actions (a ring)."""

    latent: Float[Array, " latent"]
    cache: tuple[KeysAndValues, ...]
    length: Int[Array, ""]
    """Tokens so far, the start included."""

    def positions(self) -> Int[Array, " slots"]:
        """The position of the token in each slot, or −1 where there is none yet."""
        slots = jnp.arange(self.cache[0].keys.shape[0])
        last, context = self.length - 1, slots.shape[0] - 1
        # Position p ≥ 1 is written to slot 1 + (p − 1) mod context; the latest one that fits is still there.
        ring = last - (last - slots) % context
        return jnp.where(slots == 0, 0, jnp.where(ring >= 1, ring, -1))

    def slot(self) -> Int[Array, ""]:
        """Where the next action's keys and values go."""
        return 1 + (self.length - 1) % (self.cache[0].keys.shape[0] - 1)


class Block(eqx.Module):
    """Attention and feed-forward layers, each normalising its input and adding to the tokens (pre-LN)."""

    attention_norm: eqx.nn.LayerNorm
    attention_in: Linear
    attention_out: Linear
    feedforward_norm: eqx.nn.LayerNorm
    feedforward_in: Linear
    feedforward_out: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, width: int, heads: int, feedforward: int, *, key: PRNGKeyArray):
        """`feedforward` is the hidden width of the second layer."""
        keys = jax.random.split(key, 4)
        self.attention_norm = eqx.nn.LayerNorm(width)
        self.attention_in = Linear(width, 3 * width, key=keys[0])
        self.attention_out = Linear(width, width, key=keys[1])
        self.feedforward_norm = eqx.nn.LayerNorm(width)
        self.feedforward_in = Linear(width, feedforward, key=keys[2])
        self.feedforward_out = Linear(feedforward, width, key=keys[3])
        self.heads = heads

    def __call__(
        self, tokens: Float[Array, "tokens width"], past: KeysAndValues | None, bias: Float[Array, "heads tokens seen"]
    ) -> tuple[Float[Array, "tokens width"], KeysAndValues]:
        """The tokens after the block, and their own keys and values; `bias` covers past tokens, then these."""

        def attend(token: Array) -> Array:
            return self.attention_in(self.attention_norm(token)).reshape(3, self.heads, -1)

        def feed_forward(token: Array) -> Array:
            return self.feedforward_out(jax.nn.gelu(self.feedforward_in(self.feedforward_norm(token))))

        queries, keys, values = jnp.moveaxis(jax.vmap(attend)(tokens), 1, 0)
        own = KeysAndValues(keys, values)
        if past is not None:
            keys, values = jnp.concatenate([past.keys, keys]), jnp.concatenate([past.values, values])
        mixed = attention(queries, keys, values, bias).reshape(tokens.shape)
        tokens = tokens + jax.vmap(self.attention_out)(mixed)
        return tokens + jax.vmap(feed_forward)(tokens), own


def attention(
    queries: Float[Array, "tokens heads head"],
    keys: Float[Array, "seen heads head"],
    values: Float[Array, "seen heads head"],
    bias: Float[Array, "heads tokens seen"],
) -> Float[Array, "tokens heads head"]:
    """softmax(q kᵀ / √head + bias) v. (`jax.nn.dot_product_attention` takes its softmax in 32 bits even for 64.)"""
    scores = jnp.einsum("qhd,khd->hqk", queries, keys) / queries.shape[-1] ** 0.5
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores + bias, axis=-1), values)


def distance_bias(
    queries: Int[Array, " tokens"], keys: Int[Array, " seen"], *, heads: int, context: int
) -> Float[Array, "heads tokens seen"]:
    """−slope · distance where the token at a query's position sees that at a key's, −∞ elsewhere.

    Position 0, the start, is seen by all; a negative position is an empty slot, seen by none.
    """
    slopes = 2.0 ** (-8.0 * (jnp.arange(heads) + 1.0) / heads)
    distance = queries[:, None] - keys[None, :]
    seen = (keys >= 0) & (distance >= 0) & ((distance < context) | (keys == 0))
    return jnp.where(seen, -slopes[:, None, None] * distance, -jnp.inf)


class TransformerCore(SequenceDynamics):
    """A decoder-only Transformer over the start latent and the actions; tokens are as wide as the latent."""

    action_embedding: Linear
    blocks: tuple[Block, ...]
    output_norm: eqx.nn.LayerNorm
    latent_size: int = eqx.field(static=True)
    action_size: int = eqx.field(static=True)
    context: int = eqx.field(static=True)

    def __init__(
        self,
        latent_size: int,
        action_size: int,
        *,
        layers: int = 5,
        heads: int = 4,
        feedforward: int = 512,
        context: int = 512,
        key: PRNGKeyArray,
    ):
        """Build the core.

        Args:
            latent_size: width of the latent and of every token.
            action_size: components of an action; its duration is one more feature of the token.
            layers: number of blocks.
            heads: attention heads of a block; they share the width.
            feedforward: hidden width of a block's feed-forward layer.
            context: actions that a token sees, itself included; the capacity of a memory.
            key: for the initial parameters.
        """
        if latent_size % heads:
            raise KoopaxError(
                f"latent_size {latent_size} can't be shared by {heads} heads: use a multiple of the number of heads."
            )
        if layers < 1:
            raise KoopaxError(f"a Transformer of {layers} layers sees nothing of the past: use 1 or more.")
        if context < 1:
            raise KoopaxError(f"context {context} hides a step's own action: use 1 or more.")
        action_key, *block_keys = jax.random.split(key, 1 + layers)
        self.action_embedding = Linear(action_size + 1, latent_size, key=action_key)
        self.blocks = tuple(Block(latent_size, heads, feedforward, key=block_key) for block_key in block_keys)
        self.output_norm = eqx.nn.LayerNorm(latent_size)
        self.latent_size = latent_size
        self.action_size = action_size
        self.context = context

    def rollout(
        self,
        latent: Float[Array, " latent"] | TransformerMemory,
        actions: Float[Array, "time action"],
        durations: Float[Array, " time"] | None = None,
    ) -> Float[Array, "time latent"]:
        """x̂_1 … x̂_T, every step at once."""
        tokens = self._action_tokens(actions, durations)
        if isinstance(latent, TransformerMemory):
            return self._apply(tokens, latent.length + jnp.arange(tokens.shape[0]), latent)[0]
        tokens = jnp.concatenate([latent[None], tokens])
        return self._apply(tokens, jnp.arange(tokens.shape[0]), None)[0][1:]

    def step(
        self,
        latent: Float[Array, " latent"] | TransformerMemory,
        action: Float[Array, " action"],
        duration: Float[Array, ""] | None = None,
    ) -> TransformerMemory:
        """x̂_1, with the keys and values of all that was seen."""
        memory = latent if isinstance(latent, TransformerMemory) else self.begin(latent)
        token = self._action_tokens(action[None], None if duration is None else duration[None])
        outputs, new = self._apply(token, memory.length[None], memory)
        cache = jax.tree.map(lambda old, now: old.at[memory.slot()].set(now[0]), memory.cache, new)
        return TransformerMemory(outputs[0], cache, memory.length + 1)

    def begin(self, latent: Float[Array, " latent"]) -> TransformerMemory:
        """The memory that holds the start alone."""
        _, new = self._apply(latent[None], jnp.zeros(1, int), None)
        cache = jax.tree.map(lambda now: jnp.pad(now, [(0, self.context), (0, 0), (0, 0)]), new)
        return TransformerMemory(latent, cache, jnp.ones((), int))

    def _action_tokens(self, actions: Array, durations: Array | None) -> Float[Array, "time latent"]:
        return jax.vmap(self.action_embedding)(timed_actions(actions, durations))

    def _apply(
        self,
        tokens: Float[Array, "tokens latent"],
        positions: Int[Array, " tokens"],
        memory: TransformerMemory | None,
    ) -> tuple[Float[Array, "tokens latent"], tuple[KeysAndValues, ...]]:
        """The outputs at the tokens, and their keys and values in every block."""
        seen = positions if memory is None else jnp.concatenate([memory.positions(), positions])
        bias = distance_bias(positions, seen, heads=self.blocks[0].heads, context=self.context).astype(tokens.dtype)
        new = []
        for index, block in enumerate(self.blocks):
            tokens, own = block(tokens, None if memory is None else memory.cache[index], bias)
            new.append(own)
        return jax.vmap(self.output_norm)(tokens), tuple(new)
