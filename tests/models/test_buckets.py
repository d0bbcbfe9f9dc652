"""Rollouts of any length and number through a bounded number of programs: the same predictions as without."""

import logging
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koopax import DynamicsModel, Episodes, KoopaxError
from koopax.models import buckets
from koopax.models.buckets import Programs, padded_number, padded_steps
from koopax.models.ensemble import Ensemble
from koopax.models.intervals import Calibration

CORES = ("koopman", "mlp", "gru", "transformer", "dssm")


def make(core, **options):
    rng = np.random.default_rng(0)
    data = Episodes.from_arrays(rng.normal(size=(2, 9, 3)), rng.normal(size=(2, 8, 2)), rng.normal(size=(2, 8)))
    return DynamicsModel.create(core, data, latent_size=8, key=jax.random.key(0), **options)


@given(st.integers(1, 100_000))
def test_a_bucket_holds_what_goes_in(size):
    assert size <= padded_steps(size) <= 2 * size
    assert size <= padded_number(size) < 2 * size
    assert padded_steps(padded_steps(size)) == padded_steps(size)
    assert padded_number(padded_number(size)) == padded_number(size)


def test_there_are_few_buckets():
    assert sorted({padded_steps(n) for n in range(1, 1001)}) == [1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000]
    assert len({padded_number(n) for n in range(1, 1001)}) == 11


@pytest.mark.quick("koopman")
@pytest.mark.parametrize(("core", "every"), [*((core, None) for core in CORES), ("koopman", 3)])
def test_predictions_are_those_of_the_exact_shape(core, every):
    model, rng = make(core), np.random.default_rng(1)
    states, actions = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((5, 3), (5, 7, 2)))
    options = {"reencode_every": every, "return_latents": True}
    exact = jax.vmap(lambda s, a: model.rollout(s, a, **options))(states, actions)
    leaves = jax.tree.leaves  # without the bounds of intervals, which nobody asks for here
    for found, expected in zip(leaves(model.rollouts(states, actions, **options)), leaves(exact), strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
    if core == "koopman":
        one = model.rollout(states[2], actions[2], **options)
        for found, expected in zip(leaves(one), [array[2] for array in leaves(exact)], strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_durations_and_past_actions_go_along():
    model, rng = make("koopman", action_history=2), np.random.default_rng(1)
    state, actions = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((3,), (7, 2)))
    durations = jnp.asarray(rng.uniform(0.5, 2, size=7), jnp.float32)
    for past in (1, 5):
        before = jnp.asarray(rng.normal(size=(past, 2)), jnp.float32)
        found = model.rollout(state, actions, past_actions=before, durations=durations)
        exact = jax.jit(lambda b: model.rollout(state, actions, past_actions=b, durations=durations))(before)
        np.testing.assert_allclose(found.states, exact.states, rtol=2e-4, atol=2e-5)


def test_shapes_share_programs_and_old_ones_go(monkeypatch):
    programs = Programs(most=4)
    monkeypatch.setattr(buckets, "PROGRAMS", programs)
    model, other = make("koopman"), jax.tree.map(lambda leaf: leaf + 1, make("koopman"))
    for horizon in (6, 7, 8, 9, 10):
        model.rollout(jnp.zeros(3), jnp.zeros((horizon, 2)))
        other.rollout(jnp.zeros(3), jnp.zeros((horizon, 2)))
    assert (len(programs), programs.made) == (1, 1)
    for horizon in (1, 2, 3, 5):
        model.rollout(jnp.zeros(3), jnp.zeros((horizon, 2)))
    assert (len(programs), programs.made) == (4, 5)
    make("mlp").rollout(jnp.zeros(3), jnp.zeros((5, 2)))
    assert programs.made == 6


def banded(model):
    return model.with_calibration(Calibration.unit(10, 4))


@pytest.mark.filterwarnings("ignore::koopax._errors.KoopaxWarning")
@pytest.mark.parametrize(
    ("model", "options"),
    [
        (lambda: make("koopman"), {}),
        (lambda: make("koopman", history=3), {"past": True}),
        (lambda: banded(make("koopman")), {"level": 0.5}),
        (lambda: banded(make("koopman-stochastic")), {"level": 0.5}),
        (lambda: banded(Ensemble([make("mlp"), make("mlp")])), {"level": 0.5}),
    ],
    ids=["plain", "history", "intervals", "stochastic", "ensemble"],
)
def test_a_new_shape_in_a_known_bucket_compiles_nothing_at_all(model, options, caplog):
    model, past = model(), options.pop("past", False)

    def predict(batch, horizon):
        states = np.zeros((batch, 2, 3) if past else (batch, 3))
        known = {"past_actions": np.zeros((batch, batch, 2))} if past else {}
        model.rollouts(states, np.zeros((batch, horizon, 2)), **known, **options)
        one = {name: array[0] for name, array in known.items()}
        found = model.rollout(states[0].tolist(), np.zeros((horizon, 2)), **one, **options)
        assert isinstance(found.states, jax.Array)
        assert found.states.shape == (horizon, 3)

    predict(8, 10)
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for shape in ((5, 7), (6, 8), (7, 9), (8, 6)):
            predict(*shape)
    assert not [line for line in caplog.messages if "ompil" in line]


def test_threads_may_share_a_model():
    model, rng = make("koopman"), np.random.default_rng(1)
    jobs = [(rng.normal(size=(b, 3)), rng.normal(size=(b, t, 2))) for b in (1, 3) for t in (1, 4)] * 4
    expected = [np.asarray(model.rollouts(*job).states) for job in jobs]
    buckets.PROGRAMS._found.clear()
    found = [None] * len(jobs)

    def work(own):
        for number in own:
            found[number] = np.asarray(model.rollouts(*jobs[number]).states)

    threads = [threading.Thread(target=work, args=(range(k, len(jobs), 4),)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@settings(max_examples=5)
@given(st.integers(1, 4))
def test_a_batch_of_wrong_shapes_is_one_sentence(size):
    model = make("koopman")
    with pytest.raises(KoopaxError, match="first axes of"):
        model.rollouts(np.zeros((size, 3)), np.zeros((size + 1, 4, 2)))
    with pytest.raises(KoopaxError, match="first axes of"):
        model.rollouts(np.zeros((0, 3)), np.zeros((0, 4, 2)))
    with pytest.raises(KoopaxError, match="horizon of 0"):
        model.rollouts(np.zeros((size, 3)), np.zeros((size, 0, 2)))
    with pytest.raises(KoopaxError, match="state has shape"):
        model.rollouts(np.zeros((size, 2)), np.zeros((size, 4, 2)))
