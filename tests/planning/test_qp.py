"""The convex program against another solver, against LQR, and in closed loops that must keep their limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import koopax
from koopax import DynamicsModel, Episodes, KoopaxError
from koopax.bench.qp import clarabel_solution
from koopax.envs.plants import PLANTS
from koopax.planning.choice import QuadraticCost, make_planner, make_qp
from koopax.planning.constraints import Constraints, limits_of
from koopax.planning.control import plan_many
from koopax.planning.convex import DAQP, PENALTY, ROUNDING_WEIGHT, Program, Quadratic
from koopax.planning.linearity import is_linear
from koopax.planning.lqr import riccati
from koopax.planning.protocol import Box
from koopax.planning.qp import QP, HostSolver, QPConfig
from koopax.planning.trained import control_trained
from koopax.planning.true_model import TrueModel

FREE = Constraints()
BOX = Box(-1.0, 1.0)
STEP = PLANTS["double-integrator"].step
A = np.array([[1.0, STEP], [0.0, 1.0]])
B = np.array([[STEP**2 / 2], [STEP]])


def planner(constraints=FREE, *, box=BOX, goal=(0.0, 0.0), horizon=20, linear=True, plant="double-integrator"):
    size = len(PLANTS[plant].start)
    goal = goal if len(goal) == size else (0.0,) * size
    return QP.for_cost(
        TrueModel(plant),
        jnp.asarray(goal, float),
        jnp.asarray(PLANTS[plant].state_cost),
        jnp.full(1, PLANTS[plant].action_cost),
        limits_of(constraints, box, size, 1, goal=goal),
        box=box,
        config=QPConfig(horizon=horizon),
        linear=linear,
    )


def closed_loop(chosen, start, steps=60, plant="double-integrator"):
    """States and actions of a plant under the planner, and what each plan said of its violation."""
    decide = jax.jit(lambda s, state: chosen.plan(TrueModel(plant), s, state, key=jax.random.key(0)))
    state, now = chosen.init(1), np.asarray(start, float)
    states, actions, violations = [now], [], []
    for _ in range(steps):
        decision = decide(jnp.asarray(now, jnp.float32), state)
        state = decision.state
        now = PLANTS[plant].advance(now, float(decision.action[0]))
        states.append(now)
        actions.append(float(decision.action[0]))
        violations.append(float(state.violation))
    return np.array(states), np.array(actions), np.array(violations)


def test_without_limits_it_is_lqr_over_the_same_horizon():
    chosen = planner(box=Box(-1e4, 1e4), horizon=15)
    Q, R = jnp.diag(jnp.array([1.0, 0.1])), 0.01 * jnp.eye(1)
    _, gain = riccati(jnp.asarray(A), jnp.asarray(B), Q, R, steps=15)
    state = jnp.array([0.7, -0.3])
    found = chosen.plan(TrueModel("double-integrator"), state, chosen.init(1), key=jax.random.key(0))
    np.testing.assert_allclose(found.action, -gain @ state, rtol=2e-3)


def random_program(seed, hard):
    """A program of a random stable system with limits that bind."""
    rng = np.random.default_rng(seed)
    horizon, states, actions = 6, 2, 2
    limits = limits_of(
        Constraints((-0.4, 0.5, -np.inf, 0.3), (-0.8, 0.7), (-0.5, 0.4), hard=hard), BOX, states, actions
    )
    one = np.ones(actions)
    program = Program(horizon, rng.normal(size=states) * 0.2, np.ones(states), 0.1 * one, 0 * one, one, limits)
    matrix, inputs = 0.8 * np.linalg.qr(rng.normal(size=(states, states)))[0], rng.normal(size=(states, actions))
    jacobian = np.zeros((horizon, states, horizon, actions))
    offset, state = np.zeros((horizon, states)), rng.normal(size=states) * (0.2 if hard else 0.6)
    for t in range(horizon):
        state = matrix @ state
        offset[t] = state
        for k in range(t + 1):
            jacobian[t, :, k] = np.linalg.matrix_power(matrix, t - k) @ inputs
    return program, jacobian.reshape(horizon, states, -1), offset, rng.uniform(-0.5, 0.5, actions)


def posed(program, jacobian, offset, last):
    P, rows = program.matrices(jacobian)
    q, low, high = program.vectors(jacobian, offset, last)
    return Quadratic(P, q, rows, low, high)


def merit(program, jacobian, offset, plan):
    """Cost and exact penalty of a plan."""
    states = offset + np.einsum("tsi,i->ts", jacobian, plan.ravel())
    outside = np.maximum(program.limits.state_low - states, states - program.limits.state_high)
    slack = np.maximum(outside, 0.0)[:, program.limits.bounded] / program.scale
    cost = np.sum(program.state_cost * (states - program.goal) ** 2) + np.sum(program.action_cost * plan**2)
    return cost + program.unit * (PENALTY * slack.sum() + ROUNDING_WEIGHT * (slack**2).sum())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_soft_bounds_are_what_slacks_make_of_them(seed, hard):
    """DAQP, which keeps the slacks by itself, against Clarabel on the program that has them among its variables."""
    program, jacobian, offset, last = random_program(seed, hard)
    solver = HostSolver(program, jacobian)
    plan, dual, feasible = solver(None, offset, np.zeros((6, 2)), np.zeros(program.rows), last)
    expected = clarabel_solution(posed(program, jacobian, offset, last), program.soft)
    assert bool(feasible) == (expected is not None)
    assert dual.shape == (program.rows,)
    if expected is None:
        assert hard
        return
    wanted = expected[: program.actions].reshape(6, 2)
    np.testing.assert_allclose(plan, wanted, atol=1e-4)
    assert merit(program, jacobian, offset, plan) == pytest.approx(merit(program, jacobian, offset, wanted), rel=1e-4)
    changes = np.diff(np.concatenate([last[None], plan]), axis=0)
    assert changes.min() > -0.5 - 1e-5
    assert changes.max() < 0.4 + 1e-5
    if hard:
        predicted = offset + np.einsum("tsi,i->ts", jacobian, plan.ravel())
        assert program.limits.violation(predicted).max() < 1e-5


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=5), st.booleans(), st.integers(0, 1_000))
def test_programs_in_a_row_are_solved_as_if_each_were_the_first(seeds, hard, guess):
    """Whatever was solved before, infeasible ones included, and whatever is said to be active."""
    solver, rng = None, np.random.default_rng(guess)
    for seed in seeds:
        program, *rest = random_program(seed, hard)
        solver = DAQP(program.soft) if solver is None else solver
        asked = posed(program, *rest)
        found = solver.solve(asked, rng.integers(-1, 2, program.rows).astype(float))
        alone = DAQP(program.soft).solve(asked, np.zeros(program.rows))
        assert found.solved == alone.solved
        if found.solved:
            np.testing.assert_allclose(found.x, alone.x, atol=1e-6)
            np.testing.assert_array_equal(np.sign(found.dual), np.sign(alone.dual))


def test_programs_whose_actions_alone_are_bounded():
    """As many as follow each other for one decision of a model that is not linear."""
    chosen = planner(box=Box(-4.0, 4.0), horizon=25, linear=False, plant="upright")
    states, actions, _ = closed_loop(chosen, (0.3, 0.3), 80, plant="upright")
    assert np.abs(actions).max() <= 4.0
    np.testing.assert_allclose(states[-1], 0.0, atol=0.02)


LIMITED = Constraints(state_bounds=(-2.0, 1.0, -0.4, 0.4), rate_bounds=(0.3,))


def test_a_closed_loop_keeps_its_limits_and_reaches_its_goal_at_the_bound():
    states, actions, violations = closed_loop(planner(LIMITED, goal=(1.0, 0.0)), (-1.0, 0.0))
    assert states[:, 0].max() < 1.0 + 1e-3
    assert np.abs(states[:, 1]).max() < 0.4 + 1e-3
    assert np.abs(np.diff(actions)).max() < 0.3 + 1e-5
    assert violations.max() < 1e-3
    np.testing.assert_allclose(states[-1], [1.0, 0.0], atol=0.01)
    unlimited, _, _ = closed_loop(planner(goal=(1.0, 0.0)), (-1.0, 0.0))
    assert np.abs(unlimited[:, 1]).max() > 0.6  # the limits did bind


def test_a_sequence_of_programs_on_a_linear_model_is_the_one_program():
    together = [
        closed_loop(planner(LIMITED, goal=(1.0, 0.0), linear=linear), (-1.0, 0.0), 15) for linear in (True, False)
    ]
    np.testing.assert_allclose(together[0][1], together[1][1], atol=5e-3)


def test_a_sequence_of_programs_balances_a_nonlinear_plant_within_limits():
    limits = Constraints(state_bounds=(-0.3, 0.3, -1.0, 1.0), action_bounds=(-4.0, 4.0))
    chosen = planner(limits, box=Box(-4.0, 4.0), horizon=25, linear=False, plant="upright")
    states, _, _ = closed_loop(chosen, (0.25, 0.3), 80, plant="upright")
    assert np.abs(states[:, 0]).max() < 0.3 + 1e-3
    np.testing.assert_allclose(states[-1], 0.0, atol=0.02)


def test_soft_bounds_that_cannot_be_kept_are_left_as_little_as_can_be():
    """At 0.4 a second towards a wall 0.01 away, full brakes go v²/2 − 0.01 = 0.07 too far, in steps a little more."""
    walled = Constraints(state_bounds=(-2.0, 1.0, -np.inf, np.inf))
    states, actions, violations = closed_loop(planner(walled, goal=(1.0, 0.0)), (0.99, 0.4), 10)
    braking = [0.99]
    velocity = 0.4
    while velocity > 0:
        braking.append(braking[-1] + velocity * STEP - STEP**2 / 2)
        velocity -= STEP
    assert actions[0] == pytest.approx(-1.0, abs=1e-3)
    assert violations[0] == pytest.approx(max(braking) - 1.0, abs=2e-3)
    assert states[:, 0].max() == pytest.approx(max(braking), abs=2e-3)


def test_hard_bounds_that_cannot_be_kept_are_infeasible():
    walled = Constraints(state_bounds=(-2.0, 1.0, -np.inf, np.inf), hard=True)
    chosen = planner(walled, goal=(1.0, 0.0))
    controller = koopax.Controller(TrueModel("double-integrator"), chosen, sizes=(2, 1))
    assert np.isfinite(controller.act([0.0, 0.0])).all()
    with pytest.raises(KoopaxError, match=r"no plan of 20 steps from the state \(0\.99, 0\.4\) keeps it within hard"):
        controller.act([0.99, 0.4])


def test_environments_side_by_side_are_decided_as_alone():
    chosen, model = planner(LIMITED, goal=(1.0, 0.0)), TrueModel("double-integrator")
    starts = jnp.array([[-1.0, 0.0], [0.5, 0.3]])
    states = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), chosen.init(1))
    actions, _ = plan_many(chosen, model, starts, states, key=jax.random.key(0))
    for start, action in zip(starts, actions, strict=True):
        alone = chosen.plan(model, start, chosen.init(1), key=jax.random.key(1)).action
        np.testing.assert_allclose(action, alone, atol=1e-3)


def pushes(seed=0):
    """Random pushes of the double integrator."""
    rng, states, actions = np.random.default_rng(seed), [], []
    for _ in range(20):
        own, now = rng.uniform(-1, 1, (30, 1)), [rng.uniform(-1, 1, 2)]
        for action in own:
            now.append(A @ now[-1] + B @ action)
        states.append(np.array(now))
        actions.append(own)
    return Episodes.from_arrays(states, actions)


@pytest.fixture(scope="module")
def fitted():
    data = pushes()
    model = DynamicsModel.create("dmdc", data, key=jax.random.key(0))
    return koopax.fit(model, data, horizon=10, progress=False).model


def test_koopax_plan_keeps_the_limits_of_an_environment_with_a_fitted_model(fitted):
    seen = []
    found = control_trained(
        fitted,
        "koopax/DoubleIntegrator-v0",
        planner="qp",
        episodes=2,
        seed=0,
        cost=QuadraticCost(goal=(0.9, 0.0), state_cost=(1.0, 0.1)),
        constraints=Constraints(state_bounds=(-np.inf, 0.95, -0.6, 0.6), rate_bounds=(0.5,)),
        watch=lambda progress: seen.append(progress.taken.next_observations),
    )
    assert found.settings["linear"]
    assert found.violation < 1e-3
    assert found.planned_violation < 1e-3
    np.testing.assert_allclose(seen[-1], [[0.9, 0.0]] * 2, atol=0.01)


def test_which_models_are_linear(fitted):
    data = pushes()

    def created(**options):
        return DynamicsModel.create("koopman", data, key=jax.random.key(0), latent_size=4, **options)

    assert is_linear(fitted)
    assert is_linear(fitted, 1)  # an affine encoder may be returned to
    straight = created(decoder_hidden=(), action_hidden=())
    assert is_linear(straight)
    assert not is_linear(straight, 1)
    assert not is_linear(created(decoder_hidden=(4,), action_hidden=()))
    assert not is_linear(created(decoder_hidden=(), action_hidden=(4,)))
    planner = make_qp(straight, BOX, QuadraticCost(goal=(0.0, 0.0)), FREE, horizon=3)
    assert planner.linear
    # The slopes at the goal are those of any other state and plan.
    seen, plan = planner.seen(straight), jnp.array([[0.5], [-0.2], [0.1]])
    start = seen.encode(jnp.array([0.7, -0.4]), horizon=3)
    slopes = jax.jacobian(lambda v: seen.rollout(start, v[:, None])[1:, 0])(plan)
    np.testing.assert_allclose(slopes.reshape(3, 2, 3), planner.solver.jacobian, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state_bounds": (1.0, -1.0, -1.0, 1.0)}, "contradict each other"),
        ({"state_bounds": (-1.0, 1.0)}, "--state-bounds has 2 numbers, but this model needs 4"),
        ({"state_bounds": (-1.0, 0.5, -1.0, 1.0)}, "--goal has 0.8 as component 0, which is outside"),
        ({"state_bounds": (float("nan"), 1.0, -1.0, 1.0)}, "contradict each other"),
        ({"action_bounds": (2.0, 3.0)}, "nothing in common with the environment's -1 … 1"),
        ({"rate_bounds": (0.1, 0.2)}, "leave out 0"),
    ],
)
def test_bad_limits(fitted, changes, message):
    with pytest.raises(KoopaxError, match=message) as caught:
        make_planner("qp", fitted, BOX, cost=QuadraticCost(goal=(0.8, 0.0)), constraints=Constraints(**changes))
    assert "\n" not in str(caught.value)


def test_bounds_are_for_the_planner_that_keeps_them(fitted):
    with pytest.raises(KoopaxError, match="bounds are kept by planner 'qp', not 'icem'"):
        control_trained(
            fitted,
            "koopax/DoubleIntegrator-v0",
            planner="icem",
            episodes=1,
            seed=0,
            constraints=Constraints(action_bounds=(-0.5, 0.5)),
        )
    with pytest.raises(KoopaxError, match="has no setting 'samples'"):
        make_planner("qp", fitted, BOX, cost=QuadraticCost(goal=(0.8, 0.0)), samples=4)
