"""The analysis against spectra whose eigenvalues are known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from koopax import DynamicsModel, Episodes
from koopax._errors import KoopaxError, KoopaxWarning
from koopax.evaluation.spectrum import analyse_spectrum, mode_importance
from koopax.models.koopman import KoopmanCore


def core(spectrum, modes=4, **options):
    return KoopmanCore(2 * modes, 2, spectrum=spectrum, spectrum_options=options, key=jax.random.key(0))


def test_known_half_life_and_period():
    built = core("multiscale")
    # A mode with phase π/2 (raw 0) per step has a period of 4 steps.
    built = eqx.tree_at(lambda c: c.spectrum.raw_phase, built, jnp.zeros(4))
    analysis = analyse_spectrum(built)
    np.testing.assert_allclose(analysis.period, 4.0, rtol=1e-6)
    after_half_life = np.abs(analysis.discrete) ** analysis.half_life
    np.testing.assert_allclose(after_half_life, 0.5, rtol=1e-4)
    np.testing.assert_allclose(np.exp(analysis.continuous * analysis.time_step), analysis.discrete, rtol=1e-5)
    assert 0 < analysis.stability_margin < 1
    assert not analysis.aliased.any()
    table = analysis.table()
    assert list(table["half_life"]) == sorted(analysis.half_life, reverse=True)


def test_rotations_never_decay():
    analysis = analyse_spectrum(core("unitary"))
    assert (analysis.half_life == np.inf).all()
    assert analysis.stability_margin == pytest.approx(0, abs=1e-6)
    assert repr(analysis) == "SpectrumAnalysis(4 modes, the slowest with a half-life of inf steps, 0 aliased)"


def test_a_mode_that_does_not_turn_has_no_period():
    analysis = analyse_spectrum(core("paper", modes=1))
    assert analysis.continuous.imag.tolist() == [0.0]
    assert np.isinf(analysis.period).all()


def test_aliased_modes_are_counted_and_warned_of():
    built = core("paper", modes=64)
    built = eqx.tree_at(lambda c: c.spectrum.frequency, built, jnp.pi * 1e4 * jnp.arange(64))
    with pytest.warns(KoopaxWarning, match="63 of 64 modes"):
        analysis = analyse_spectrum(built)
    assert analysis.aliased.sum() == 63
    assert (analysis.period[1:] >= 2 - 1e-6).all()  # what a step can show


def test_other_objects_have_no_spectrum(unchecked_shapes):
    with pytest.raises(KoopaxError, match="has no eigenvalues"):
        analyse_spectrum(eqx.nn.Identity())  # type: ignore[arg-type]


def test_a_reward_that_the_decoder_reads_is_no_motion():
    """However large the decoder's reward output is, the importance of modes is that of the states alone."""
    rng = np.random.default_rng(0)
    data = Episodes.from_arrays([rng.normal(size=(21, 3))], [rng.normal(size=(20, 1))], [rng.normal(size=20)])
    model = DynamicsModel.create("koopman", data, latent_size=8, reward_hidden=None, key=jax.random.key(0))
    last = model.decoder.layers[-1].weight
    louder = eqx.tree_at(lambda m: m.decoder.layers[-1].weight, model, last.at[-1].multiply(100.0))
    found, same = (mode_importance(m, data, horizon=5, windows=4) for m in (model, louder))
    np.testing.assert_allclose(found, same, rtol=1e-6)
    states = eqx.tree_at(lambda m: m.decoder.layers[-1].weight, model, last.at[0].multiply(100.0))
    assert not np.allclose(found, mode_importance(states, data, horizon=5, windows=4), rtol=0.01)


def test_a_models_spectrum_is_its_cores():
    rng = np.random.default_rng(0)
    data = Episodes.from_arrays([rng.normal(size=(21, 3))], [rng.normal(size=(20, 1))], [rng.normal(size=20)])
    model = DynamicsModel.create("koopman", data, latent_size=8, key=jax.random.key(0))
    np.testing.assert_array_equal(model.spectrum().half_life, analyse_spectrum(model.core).half_life)
    with pytest.raises(KoopaxError, match="has no eigenvalues"):
        DynamicsModel.create("gru", data, latent_size=8, key=jax.random.key(0)).spectrum()
