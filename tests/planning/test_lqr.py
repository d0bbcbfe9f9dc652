"""LQR against SciPy, against simulation, and on a learned model's latent system."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from koopax import DynamicsModel, Episodes, KoopaxError
from koopax.planning.choice import QuadraticCost, make_lqr
from koopax.planning.lqr import LQR, Affine, linearise, lqr, riccati
from koopax.planning.protocol import Box

SIZE, INPUTS = 4, 2
solve = jax.jit(lqr)


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    with jax.enable_x64(True):
        yield


def random_system(seed, radius):
    """A, B, Q, R with A's spectral radius as given: above 1 it is unstable."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(SIZE, SIZE))
    A *= radius / np.max(np.abs(np.linalg.eigvals(A)))
    root, rest = rng.normal(size=(SIZE, SIZE)), rng.normal(size=(INPUTS, INPUTS))
    R = rest @ rest.T + 0.1 * np.eye(INPUTS)
    return tuple(map(jnp.asarray, (A, rng.normal(size=(SIZE, INPUTS)), root @ root.T, R)))


@given(st.integers(0, 10_000), st.floats(0.1, 1.5))
def test_equals_scipy(seed, radius):
    A, B, Q, R = random_system(seed, radius)
    P, K = solve(A, B, Q, R)
    expected = scipy.linalg.solve_discrete_are(A, B, Q, R)
    np.testing.assert_allclose(P, expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())
    closed = A - B @ np.asarray(K)
    assert np.max(np.abs(np.linalg.eigvals(closed))) < 1


def test_the_finite_horizon_converges_to_it():
    system = random_system(3, 1.1)
    P, K = solve(*system)
    errors = [np.max(np.abs(riccati(*system, steps=steps)[0] - P)) for steps in (1, 5, 100)]
    assert errors[0] > errors[1] > errors[2]
    long, gain = riccati(*system, steps=100)
    np.testing.assert_allclose(long, P, rtol=1e-8)
    np.testing.assert_allclose(gain, K, rtol=1e-8)


def test_cost_to_go_is_what_a_simulation_costs():
    A, B, Q, R = random_system(5, 1.1)
    P, _ = riccati(A, B, Q, R, steps=3, final=jnp.zeros((SIZE, SIZE)))
    start = x = np.ones(SIZE)
    cost = 0.0
    for left in (3, 2, 1):
        _, K = riccati(A, B, Q, R, steps=left, final=jnp.zeros((SIZE, SIZE)))
        a = -np.asarray(K) @ x
        cost += x @ Q @ x + a @ R @ a
        x = A @ x + B @ a
    np.testing.assert_allclose(start @ np.asarray(P) @ start, cost)


def test_an_affine_system_is_driven_to_a_goal_that_is_no_equilibrium_of_its_coordinates():
    """s = x + c with a constant drift b: the controller must hold the goal against the drift."""
    step = 0.1
    A, B = np.array([[1, step], [0, 1.0]]), np.array([[0.0], [step]])
    b, c = np.array([0.0, 0.05]), np.array([2.0, 0.0])
    goal = jnp.array([1.0, 0.0])
    system = Affine(*map(jnp.asarray, (A, B, b, np.eye(2), c)))
    planner = LQR.for_cost(system, goal, jnp.eye(2), 1e-3 * jnp.eye(1), horizon=200, box=Box(-5.0, 5.0))
    x = np.array([0.0, 0.0])
    for _ in range(150):
        action = np.clip(-np.asarray(planner.gain) @ np.append(x, 1.0), -5, 5)
        x = A @ x + B @ action + b
    np.testing.assert_allclose(x + c, goal, atol=0.02)


def linear_data():
    rng = np.random.default_rng(0)
    return Episodes.from_arrays(
        [rng.normal(size=(30, 3)) * [1, 2, 3] + 1] * 4, [rng.normal(size=(29, 2)) + 0.5] * 4, [np.zeros(29)] * 4
    )


def test_linearising_a_model_with_linear_parts_is_exact_everywhere():
    model = DynamicsModel.create(
        "koopman", linear_data(), key=jax.random.key(0), latent_size=6, decoder_hidden=(), action_hidden=()
    )
    system = linearise(model, jnp.ones(3), jnp.ones(2))
    state, actions = jnp.array([2.0, -1.0, 0.5]), jnp.array([[1.0, -2.0], [0.3, 4.0]])
    x = model.encode(state)
    predicted = model.rollout(state, actions).states
    for action, expected in zip(actions, predicted, strict=True):
        x = system.A @ x + system.B @ action + system.b
        np.testing.assert_allclose(system.C @ x + system.c, expected, rtol=1e-5, atol=1e-5)


def test_a_hidden_layer_leaves_the_koopman_transition_exact():
    model = DynamicsModel.create("koopman", linear_data(), key=jax.random.key(0), latent_size=6, action_history=1)
    here, there = linearise(model, jnp.zeros(3)), linearise(model, 5 * jnp.ones(3))
    np.testing.assert_allclose(here.A, there.A)
    assert np.max(np.abs(here.C - there.C)) > 1e-6


def test_its_plan_equals_its_gain_and_respects_bounds():
    model = DynamicsModel.create("koopman", linear_data(), key=jax.random.key(0), latent_size=6)
    box = Box(jnp.array([-0.1, 0.2]), jnp.array([0.1, 0.3]))
    planner = make_lqr(model, box, QuadraticCost(goal=(1.0, 2.0, 3.0)), horizon=20)
    assert planner.in_states  # a network is linearised from state to state
    state = jnp.array([9.0, -9.0, 9.0])
    decision = planner.plan(planner.seen(model), state, planner.init(2), key=jax.random.key(0))
    wanted = -planner.gain @ jnp.append(state, 1.0)
    np.testing.assert_allclose(decision.action, jnp.clip(wanted, box.low, box.high), rtol=1e-5)
    broken = planner.plan(planner.seen(model), state * jnp.nan, planner.init(2), key=jax.random.key(0))
    np.testing.assert_allclose(broken.action, [0.0, 0.25], atol=1e-6)


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (QuadraticCost(), "needs a goal state"),
        (QuadraticCost(goal=(1.0,)), "--goal has 1 numbers"),
        (QuadraticCost(goal=(0.0,) * 3, state_cost=(1.0, -1.0, 1.0)), "use 0 or more"),
        (QuadraticCost(goal=(0.0,) * 3, action_cost=(0.0,)), "positive"),
        (QuadraticCost(goal=(0.0,) * 3, action_cost=(1.0,) * 3), "--action-cost has 3 numbers"),
    ],
)
def test_bad_costs(cost, message):
    model = DynamicsModel.create("koopman", linear_data(), key=jax.random.key(0), latent_size=6)
    with pytest.raises(KoopaxError, match=message):
        make_lqr(model, Box(), cost)


def test_a_core_with_a_memory_is_refused():
    model = DynamicsModel.create("dssm", linear_data(), key=jax.random.key(0), latent_size=4, layers=1, state_size=2)
    with pytest.raises(KoopaxError, match="remembers more"):
        linearise(model, jnp.zeros(3))
