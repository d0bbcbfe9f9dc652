"""How training is cut up changes what it costs and nothing else: steps into programs, batches into microbatches."""

from dataclasses import asdict, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import koopax
from koopax import DynamicsModel, Episodes, KoopaxError
from koopax.data import load, save
from koopax.training import loop, programs
from koopax.training.config import TrainConfig
from koopax.training.loop import fresh_state
from koopax.training.microbatch import STEPS, fastest_microbatch
from koopax.training.programs import Programs
from koopax.training.state import optimiser, rising_adam


def noise(*, irregular=False):
    rng = np.random.default_rng(0)
    states = [rng.normal(size=(31, 3)) for _ in range(4)]
    actions, rewards = rng.normal(size=(4, 30, 2)), rng.normal(size=(4, 30))
    durations = list(rng.uniform(0.5, 2, size=(4, 30))) if irregular else None
    return Episodes.from_arrays(states, list(actions), list(rewards), durations=durations)


@pytest.fixture(scope="module", params=[False, True], ids=["regular", "irregular"])
def episodes(request):
    return noise(irregular=request.param)


def small(core, episodes):
    options = {"layers": 1} if core == "transformer" else {}
    return DynamicsModel.create(core, episodes, latent_size=8, encoder_hidden=(8,), key=jax.random.key(0), **options)


def parameters(model):
    return jax.tree.leaves(eqx.filter(model, model.trainable()))


def test_steps_in_one_program_are_steps_one_by_one(episodes, monkeypatch):
    settings = {"horizon": 6, "batch_size": 4, "steps": 11, "log_every": 4, "validate_every": 100}
    taken = []
    advance = Programs.advance
    monkeypatch.setattr(Programs, "advance", lambda *args: taken.append(len(args[2])) or advance(*args))
    monkeypatch.setattr(loop, "BLOCK_SECONDS", 1e9)  # taken for the time of the first step, too
    together = koopax.fit(small("koopman", episodes), episodes, **settings)
    assert taken == [1, 3, 4, 3]  # the first shows how long a step takes; after that, until the next line of metrics
    taken.clear()
    monkeypatch.setattr(loop, "BLOCK_SECONDS", 1e-9)
    alone = koopax.fit(small("koopman", episodes), episodes, **settings)
    assert taken == [1] * 11
    for left, right in zip(*(parameters(run.model) for run in (together, alone)), strict=True):
        np.testing.assert_array_equal(left, right)
    assert [line["loss"] for line in together.metrics] == [line["loss"] for line in alone.metrics]
    # As models of frames are trained: a program of one step, without a loop around it.
    monkeypatch.setattr(programs, "BLOCK_STEPS", 1)
    unlooped = koopax.fit(small("koopman", episodes), episodes, **settings)
    for left, right in zip(*(parameters(run.model) for run in (together, unlooped)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-3)  # Adam magnifies rounding


def test_a_time_limit_is_kept_and_leads_the_learning_rate(monkeypatch):
    """On a clock of our own, on which a step takes a second, and one in ten takes two."""
    episodes = noise()
    now, seen = [0.0], []

    def advance(self, state, progress, key):
        for _ in progress:
            now[0] += 2.0 if len(seen) % 10 == 0 else 1.0
            seen.append(progress[0])
        return state

    monkeypatch.setattr(Programs, "advance", advance)
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    run = koopax.fit(small("gru", episodes), episodes, horizon=6, batch_size=4, seconds=110.0)
    assert run.seconds == 110.0
    assert len(seen) == 100
    # Steps take nearly as long as the loop may look away, so it reads the clock after each.
    assert seen == sorted(seen)
    assert seen[0] == pytest.approx(0.0, abs=1e-6)
    assert seen[-1] == pytest.approx(109 / 110)


def test_what_is_in_float32_stays_so_where_float64_is_allowed():
    episodes = noise()
    model = small("koopman", episodes)
    with jax.enable_x64(True):
        run = koopax.fit(model, episodes, horizon=6, batch_size=4, steps=3)
    assert {leaf.dtype for leaf in parameters(run.model)} == {np.dtype(np.float32)}


def test_data_outside_of_memory_is_read_inside_the_program(tmp_path):
    episodes = noise()
    on_disk = load(save(episodes, tmp_path / "set.episodes"), memory_map=True)
    assert on_disk.is_memory_mapped
    settings = {"horizon": 6, "batch_size": 4, "steps": 5}
    runs = [koopax.fit(small("koopman", episodes), data, **settings) for data in (episodes, on_disk)]
    for left, right in zip(*(parameters(run.model) for run in runs), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-3)  # Adam magnifies rounding


@pytest.mark.parametrize("core", ["koopman", pytest.param("transformer", marks=pytest.mark.slow)])
def test_microbatches_have_the_gradient_of_their_batch(core, episodes):
    def step(together):
        config = TrainConfig(
            horizon=7, batch_size=6, loss_stride=3, learning_rate=1e-2, beta2=0.999, microbatch_size=together
        )
        programs, key = Programs(episodes, None, config), jax.random.key(1)
        state = fresh_state(small(core, episodes), config)
        programs.compile(state, key)
        return programs.advance(state, [0.5, 0.5], key)

    whole, found = step(6), step(2)
    for name, value in whole.sums.items():
        assert float(found.sums[name]) == pytest.approx(float(value), rel=1e-4), name
    for left, right in zip(*(jax.tree.leaves(s.optimiser) for s in (found, whole)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-6)


@given(batch=st.integers(1, 600), horizon=st.integers(1, 1000), stride=st.integers(1, 50))
def test_microbatches_divide_the_batch_and_are_neither_too_large_nor_tiny(batch, horizon, stride):
    config = TrainConfig(horizon=horizon, batch_size=batch, loss_stride=stride)
    size = fastest_microbatch(config, "koopman")
    most = max(1, STEPS["koopman"] * stride // horizon)
    assert batch % size == 0
    assert size == batch or size <= most
    assert 4 * size >= min(most, batch)
    assert fastest_microbatch(config, "gru") == batch
    # All steps of a window pass through the others, wherever the losses look.
    assert fastest_microbatch(config, "transformer") == fastest_microbatch(replace(config, loss_stride=1), "koopman")


def test_microbatches_that_do_not_divide_the_batch_are_refused():
    with pytest.raises(KoopaxError, match="microbatch_size is 5, which does not divide the batch of 16"):
        TrainConfig(batch_size=16, microbatch_size=5)


def test_settings_recorded_under_their_former_names_are_read():
    former = asdict(TrainConfig(batch_size=16, microbatch_size=4, remat_steps=20))
    former["windows_together"], former["time_chunk"] = former.pop("microbatch_size"), former.pop("remat_steps")
    assert TrainConfig.from_json(former) == TrainConfig(batch_size=16, microbatch_size=4, remat_steps=20)


def test_a_rising_memory_is_adams_with_the_decay_of_each_step():
    """Against the recursion in NumPy; from where 1 − t^−κ exceeds β₂ on, the decay is β₂."""
    gradients = np.random.default_rng(0).normal(size=(40, 3))
    transform = rising_adam(0.9, 0.8)
    state, m, v = transform.init(jnp.zeros(3)), np.zeros(3), np.zeros(3)
    for t, gradient in enumerate(gradients, start=1):
        update, state = transform.update(jnp.asarray(gradient), state)
        decay = min(0.9, 1 - t**-0.8)
        m, v = 0.9 * m + 0.1 * gradient, decay * v + (1 - decay) * gradient**2
        np.testing.assert_allclose(update, m / (1 - 0.9**t) / (np.sqrt(v) + 1e-8), rtol=1e-4)
    assert 1 - len(gradients) ** -0.8 > 0.9


@pytest.mark.parametrize(("steps", "shares"), [(0, (1, 1, 1, 1, 1)), (4, (0, 0.25, 0.5, 0.75, 1))])
def test_a_decay_that_rises_pulls_matrices_and_nothing_else(steps, shares):
    """Where gradients are zero, Adam moves nothing, and what is left of an update is the decay."""
    config = TrainConfig(beta2=0.999, beta2_rise=0.7, weight_decay=0.1, decay_steps=steps)
    parameters = {"matrix": jnp.full((2, 3), 2.0), "bias": jnp.ones(3)}
    transform = optimiser(config)
    state, still = transform.init(parameters), jax.tree.map(jnp.zeros_like, parameters)
    for share in (*shares, 1):
        update, state = transform.update(still, state, parameters)
        np.testing.assert_allclose(update["matrix"], 0.1 * share * parameters["matrix"], rtol=1e-6)
        np.testing.assert_array_equal(update["bias"], 0.0)


def test_a_decay_over_fewer_than_no_steps_is_refused():
    with pytest.raises(KoopaxError, match="decay_steps is -1: use 0 or more"):
        TrainConfig(decay_steps=-1)
