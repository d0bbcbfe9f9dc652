"""The one thing that a control loop calls: equal to planning, and nothing is compiled while it runs."""

from math import inf

import equinox as eqx
import jax
import jax.monitoring
import numpy as np
import pytest

import koopax
from koopax import DynamicsModel, Episodes, KoopaxError
from koopax.planning.choice import PLANNERS, QuadraticCost
from koopax.planning.constraints import Constraints
from koopax.planning.controller import Controller
from koopax.planning.learned import LearnedModel

SIZES = {"latent_size": 8, "encoder_hidden": (6,), "decoder_hidden": (6,), "action_embedding": 3, "action_hidden": (4,)}
QUICK = {
    "mppi": {"horizon": 3, "samples": 8, "elites": 2, "iterations": 1},
    "cem": {"horizon": 3, "samples": 8, "elites": 2, "iterations": 1},
    "icem": {"horizon": 3, "samples": 8, "elites": 2, "iterations": 1},
    "gradient": {"horizon": 3, "restarts": 2, "iterations": 2},
    "lqr": {"cost": QuadraticCost(goal=(0.0, 0.0))},
    "qp": {"cost": QuadraticCost(goal=(0.0, 0.0)), "horizon": 3, "iterations": 1},
}


def made(**options):
    rng = np.random.default_rng(0)
    states, actions, rewards = rng.normal(size=(20, 2)), rng.normal(size=(19, 1)), rng.normal(size=19)
    data = Episodes.from_arrays([states] * 3, [actions] * 3, [rewards] * 3)
    return DynamicsModel.create("koopman", data, key=jax.random.key(0), **SIZES | {"action_history": 2} | options)


@pytest.fixture(scope="module")
def model():
    return made()


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


@pytest.mark.quick("icem|qp|mppi")
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


LINEAR = {"decoder_hidden": (), "action_hidden": ()}
WITHIN = {
    "cost": QuadraticCost(goal=(0.0, 0.3)),
    "constraints": Constraints(state_bounds=(-0.5, 0.5, -inf, 0.6), rate_bounds=(0.4,)),
    "horizon": 4,
    "iterations": 2,
}


@pytest.mark.parametrize(
    ("name", "options", "settings"),
    [
        ("cem", {}, QUICK["cem"]),
        ("cem", {"history": 2}, QUICK["cem"]),
        ("qp", {}, WITHIN),
        ("qp", LINEAR, WITHIN),
        ("qp", LINEAR | {"history": 2}, WITHIN),
    ],
)
def test_it_decides_as_the_planner_does(name, options, settings):
    """With a history, of the newest observation, the one before it, and the action between them."""
    model, history = made(**options), options.get("history", 1)
    controller = koopax.Controller(model, name, bounds=(-1, [1.0]), seed=3, **settings)
    planner, state = controller.planner, controller.planner.init(1)
    plan = eqx.filter_jit(planner.plan)
    assert name != "qp" or planner.linear == ("decoder_hidden" in options)
    past, seen = np.full((1, 1), np.nan, np.float32), np.full((1, 2), np.nan, np.float32)
    for step in range(3):
        observation = np.array([0.3, -0.2], np.float32) * step
        told = {"past_actions": past} if history > 1 else {}
        observed = np.concatenate([seen, observation[None]]) if history > 1 else observation
        key = jax.random.fold_in(jax.random.key(3), step)
        expected = plan(model, observed, state, key=key, **told)
        state, past, seen = expected.state, np.asarray(expected.action)[None], observation[None]
        np.testing.assert_allclose(controller.act(observation), expected.action, atol=1e-5 if name == "cem" else 1e-3)
        if name == "qp":
            assert controller.violation == pytest.approx(float(state.violation), abs=1e-3)


def test_a_search_returns_to_the_encoder_as_it_is_told():
    model = made()
    told = Controller(model, "cem", bounds=(-1, 1), reencode_every=1, **QUICK["cem"])
    seen = Controller(LearnedModel(model, 1), told.planner, sizes=(2, 1))
    plain = Controller(model, told.planner)
    state = [0.3, -0.2]
    np.testing.assert_array_equal(told.act(state), seen.act(state))
    assert not np.array_equal(plain.act(state), seen.act(state))


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
