"""Spectra stay stable for every parameter value; the zero-order hold is exact, also at zero."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koopax._errors import KoopaxError
from koopax.models.spectrum import SPECTRA, discretise, held_exponential_mean, make_spectrum

KEY = jax.random.key(0)


@pytest.fixture(params=SPECTRA)
def name(request):
    return request.param


@given(raw=st.floats(-1e30, 1e30), seed=st.integers(0, 1000))
@pytest.mark.parametrize("name", SPECTRA)
def test_no_parameter_value_makes_a_mode_grow(name, raw, seed):
    spectrum = make_spectrum(name, 8, key=jax.random.key(seed))
    arrays, rest = eqx.partition(spectrum, eqx.is_array)
    moved = eqx.combine(jax.tree.map(lambda leaf: jnp.full_like(leaf, raw), arrays), rest)
    discrete = discretise(moved)
    assert bool(jnp.all(moved.rates()[0] <= 0))
    assert bool(jnp.all(jnp.isfinite(jnp.stack([*discrete.transition, *discrete.gain]))))
    assert float(jnp.max(jnp.hypot(*discrete.transition))) <= 1 + 1e-6
    assert 0 < float(moved.time_step()) <= 1


@given(raw=st.floats(-1e30, 1e30), growth=st.floats(1e-3, 0.5))
def test_no_parameter_value_makes_a_mode_grow_beyond_its_bound(raw, growth):
    spectrum = make_spectrum("multiscale", 4, key=KEY, growth=growth)
    moved = eqx.tree_at(lambda own: own.raw_decay, spectrum, jnp.full(4, raw, jnp.float32))
    discrete = discretise(moved)
    assert bool(jnp.all(jnp.isfinite(jnp.stack([*discrete.transition, *discrete.gain, *moved.rates()]))))
    assert float(jnp.max(jnp.hypot(*discrete.transition))) <= np.exp(growth) * (1 + 1e-5)
    assert float(jnp.max(jnp.hypot(*discretise(spectrum).transition))) < 1  # all modes begin by decaying
    assert spectrum.growth == growth


@given(seed=st.integers(0, 1000), growth=st.floats(1e-3, 0.5))
def test_room_to_grow_moves_no_mode(seed, growth):
    """The same eigenvalues and nearly the same input scale, of modes that fade within its memory."""
    stable = make_spectrum("multiscale", 8, key=jax.random.key(seed))
    bounded = stable.with_growth(growth)
    for before, after in zip(discretise(stable).transition, discretise(bounded).transition, strict=True):
        np.testing.assert_allclose(after, before, atol=2e-5)
    fading = -np.asarray(stable.rates()[0]) > 0.05
    np.testing.assert_allclose(bounded.input_scale()[fading], stable.input_scale()[fading], rtol=1e-3)


@given(magnitude=st.floats(0.2, 1.1), angle=st.floats(0.01, 3.1))
def test_unstable_eigenvalues_are_put_where_they_belong(magnitude, angle):
    wanted = np.array([magnitude * np.exp(1j * angle)])
    placed = make_spectrum("multiscale", 3, key=KEY, growth=0.12).with_eigenvalues(wanted)
    real, imag = discretise(placed).transition
    np.testing.assert_allclose(complex(real[0], imag[0]), wanted[0], rtol=2e-4)


@pytest.mark.parametrize("growth", [-0.1, 0.6, float("nan")])
def test_bad_growth(growth):
    with pytest.raises(KoopaxError, match="growth is"):
        make_spectrum("multiscale", 4, key=KEY, growth=growth)


def exact_mean(z):
    """(eᶻ − 1)/z and its derivative from the power series in extended precision, or the quotient where it is safe."""
    z = np.clongdouble(z)
    if abs(z) < 2:
        value, slope, term = np.clongdouble(0), np.clongdouble(0), np.clongdouble(1)
        for n in range(60):
            term = term / (n + 1) if n == 0 else term * z / (n + 1)  # zⁿ / (n + 1)!
            value += term
            slope += (n + 1) * term / (n + 2)  # d/dz z^{n+1} / (n + 2)! = (n + 1) zⁿ / (n + 2)!
        return value, slope
    return (np.exp(z) - 1) / z, (np.exp(z) * (z - 1) + 1) / z**2


@given(log_size=st.floats(-30, 3), angle=st.floats(np.pi / 2, 3 * np.pi / 2))
def test_zero_order_hold_is_exact_in_value_and_gradient(log_size, angle):
    z = 10.0**log_size * np.exp(1j * angle)
    value, slope = exact_mean(z)
    with jax.enable_x64(True):
        pair = jnp.asarray(z.real), jnp.asarray(z.imag)
        real, imag = held_exponential_mean(pair)
        # For an analytic function d(real)/dx + i d(imag)/dx is its complex derivative.
        by_real = jax.jacrev(lambda x: jnp.stack(held_exponential_mean((x, pair[1]))))(pair[0])
        by_imag = jax.jacrev(lambda y: jnp.stack(held_exponential_mean((pair[0], y))))(pair[1])
    # The quotient's argument itself is only known to one ulp, which costs |z| ulps in the exponential's phase.
    tolerance = 1e-12 * max(1.0, abs(z))
    assert abs(float(real) + 1j * float(imag) - complex(value)) <= tolerance * abs(complex(value)) + 1e-15
    assert abs(by_real[0] + 1j * by_real[1] - complex(slope)) <= tolerance * abs(complex(slope)) + 1e-14
    assert abs(by_imag[0] + 1j * by_imag[1] - 1j * complex(slope)) <= tolerance * abs(complex(slope)) + 1e-14


def test_zero_order_hold_at_exactly_zero():
    zero = jnp.zeros(())
    assert [float(part) for part in held_exponential_mean((zero, zero))] == [1.0, 0.0]
    by_real, by_imag = jax.jacrev(lambda x, y: jnp.stack(held_exponential_mean((x, y))), argnums=(0, 1))(zero, zero)
    np.testing.assert_allclose(by_real, [0.5, 0.0], atol=1e-7)
    np.testing.assert_allclose(by_imag, [0.0, 0.5], atol=1e-7)


def test_equal_durations_equal_no_durations(name):
    spectrum = make_spectrum(name, 6, key=KEY)
    regular = discretise(spectrum)
    timed = discretise(spectrum, jnp.ones(4))
    for one, many in zip(jax.tree.leaves(regular), jax.tree.leaves(timed), strict=True):
        np.testing.assert_allclose(many, jnp.broadcast_to(one, (4, 6)), rtol=1e-6)


def test_a_long_step_equals_two_short_ones_under_a_held_input(name):
    """Zero-order hold: with the input held, 2 Δt in one step and in two steps lead to the same place."""
    with jax.enable_x64(True):
        spectrum = make_spectrum(name, 6, key=KEY)
        once = discretise(spectrum, jnp.asarray([2.0]))
        half = discretise(spectrum)
        λ, gain = (half.transition[0] + 1j * half.transition[1]), (half.gain[0] + 1j * half.gain[1])
        np.testing.assert_allclose((once.transition[0] + 1j * once.transition[1])[0], λ**2, rtol=1e-10)
        np.testing.assert_allclose((once.gain[0] + 1j * once.gain[1])[0], λ * gain + gain, rtol=1e-10)


def test_the_paper_spectrum_starts_as_published():
    spectrum = make_spectrum("paper", 5, key=KEY)
    decay, frequency = spectrum.rates()
    np.testing.assert_allclose(decay, -0.2)
    np.testing.assert_allclose(frequency, np.pi * np.arange(5), rtol=1e-6)
    steps = [float(make_spectrum("paper", 2, key=jax.random.key(i)).time_step()) for i in range(50)]
    assert 1e-3 <= min(steps) < 4e-3
    assert 3e-2 < max(steps) <= 1e-1


def test_the_paper_decay_is_learnable_only_where_it_says_so():
    leaves = {n: len(jax.tree.leaves(make_spectrum(n, 4, key=KEY))) for n in ("paper", "paper-learnable")}
    assert leaves == {"paper": 2, "paper-learnable": 3}
    np.testing.assert_allclose(make_spectrum("paper-learnable", 4, key=KEY).rates()[0], -0.2, rtol=1e-6)


def test_a_mirrored_spectrum_has_conjugate_halves():
    decay, frequency = make_spectrum("paper", 6, key=KEY, mirrored=True).rates()
    np.testing.assert_allclose(frequency[:3], -frequency[3:])
    np.testing.assert_allclose(decay[:3], decay[3:])


@pytest.mark.parametrize("name", ["paper", "paper-random"])
def test_frequencies_are_scaled_by_alpha(name):
    once, half = (make_spectrum(name, 6, key=KEY, frequency_scale=scale).rates()[1] for scale in (1.0, 0.5))
    np.testing.assert_allclose(half, 0.5 * once, rtol=1e-6)
    assert float(once[-1]) > 0


def test_multiscale_never_aliases_and_starts_on_every_scale():
    spectrum = make_spectrum("multiscale", 256, key=KEY)
    decay, phase = spectrum.rates()
    assert 0 < float(phase.min()) < float(phase.max()) < np.pi
    half_lives = np.log(2) / -np.asarray(decay)
    assert half_lives.min() < 2
    assert half_lives.max() > 500
    assert abs(np.corrcoef(np.log(half_lives), phase)[0, 1]) < 0.2


@pytest.mark.parametrize("name", ["multiscale"])
def test_modes_have_unit_stationary_variance(name):
    discrete = discretise(make_spectrum(name, 64, key=KEY))
    size = np.hypot(*discrete.transition)
    gain = np.hypot(*discrete.gain)
    np.testing.assert_allclose(gain**2 / (1 - size**2), 1.0, rtol=1e-3)


def test_unitary_modes_rotate():
    np.testing.assert_allclose(np.hypot(*discretise(make_spectrum("unitary", 64, key=KEY)).transition), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "modes", "options", "message"),
    [
        ("papre", 4, {}, "did you mean 'paper'"),
        ("paper", 3, {"mirrored": True}, "latent_size that 4 divides"),
        ("paper", 4, {"decay": -0.1}, "would let latents grow"),
        ("paper", 4, {"frequency_scale": 0.0}, "positive α"),
        ("multiscale", 4, {"decay": 0.1}, "does not take these options"),
    ],
)
def test_bad_input(name, modes, options, message):
    with pytest.raises(KoopaxError, match=message):
        make_spectrum(name, modes, key=KEY, **options)
