"""Every recurrence method against a loop in NumPy, in value and gradient."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koopax._errors import KoopaxError
from koopax.models import recurrence
from koopax.models.recurrence import METHODS, fastest_method, linear_recurrence, powers

HORIZONS = [1, 2, 3, 7, 100, 1000]
PRECISIONS = [("float64", 1e-9), ("float32", 1e-4)]


def numpy_loop(transition, inputs, start):
    """The definition, one step at a time in complex128; time leads, any batch axes follow."""
    state, states = start.astype(complex), []
    for t in range(len(inputs)):
        state = (transition[t] if transition.ndim == 2 else transition) * state + inputs[t]
        states.append(state)
    return np.stack(states)


def numpy_gradients(transition, inputs, start, cotangent):
    """Adjoint of the loop for a real loss: a_t = g_t + conj(λ_{t+1}) a_{t+1}, all in complex128."""
    states = numpy_loop(transition, inputs, start)
    previous = np.concatenate([start[None], states[:-1]])
    varying = transition.ndim == 2
    adjoint = np.zeros_like(start, dtype=complex)
    of_inputs = np.zeros_like(states)
    of_transition = np.zeros_like(states)
    for t in reversed(range(len(inputs))):
        adjoint = adjoint + cotangent[t]
        of_inputs[t] = adjoint
        of_transition[t] = np.conj(previous[t]) * adjoint
        adjoint = np.conj(transition[t] if varying else transition) * adjoint
    if not varying:
        of_transition = of_transition.sum(axis=tuple(range(of_transition.ndim - 1)))
    return of_transition, of_inputs, adjoint


def problem(seed, horizon, batch, modes, *, varying=False, dtype="float64"):
    """Random inputs, start and a spectrum inside or on the unit circle, rounded to `dtype`."""
    rng = np.random.default_rng(seed)

    def complex_normal(*shape):
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)

    shape = (horizon, modes) if varying else (modes,)
    radius = np.where(rng.random(shape) < 0.2, 1.0, rng.uniform(0.0, 1.0, shape))
    transition = radius * np.exp(1j * rng.uniform(-np.pi, np.pi, shape))
    values = transition, complex_normal(horizon, *batch, modes), complex_normal(*batch, modes)
    complex_dtype = np.dtype(f"complex{2 * np.dtype(dtype).itemsize * 8}")
    return tuple(value.astype(complex_dtype) for value in values)


@partial(jax.jit, static_argnames="method")
def run(method, transition, inputs, start):
    """The library's result for batch axes between time and modes, by vmap at the call site."""

    def one(c_real, c_imag, x_real, x_imag):
        return linear_recurrence((transition.real, transition.imag), (c_real, c_imag), (x_real, x_imag), method=method)

    function = one
    for _ in range(inputs.ndim - 2):
        function = jax.vmap(function, in_axes=(1, 1, 0, 0), out_axes=1)
    real, imag = function(inputs.real, inputs.imag, start.real, start.imag)
    return real + 1j * imag


def assert_close(actual, expected, tolerance):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    scale = np.linalg.norm(expected) + 1e-300
    assert np.linalg.norm(actual - expected) / scale < tolerance


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("horizon", HORIZONS)
@given(seed=st.integers(0, 2**32 - 1), shape=st.sampled_from([(1,), (3, 4), (2, 2, 3)]))
@settings(max_examples=12)
def test_values_equal_a_numpy_loop(method, dtype, tolerance, horizon, seed, shape):
    with jax.enable_x64(dtype == "float64"):
        arrays = problem(seed, horizon, shape[:-1], shape[-1], dtype=dtype)
        result = run(method, *(jnp.asarray(array) for array in arrays))
        assert result.real.dtype == dtype
    assert_close(result, numpy_loop(*arrays), tolerance)


@partial(jax.jit, static_argnames="method")
def gradients_of(method, parts, cotangent):
    """Gradients of Σ Re(conj(g) x) with respect to (real, imaginary) of λ, inputs and start."""

    def loss(parts):
        states = run(method, *(real + 1j * imag for real, imag in parts))
        return jnp.sum(states.real * cotangent.real + states.imag * cotangent.imag)

    return jax.grad(loss)(parts)


# A batch shape for each horizon: every pair would compile for minutes.
@pytest.mark.parametrize(
    ("horizon", "shape"),
    [
        *zip(HORIZONS[:-1], [(1,), (2, 3), (2, 2, 3), (3, 4), (2, 3)], strict=True),
        pytest.param(HORIZONS[-1], (2,), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@given(seed=st.integers(0, 2**32 - 2))
@settings(max_examples=8)
def test_gradients_equal_a_numpy_loop(method, dtype, tolerance, horizon, shape, seed):
    with jax.enable_x64(dtype == "float64"):
        arrays = problem(seed, horizon, shape[:-1], shape[-1], dtype=dtype)
        cotangent = problem(seed + 1, horizon, shape[:-1], shape[-1], dtype=dtype)[1]
        parts = tuple((jnp.asarray(a.real), jnp.asarray(a.imag)) for a in arrays)
        gradients = gradients_of(method, parts, jnp.asarray(cotangent))
    for (real, imag), expected in zip(gradients, numpy_gradients(*arrays, cotangent), strict=True):
        assert_close(np.asarray(real) + 1j * np.asarray(imag), expected, tolerance)


@pytest.mark.parametrize("method", ["scan", "associative"])
@given(seed=st.integers(0, 2**32 - 1), horizon=st.sampled_from([1, 2, 100]), batch=st.sampled_from([(), (3,)]))
def test_one_transition_per_step_equals_a_numpy_loop(method, seed, horizon, batch):
    with jax.enable_x64(True):
        arrays = problem(seed, horizon, batch, 3, varying=True)
        assert_close(run(method, *(jnp.asarray(array) for array in arrays)), numpy_loop(*arrays), 1e-9)


@pytest.mark.parametrize("method", ["scan", "associative"])
def test_gradients_with_one_transition_per_step(method):
    with jax.enable_x64(True):
        transition, inputs, start = problem(5, 20, (), 3, varying=True)
        cotangent = problem(6, 20, (), 3)[1]

        def loss(parts):
            states = run(method, *(real + 1j * imag for real, imag in parts))
            return jnp.sum(states.real * cotangent.real + states.imag * cotangent.imag)

        gradients = jax.grad(loss)(tuple((a.real, a.imag) for a in (transition, inputs, start)))
    for (real, imag), expected in zip(gradients, numpy_gradients(transition, inputs, start, cotangent), strict=True):
        assert_close(np.asarray(real) + 1j * np.asarray(imag), expected, 1e-9)


@given(count=st.sampled_from([1, 2, 3, 100, 129]), radius=st.floats(0.0, 1.0), angle=st.floats(-4.0, 4.0))
def test_powers(count, radius, angle):
    with jax.enable_x64(True):
        base = radius * np.exp(1j * angle)
        real, imag = powers((jnp.asarray([base.real]), jnp.asarray([base.imag])), count)
    actual = np.asarray(real) + 1j * np.asarray(imag)
    assert_close(actual[:, 0], base ** np.arange(1, count + 1), 1e-12)


def test_auto_takes_the_fastest_measured_method_at_the_nearest_horizon(monkeypatch):
    table = {"cpu": {"10": {"scan": 2.0, "fft": 1.0}, "1000": {"scan": 1.0, "associative": 3.0, "fft": 2.0}}}
    monkeypatch.setattr(recurrence, "_timings", lambda: table)
    assert fastest_method("cpu", 5) == "fft"
    assert fastest_method("cpu", 90) == "fft"
    assert fastest_method("cpu", 120) == "scan"
    assert fastest_method("cpu", 5, varying=True) == "scan"
    assert fastest_method("an unmeasured platform", 100) == recurrence.UNMEASURED_DEFAULT


def test_the_shipped_measurement_covers_this_platform():
    horizons = sorted(int(horizon) for horizon in recurrence._timings()["cpu"])
    assert horizons[0] <= 10
    assert horizons[-1] >= 500
    assert fastest_method("cpu", 100) in METHODS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "fourier"}, "unknown recurrence method 'fourier'"),
        ({"inputs": np.zeros((0, 3), complex)}, "horizon is 0"),
        ({"method": "fft", "transition": np.zeros((5, 3), complex)}, "same duration"),
    ],
)
def test_bad_input(arguments, message, unchecked_shapes):
    full = {"transition": np.zeros(3, complex), "inputs": np.zeros((5, 3), complex), "method": "scan"} | arguments
    pairs = {k: (jnp.asarray(v.real), jnp.asarray(v.imag)) for k, v in full.items() if k != "method"}
    with pytest.raises(KoopaxError, match=message):
        linear_recurrence(pairs["transition"], pairs["inputs"], (jnp.zeros(3), jnp.zeros(3)), method=full["method"])
