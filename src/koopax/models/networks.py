"""Feed-forward networks that cores, encoders and heads are made of."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._types import Array, Float, PRNGKeyArray

ACTIVATIONS: dict[str, Callable] = {
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "tanh": jnp.tanh,
}


class Linear(eqx.Module):
    """W x + b as x Wᵀ + b: under `jax.vmap` rows stay rows, where `equinox.nn.Linear` transposes in and out."""

    weight: Float[Array, "output input"]
    bias: Float[Array, " output"] | None

    def __init__(self, fan_in: int, fan_out: int, *, use_bias: bool = True, key: PRNGKeyArray):
        """Begin with the values of `equinox.nn.Linear`; without any input a layer is its bias, from 0 on."""
        if fan_in == 0:
            self.weight, self.bias = jnp.zeros((fan_out, 0)), jnp.zeros(fan_out) if use_bias else None
            return
        begin = eqx.nn.Linear(fan_in, fan_out, use_bias=use_bias, key=key)
        self.weight, self.bias = begin.weight, begin.bias

    def given(self, last: Float[Array, " known"]) -> "Linear":
        """The layer as a function of its first inputs alone, where the last ones are known."""
        count = last.shape[0]
        if count == 0:
            return self
        assert self.bias is not None
        weight, known = self.weight[:, :-count], self.weight[:, -count:]
        return eqx.tree_at(lambda own: (own.weight, own.bias), self, (weight, self.bias + known @ last))

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " output"]:
        """The layer's output for one example."""
        product = x @ self.weight.T
        return product if self.bias is None else product + self.bias


class MLP(eqx.Module):
    """Linear layers with an activation between them. (`equinox.nn.MLP` has one width for every hidden layer.)"""

    layers: tuple[Linear, ...]
    activation: Callable = eqx.field(static=True)

    def __init__(self, sizes: Sequence[int], *, activation: Callable = jax.nn.relu, key: PRNGKeyArray):
        """`sizes` are the widths from input to output: `(17, 256, 512)` has one hidden layer of 256."""
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            Linear(fan_in, fan_out, key=layer_key)
            for fan_in, fan_out, layer_key in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.activation = activation

    def given(self, last: Float[Array, " known"]) -> "MLP":
        """The network as a function of its first inputs alone, where the last ones are known."""
        return eqx.tree_at(lambda net: net.layers[0], self, self.layers[0].given(last))

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " output"]:
        """The network's output for one example."""
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


class LinearPath(eqx.Module):
    """W x + b + network(x): what is linear need not be learned by the network beside it.

    The path begins at zero; `koopax.training.linear_start` puts a regression there.
    """

    linear: Linear
    network: MLP

    def __init__(self, sizes: Sequence[int], *, activation: Callable = jax.nn.relu, key: PRNGKeyArray):
        """A network of these widths, as `MLP` begins it, and a path from its input to its output."""
        begin = Linear(sizes[0], sizes[-1], key=key)
        self.linear = jax.tree.map(jnp.zeros_like, begin)
        self.network = MLP(sizes, activation=activation, key=key)

    def given(self, last: Float[Array, " known"]) -> "LinearPath":
        """As `MLP.given`."""
        path = self.linear.given(last)
        return eqx.tree_at(lambda own: (own.linear, own.network), self, (path, self.network.given(last)))

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " output"]:
        """The sum of both for one example."""
        return self.linear(x) + self.network(x)


def over_rows(network: Callable[[Array], Array], inputs: Float[Array, "*batch input"]) -> Float[Array, "*batch output"]:
    """A network for one example, over all leading axes at once: one product of large matrices per layer."""
    outputs = jax.vmap(network)(inputs.reshape(-1, inputs.shape[-1]))
    return outputs.reshape(*inputs.shape[:-1], -1)
