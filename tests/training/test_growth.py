"""Modes grow where the data asks for it, within bounds that training keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import koopax
from koopax import DynamicsModel, Episodes, KoopaxError, KoopaxWarning
from koopax.envs.plants import PLANTS
from koopax.experiments.systems import simulate
from koopax.training.choice import MOST_GAIN, growth_of, longest_window
from koopax.training.growth import asked_growth, choose_growth
from koopax.training.linear_start import linear_start

SMALL = {"latent_size": 16, "encoder_hidden": (8,), "decoder_hidden": (8,), "action_hidden": (8,)}
PATHS = {"linear_paths": True, "linear_path": True}
FIT = {"batch_size": 8, "steps": 3, "progress": False}


def falling(name="upright", episodes=30, steps=30, seed=0):
    """Random pushes on an unstable plant."""
    plant, rng = PLANTS[name], np.random.default_rng(seed)
    states = [rng.uniform(-1, 1, (episodes, len(plant.start))) * plant.start]
    actions = rng.uniform(-plant.force, plant.force, (steps, episodes))
    for action in actions:
        states.append(plant.advance(states[-1], action))
    return Episodes.from_arrays(
        np.stack(states, 1).astype(np.float32), actions.T[..., None].astype(np.float32), step_seconds=plant.step
    )


def model_of(data, **options):
    return DynamicsModel.create("koopman", data, key=jax.random.key(0), **SMALL, **PATHS, **options)


def largest(model):
    return np.abs(model.spectrum().discrete).max()


@pytest.fixture(scope="module")
def data():
    return falling()


@pytest.mark.slow
def test_an_unstable_plant_asks_for_growth_and_gets_it(data, tmp_path):
    """DMDc finds |λ| = 1.097 about upright; the model begins there, is trained and comes back from its files so."""
    run = koopax.fit(model_of(data), data, horizon=10, out=tmp_path / "run", **FIT)
    assert largest(run.model) == pytest.approx(np.exp(0.03 * np.sqrt(9.81)), abs=0.02)
    assert 0.09 < growth_of(run.model) < 0.2
    assert all(np.isfinite(line["loss"]) for line in run.metrics)
    loaded = koopax.load_model(tmp_path / "run" / "model.koopax")
    assert largest(loaded) == largest(run.model)
    assert loaded.config == run.model.config
    found = run.model.spectrum()
    assert found.unstable.sum() == 1
    assert found.stability_margin < -0.05
    assert found.to_json()["unstable"] == 1
    assert found.table()["unstable"][0]
    assert found.table()["doubling_time"][0] == pytest.approx(np.log(2) / np.log(largest(run.model)))
    resumed = koopax.fit(model_of(data), data, horizon=10, out=tmp_path / "run", resume=True, **FIT | {"steps": 4})
    assert growth_of(resumed.model) == growth_of(run.model)


def test_stable_systems_and_limit_cycles_do_not():
    assert asked_growth(simulate("linear", 10, 60, seed=0)) == 0
    assert asked_growth(simulate("van-der-pol", 20, 100, seed=0)) == 0  # DMDc finds |λ| = 1.001 there


def test_who_says_how_far_modes_may_grow_is_heard(data):
    stable, config = choose_growth(model_of(data, growth=0.0), data, koopax.training.TrainConfig(horizon=100), None)
    assert growth_of(stable) == 0
    assert config.horizon == 100
    assert largest(linear_start(stable, data)) <= 1
    with pytest.raises(KoopaxError, match=r"growth is 0\.2, so over windows of 100 steps .* horizon of 25 or less"):
        koopax.fit(model_of(data, growth=0.2), data, horizon=100, **FIT)


def test_windows_are_bounded_where_modes_may_grow(data):
    model = model_of(data, growth=0.4)
    assert longest_window(model, data) == 12
    with pytest.warns(KoopaxWarning, match="the data is of an unstable system"):
        grown, config = choose_growth(model_of(data), data, koopax.training.TrainConfig(horizon=100), None)
    assert config.horizon * growth_of(grown) <= MOST_GAIN


def test_gradients_grow_by_no_more_than_the_bound(data):
    """Theorem 3.1 with μ > 0: |∂x_k/∂x_0| ≤ exp(k μ_max)."""
    core = linear_start(model_of(data, growth=0.15), data).core
    actions = jnp.zeros((20, 1))
    jacobian = jax.jacobian(lambda x: core.rollout(x, actions))(jnp.zeros(core.latent_size))
    gains = jnp.linalg.norm(jacobian, ord=2, axis=(1, 2))
    assert bool(jnp.all(gains <= jnp.exp(0.15 * jnp.arange(1, 21)) * (1 + 1e-4)))
    assert float(gains[-1]) > 2  # and they do grow


def test_growth_is_not_for_eigenvalues_that_depend_on_the_action(data):
    with pytest.raises(KoopaxError, match="bilinear or adaptive"):
        model_of(data, growth=0.1, bilinear=True)
