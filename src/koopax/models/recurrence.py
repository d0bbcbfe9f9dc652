"""The diagonal linear recurrence  x_{t+1} = λ_t x_t + c_t,  t = 0 … T−1.

λ, c and x are complex. They travel as pairs of real arrays `(real, imaginary)`, because on a CPU XLA vectorises
real arithmetic and not complex arithmetic. Unrolled, with a constant λ,

    x_k = λᵏ x_0 + Σ_{l=1}^{k} λ^{k−l} c_{l−1},        k = 1 … T,

which is a causal convolution of the inputs with the powers of λ (eq. 6 of the paper). Hence three ways to compute it:

| method        | work        | depth   | where it pays                                             |
|---------------|-------------|---------|-----------------------------------------------------------|
| `scan`        | O(T)        | O(T)    | CPUs: one step is elementwise and the state stays in cache |
| `associative` | O(T log T)  | O(log T)| accelerators; also takes a λ for each step                |
| `fft`         | O(T log T)  | O(log T)| accelerators at long horizons; constant λ only            |

`auto` picks the fastest one for the platform and horizon from `recurrence_timings.json`, which
`koopax bench recurrence` measures.
"""

import json
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
from scipy.fft import next_fast_len

from koopax._errors import KoopaxError, unknown_name
from koopax._types import Array

Pair: TypeAlias = tuple[Array, Array]
Method: TypeAlias = Literal["auto", "scan", "associative", "fft"]

# For platforms without a measurement of their own: parallel in time, and takes irregular durations.
UNMEASURED_DEFAULT: Method = "associative"


def multiply(a: Pair, b: Pair) -> Pair:
    """The product of two complex numbers held as pairs."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def powers(base: Pair, count: int) -> Pair:
    """λ¹ … λ^count along a new leading axis, by doubling: about log₂(count) products deep, so rounding stays small."""
    real, imag = base[0][None], base[1][None]
    while real.shape[0] < count:
        last = (real[-1], imag[-1])
        more = multiply((real, imag), last)
        real, imag = jnp.concatenate([real, more[0]]), jnp.concatenate([imag, more[1]])
    return real[:count], imag[:count]


def linear_recurrence(transition: Pair, inputs: Pair, start: Pair, *, method: Method = "auto") -> Pair:
    """All the states x_1 … x_T of  x_{t+1} = λ_t x_t + c_t.

    For batches use `jax.vmap`; with time-major data (`in_axes=1, out_axes=1` for inputs and outputs) no copy is made.

    Args:
        transition: λ, pairs of shape `[modes]`, or `[T, modes]` for one λ per step.
        inputs: c, pairs of shape `[T, modes]`.
        start: x_0, pairs of shape `[modes]`.
        method: `"scan"`, `"associative"`, `"fft"`, or `"auto"` to choose by platform and horizon.

    Returns:
        x_1 … x_T, pairs of shape `[T, modes]`.
    """
    horizon = inputs[0].shape[0]
    if horizon == 0:
        raise KoopaxError("a rollout needs at least one step, but the horizon is 0: pass one action or more.")
    varying = transition[0].ndim == inputs[0].ndim
    if method == "auto":
        method = fastest_method(jax.default_backend(), horizon, varying=varying)
    if method not in _METHODS:
        raise unknown_name("recurrence method", method, list(get_args(Method)))
    return _METHODS[method](transition, inputs, start)


def _sequential(transition: Pair, inputs: Pair, start: Pair) -> Pair:
    varying = transition[0].ndim == inputs[0].ndim

    def step(state: Pair, now: tuple[Pair, Pair | None]) -> tuple[Pair, Pair]:
        c, step_transition = now
        moved = multiply(transition if step_transition is None else step_transition, state)
        state = moved[0] + c[0], moved[1] + c[1]
        return state, state

    return jax.lax.scan(step, start, (inputs, transition if varying else None))[1]


def _associative(transition: Pair, inputs: Pair, start: Pair) -> Pair:
    """Steps compose as affine maps: (λ₂, c₂) ∘ (λ₁, c₁) = (λ₂ λ₁, λ₂ c₁ + c₂)."""
    shape = inputs[0].shape[:1] + transition[0].shape[-1:]
    lambdas = jnp.broadcast_to(transition[0], shape), jnp.broadcast_to(transition[1], shape)
    first = multiply((lambdas[0][0], lambdas[1][0]), start)
    inputs = inputs[0].at[0].add(first[0]), inputs[1].at[0].add(first[1])

    def compose(earlier: tuple[Pair, Pair], later: tuple[Pair, Pair]) -> tuple[Pair, Pair]:
        carried = multiply(later[0], earlier[1])
        return multiply(later[0], earlier[0]), (carried[0] + later[1][0], carried[1] + later[1][1])

    return jax.lax.associative_scan(compose, (lambdas, inputs))[1]


def _convolution(transition: Pair, inputs: Pair, start: Pair) -> Pair:
    """Eq. 6: the kernel [1, λ, …, λ^{T−1}] convolved with the inputs, zero-padded so that nothing wraps around."""
    if transition[0].ndim == inputs[0].ndim:
        raise KoopaxError(
            "recurrence method 'fft' needs the same duration for every step: "
            "use 'scan', 'associative' or 'auto' with irregular durations."
        )
    horizon = inputs[0].shape[0]
    power = powers(transition, horizon)
    start_part = multiply(power, (start[0][None], start[1][None]))

    kernel = jnp.concatenate([jnp.ones_like(power[0][:1]) + 0j, (power[0] + 1j * power[1])[:-1]])
    length = next_fast_len(2 * horizon - 1)
    spectrum = jnp.fft.fft(inputs[0] + 1j * inputs[1], n=length, axis=0) * jnp.fft.fft(kernel, n=length, axis=0)
    driven = jnp.fft.ifft(spectrum, axis=0)[:horizon]
    return start_part[0] + driven.real, start_part[1] + driven.imag


_METHODS: dict[Method, Callable[[Pair, Pair, Pair], Pair]] = {
    "scan": _sequential,
    "associative": _associative,
    "fft": _convolution,
}
METHODS: tuple[Method, ...] = tuple(_METHODS)


@cache
def _timings() -> dict:
    text = resources.files("koopax.models").joinpath("recurrence_timings.json").read_text()
    return json.loads(text)["platforms"]


def fastest_method(platform: str, horizon: int, *, varying: bool = False) -> Method:
    """The method that was measured fastest on this platform at the nearest measured horizon (on a log scale)."""
    measured = _timings().get(platform)
    if measured is None:
        return UNMEASURED_DEFAULT
    nearest = min(measured, key=lambda known: max(int(known), horizon) / min(int(known), horizon))
    candidates = {name: ms for name, ms in measured[nearest].items() if not (varying and name == "fft")}
    return min(candidates, key=lambda name: candidates[name])
