"""Training begins where regression ends: the linear start, and the choices that are made on validation episodes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import koopax
from koopax.data.windows import fixed_windows
from koopax.evaluation.prediction import prediction_error
from koopax.models import DynamicsModel
from koopax.training import choice
from koopax.training.linear_start import can_start_linear, diagonal_form, linear_start
from koopax.training.regression import regress

SMALL = {"latent_size": 16, "encoder_hidden": (8,), "decoder_hidden": (8,), "action_hidden": (8,)}
PATHS = {"linear_paths": True, "linear_path": True}


def linear_system(episodes=6, steps=40, noise=0.0, seed=0):
    """A damped oscillation, a decay and an offset, driven by one action."""
    rng = np.random.default_rng(seed)
    turn = 0.97 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    matrix = np.block([[turn, np.zeros((2, 1))], [np.array([[0.1, 0.0, 0.9]])]])
    states, actions = [], []
    for _ in range(episodes):
        own, state = rng.uniform(-1, 1, (steps, 1)), [rng.normal(size=3)]
        for action in own:
            state.append(matrix @ state[-1] + np.array([0.0, 0.5, 0.2]) * action[0] + 0.1)
        states.append(np.array(state) + noise * rng.normal(size=(steps + 1, 3)))
        actions.append(own)
    return koopax.Episodes.from_arrays(states, actions)


@pytest.mark.quick("1")
@pytest.mark.parametrize("history", [1, 3])
def test_training_begins_where_regression_ends(history):
    train, test = linear_system(noise=0.05), linear_system(seed=1)
    model = DynamicsModel.create("koopman", train, key=jax.random.key(0), **SMALL, **PATHS, action_history=history)
    started = linear_start(model, train)
    regression, _ = regress(DynamicsModel.create("dmdc", train, key=jax.random.key(0)), train, None, horizon=1)
    actions = jnp.asarray(test[0].actions)
    expected = regression.rollout(test[0].observations[0], actions, reencode_every="never").states
    np.testing.assert_allclose(started.rollout(test[0].observations[0], actions).states, expected, atol=2e-4)
    error = prediction_error(started, test, horizon=30).state.normalised
    assert error < 0.1 * prediction_error(model, test, horizon=30).state.normalised


def test_a_system_that_is_linear_needs_no_training():
    train, test = linear_system(), linear_system(seed=1)
    model = DynamicsModel.create("koopman", train, key=jax.random.key(0), **SMALL, **PATHS)
    run = koopax.fit(model, train, horizon=20, steps=0, progress=False)
    assert prediction_error(run.model, test, horizon=30).state.normalised < 1e-9


def test_only_models_with_linear_paths_start_linear():
    train = linear_system(episodes=2)
    plain = DynamicsModel.create("koopman", train, key=jax.random.key(0), **SMALL)
    narrow = DynamicsModel.create("koopman", train, key=jax.random.key(0), **SMALL | {"latent_size": 4}, **PATHS)
    assert not can_start_linear(plain)
    assert not can_start_linear(narrow)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_the_diagonal_form_is_the_system(size, seed):
    rng = np.random.default_rng(seed)
    matrix, inputs = rng.normal(size=(size, size)), rng.normal(size=(size, 3))
    modes = diagonal_form(matrix, inputs)
    if modes is None:
        return
    state, told = rng.normal(size=size), rng.normal(size=3)
    after = modes.eigenvalues * (modes.encode @ state) + modes.inputs @ told
    np.testing.assert_allclose(np.real(modes.decode @ after), matrix @ state + inputs @ told, rtol=1e-6, atol=1e-6)


def test_a_matrix_without_a_diagonal_form_is_left_alone():
    assert diagonal_form(np.array([[1.0, 1.0], [0.0, 1.0]]), np.zeros((2, 2))) is None


@pytest.mark.parametrize("every", [2, 3, 7, 20])
def test_choosing_step_by_step_sees_what_a_rollout_does(every):
    episodes = linear_system()
    model = DynamicsModel.create("koopman", episodes, key=jax.random.key(0), **SMALL, action_history=3)
    (batch,) = fixed_windows(episodes, 20, 8, seed=0, batch_size=8)
    windows = jax.tree.map(jnp.asarray, batch)
    found = choice._errors_with_returns(model, windows, jnp.asarray(every))[0]
    expected = jax.vmap(lambda s, a: model.rollout(s, a, reencode_every=every).states, (0, 1), 1)(
        windows.states[0], windows.actions
    )
    missed = (expected - windows.states[1:]) / model.normaliser.state_std
    assert float(found) == pytest.approx(float(jnp.mean(missed**2)), rel=1e-4)


def test_returns_are_chosen_stored_and_used(tmp_path):
    """A decoder and an encoder that undo each other make every return harmless; a core that drifts makes it pay."""
    episodes = linear_system()
    started = linear_start(DynamicsModel.create("koopman", episodes, key=jax.random.key(0), **SMALL, **PATHS), episodes)
    chosen, error = choice.choose_returns(started, episodes)
    assert chosen.config.reencode_every is None  # nothing to gain, and returns cost time
    assert error < 1e-8
    # Latents that nobody reads don't matter, so an offset that grows in the modes shows only where it is not undone.
    drifting = eqx.tree_at(lambda m: m.core.spectrum.raw_decay, started, started.core.spectrum.raw_decay + 3.0)
    kept, _ = choice.choose_returns(drifting, episodes)
    kept.save(tmp_path / "m.koopax")
    loaded = koopax.load_model(tmp_path / "m.koopax")
    assert loaded.config.reencode_every == kept.config.reencode_every


@pytest.mark.slow
def test_windows_are_chosen_by_trials_and_recorded(tmp_path):
    train, validation = linear_system(), linear_system(episodes=2, seed=1)
    model = DynamicsModel.create("koopman", train, key=jax.random.key(0), **SMALL)
    run = koopax.fit(model, train, validation=validation, steps=20, batch_size=4, out=tmp_path / "run", progress=False)
    assert [trial.horizon for trial in run.trials] == [40, 20, 5]
    best = min(run.trials, key=lambda trial: trial.error)
    assert run.config.horizon in {trial.horizon for trial in run.trials if trial.error <= best.error / choice.WORTH}
    loaded = koopax.Run.load(tmp_path / "run")
    assert loaded.trials == run.trials
    assert loaded.model.config.reencode_every == run.model.config.reencode_every
    more = koopax.fit(
        model, train, validation=validation, steps=24, batch_size=4, out=tmp_path / "run", resume=True, progress=False
    )
    assert more.step == 24
    assert more.config.horizon == run.config.horizon


@pytest.mark.slow
def test_what_is_said_is_not_chosen():
    train, validation = linear_system(), linear_system(episodes=2, seed=1)
    settings = {"validation": validation, "steps": 2, "batch_size": 4, "progress": False}
    model = DynamicsModel.create("koopman", train, key=jax.random.key(0), **SMALL)
    run = koopax.fit(model, train, horizon=10, reencode_every=3, **settings)
    assert run.trials == ()
    assert run.model.config.reencode_every == 3
    assert koopax.fit(model, train, horizon=10, reencode_every="never", **settings).model.config.reencode_every is None
    run = koopax.fit(model.with_reencoding(4), train, horizon=10, **settings)
    assert run.model.config.reencode_every == 4
