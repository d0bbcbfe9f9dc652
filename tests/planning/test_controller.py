"""The one thing that a control loop calls: equal to planning, and nothing is compiled while it runs."""

import jax
import jax.monitoring
import numpy as np
import pytest

import koopax
from koopax import DynamicsModel, Episodes, KoopaxError
from koopax.planning.choice import PLANNERS, QuadraticCost
from koopax.planning.controller import Controller

SIZES = {"latent_size": 8, "encoder_hidden": (6,), "decoder_hidden": (6,), "action_embedding": 3, "action_hidden": (4,)}
QUICK = {
    "mppi": {"horizon": 3, "samples": 8, "elites": 2, "iterations": 1},
    "cem": {"horizon": 3, "samples": 8, "elites": 2, "iterations": 1},
    "icem": {"horizon": 3, "samples": 8, "elites": 2, "iterations": 1},
    "gradient": {"horizon": 3, "restarts": 2, "iterations": 2},
    "lqr": {"cost": QuadraticCost(goal=(0.0, 0.0))},
    "qp": {"cost": QuadraticCost(goal=(0.0, 0.0)), "horizon": 3, "iterations": 1},
}


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    states, actions, rewards = rng.normal(size=(20, 2)), rng.normal(size=(19, 1)), rng.normal(size=19)
    data = Episodes.from_arrays([states] * 3, [actions] * 3, [rewards] * 3)
    return DynamicsModel.create("koopman", data, key=jax.random.key(0), **SIZES, action_history=2)


@pytest.fixture
def compilations():
    """Names of the events by which JAX tells that it compiles."""
    told = []

    def listen(name, seconds, **_):
        if "backend_compile" in name:
            told.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield told
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize("name", PLANNERS)
def test_nothing_is_compiled_in_the_loop(model, compilations, name):
    controller = Controller(model, name, bounds=(-1, 1), **QUICK[name])
    assert compilations  # the listener hears
    compilations.clear()
    rng, actions = np.random.default_rng(0), []
    for _ in range(2):
        controller.reset()
        for _ in range(3):
            actions.append(controller.act(rng.normal(size=2)))
        assert controller.violation == 0
    assert not compilations
    assert np.all(np.abs(actions) <= 1)
    assert np.shape(actions) == (6, 1)


def test_it_decides_as_the_planner_does(model):
    controller = koopax.Controller(model, "cem", bounds=(-1, [1.0]), seed=3, **QUICK["cem"])
    planner, state = controller.planner, controller.planner.init(1)
    past = np.full((1, 1), np.nan, np.float32)
    for step in range(3):
        observation = np.array([0.3, -0.2]) * step
        key = jax.random.fold_in(jax.random.key(3), step)
        expected = planner.plan(model, observation.astype(np.float32), state, key=key, past_actions=past)
        state, past = expected.state, np.asarray(expected.action)[None]
        np.testing.assert_allclose(controller.act(observation), expected.action, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"planner": "icem"}, "needs the bounds of the actions"),
        ({"planner": "icem", "bounds": (1, -1)}, r"bounds are \(1, -1\)"),
        ({"planner": "icm", "bounds": (-1, 1)}, "unknown planner 'icm'"),
        ({"planner": "lqr", "bounds": (-1, 1)}, "needs a goal"),
    ],
)
def test_bad_settings(model, arguments, message):
    with pytest.raises(KoopaxError, match=message):
        Controller(model, **arguments)


def test_bad_observations(model):
    controller = Controller(model, "lqr", bounds=(-1, 1), **QUICK["lqr"])
    with pytest.raises(KoopaxError, match=r"shape \(3,\), but this controller's have \(2,\)"):
        controller.act(np.zeros(3))
    with pytest.raises(KoopaxError, match="pass finite numbers"):
        controller.act([np.nan, 0.0])
