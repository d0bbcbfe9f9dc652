"""Every searching planner, on systems whose optimum is known, and what all of them promise."""

import logging
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from true_systems import (
    A,
    B,
    DoubleIntegrator,
    NaNAbove,
    Pendulum,
    Q,
    R,
    closed_loop,
    pendulum_optimum,
    riccati_solution,
)

from koopax import KoopaxError
from koopax.planning.choice import PLANNERS, REGULATORS, SEARCHES, make_search
from koopax.planning.control import many, plan_many
from koopax.planning.icem import coloured_noise
from koopax.planning.lqr import LQR, Affine
from koopax.planning.mppi import MPPI, MPPIConfig, elite_weights
from koopax.planning.protocol import Box, discounted_return, follow_policy, ranked, restarted
from koopax.planning.searching import Plan

every_search = pytest.mark.parametrize("name", SEARCHES)
# By how much a planner's cost may exceed the optimum's. MPPI acts on a drawn elite, so it never quite settles.
MARGIN = {"mppi": 0.10, "cem": 0.05, "icem": 0.05, "gradient": 0.02, "lqr": 0.01}
SWING_UP_MARGIN = 0.25  # a horizon of 20 steps does not see the whole swing, which takes about 50
INTEGRATOR = {
    "mppi": {"samples": 256, "elites": 32, "iterations": 10, "min_std": 0.01, "discount": 1.0},
    "cem": {"samples": 256, "elites": 16, "iterations": 10},
    "icem": {"samples": 64, "noise_exponent": 0.5},
    "gradient": {"samples": 4},
}
PENDULUM = {
    "mppi": {"samples": 256, "elites": 32, "discount": 1.0},
    "cem": {"samples": 256},
    "icem": {"samples": 64},
    "gradient": {"samples": 8},
}
STARTS = jnp.array([[1.0, 0.0], [-1.0, 1.0], [0.5, -1.5]])


def test_every_planner_is_tested():
    assert set(INTEGRATOR) == set(PENDULUM) == set(SEARCHES) == set(PLANNERS) - set(REGULATORS)


@pytest.mark.parametrize("name", [*SEARCHES, "lqr"])  # `qp` has tests/planning/test_qp.py
def test_double_integrator_costs_what_riccati_says(name):
    optimum = np.einsum("ni,ij,nj->n", STARTS, riccati_solution(), STARTS)
    if name == "lqr":
        parts = (A, B, np.zeros(2), np.eye(2), np.zeros(2))
        system = Affine(*(jnp.asarray(part, jnp.float32) for part in parts))
        planner = LQR.for_cost(system, jnp.zeros(2), jnp.asarray(Q), jnp.asarray(R), horizon=100, box=Box(-20.0, 20.0))
    else:
        planner = make_search(name, Box(-4.0, 4.0), horizon=10, **INTEGRATOR[name])
    cost = -closed_loop(planner, DoubleIntegrator(), STARTS, steps=60, key=jax.random.key(0))
    assert np.all(cost > 0.999 * optimum), "better than the best: the test is wrong"
    assert np.sum(cost) < (1 + MARGIN[name]) * np.sum(optimum)


@pytest.fixture(scope="module")
def swings():
    """Starts of a pendulum, hanging, at its side and near the top, and the best cost of 100 steps from each."""
    starts = jnp.array([[jnp.pi, 0.0], [2.0, 0.0], [-1.0, 1.0], [0.3, 0.0]])
    return starts, -pendulum_optimum(starts, steps=100)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "gradient" else pytest.mark.slow) for name in SEARCHES]
)
def test_pendulum_swings_up_as_dynamic_programming_does(name, swings):
    starts, optimum = swings
    planner = make_search(name, Box(-2.0, 2.0), horizon=20, **PENDULUM[name])
    cost = -closed_loop(planner, Pendulum(), starts, steps=100, key=jax.random.key(0))
    assert np.all(cost > 0.97 * optimum), "better than the best: the reference is too coarse"
    assert np.all(cost < (1 + SWING_UP_MARGIN) * optimum)


def test_lqr_holds_a_pendulum_near_the_top(swings):
    starts, optimum = swings
    model = Pendulum()
    A, B = jax.jacobian(model.step, argnums=(0, 1))(jnp.zeros(2), jnp.zeros(1))
    system = Affine(A, B, jnp.zeros(2), jnp.eye(2), jnp.zeros(2))
    costs = jnp.diag(jnp.array([1.0, 0.1])), 0.001 * jnp.eye(1)
    planner = LQR.for_cost(system, jnp.zeros(2), *costs, horizon=100, box=Box(-2.0, 2.0))
    cost = -closed_loop(planner, model, starts[3:], steps=100, key=jax.random.key(0))
    assert cost[0] < 1.05 * optimum[3]


# What all of them promise.

SMALL = {"horizon": 4, "samples": 16, "iterations": 2}
BOX = Box(jnp.array([-0.5]), jnp.array([2.0]))


@cache
def small(name):
    return make_search(name, BOX, **SMALL)


@eqx.filter_jit
def decide(planner, model, observation, state, key, explore, horizon):
    return planner.plan(model, observation, state, key=key, explore=explore, horizon=horizon)


def decision(name, model, observation=(-0.3, 0.0), *, seed=0, state=None, explore=False, horizon=4):
    """One decision of a small planner; everything that may be traced is."""
    planner = small(name)
    return decide(
        planner,
        model,
        jnp.asarray(observation),
        planner.init(1) if state is None else state,
        jax.random.key(seed),
        jnp.asarray(explore),
        jnp.asarray(horizon),
    )


@every_search
@pytest.mark.parametrize("limit", [1.0, -1.0])
def test_what_is_not_finite_ranks_last(name, limit):
    """With a limit of −1 no candidate is finite: the action must be, and within the bounds."""
    state = None
    for seed in range(6):
        found = decision(name, NaNAbove(jnp.asarray(limit)), seed=seed, state=state)
        state = found.state
        assert np.isfinite(found.action).all()
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
        assert -0.5 <= found.action[0] <= max(limit, 2.0 * (limit < 0))
    assert (found.diagnostics.nonfinite == 1) == (limit < 0)


@every_search
def test_actions_stay_within_any_box(name):
    """The best action is far outside; exploring adds noise on top of it."""
    for seed in range(8):
        found = decision(name, DoubleIntegrator(), (-1e3, 0.0), seed=seed, explore=True)
        assert -0.5 <= found.action[0] <= 2.0
    assert decision(name, DoubleIntegrator(), (-1e3, 0.0)).action[0] > 1.0


@every_search
def test_noise_only_when_exploring(name):
    model = DoubleIntegrator()
    plain, noisy = (decision(name, model, explore=explore) for explore in (False, True))
    assert plain.action != noisy.action
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), plain.state, noisy.state))


NARROW = {
    "mppi": {"max_std": 1e-4, "min_std": 1e-4},
    "cem": {"initial_std": 1e-4},
    "icem": {"initial_std": 1e-4},
    "gradient": {"initial_std": 1e-4, "learning_rate": 1e-6},
}


@every_search
def test_a_warm_start_goes_on_from_the_shifted_plan(name):
    """A search that hardly moves takes the second action of the last plan, and leaves a plan shifted by one."""
    planner = make_search(name, BOX, **SMALL, **NARROW[name])
    plan = jnp.array([0.9, 0.5, -0.3, 0.1])[:, None]
    first = jax.tree.map(
        lambda leaf: jnp.broadcast_to(plan if leaf.ndim == 2 else plan[:, None], leaf.shape), planner.init(1)
    )
    found = decide(planner, Pendulum(), jnp.zeros(2), first, jax.random.key(0), jnp.asarray(False), jnp.asarray(4))
    np.testing.assert_allclose(found.action, BOX.from_unit(plan[1]), atol=2e-3)
    np.testing.assert_allclose(found.state.mean[:, 0], [0.5, -0.3, 0.1, 0.0], atol=2e-3)


@every_search
def test_steps_beyond_the_horizon_do_not_count(name):
    """With h = 1 the plan beyond is empty, and a reward beyond may be anything."""
    found = decision(name, DoubleIntegrator(), horizon=1)
    assert np.all(jax.tree.leaves(found.state)[0][1:] == 0)
    assert np.any(jax.tree.leaves(found.state)[0][0] != 0)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("mppi", "icem") else pytest.mark.slow) for name in SEARCHES]
)
def test_several_environments_equal_one_at_a_time_with_one_compilation(name, caplog):
    planner, model = small(name), DoubleIntegrator()
    observations = jnp.array([[1.0, 0.0], [-1.0, 1.0], [0.0, 2.0]])
    states = many(planner.init(1), 3)
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for seed in range(3):
            before, key = states, jax.random.key(seed)
            actions, states = plan_many(planner, model, observations + 0.1 * seed, states, key=key)
        compiled = [r.getMessage() for r in caplog.records if "Finished XLA compilation" in r.getMessage()]
    assert sum("plan_many" in line for line in compiled) == 1
    for i, own_key in enumerate(jax.random.split(key, 3)):
        own = jax.tree.map(lambda leaf, i=i: leaf[i], before)
        alone = decide(planner, model, observations[i] + 0.2, own, own_key, jnp.asarray(False), jnp.asarray(4))
        np.testing.assert_allclose(alone.action, actions[i], rtol=1e-4, atol=1e-5)


def test_schedules_do_not_recompile():
    traced = []

    @eqx.filter_jit
    def scheduled(planner, model, observation, state, key, explore, horizon, min_std):
        traced.append(None)
        return planner.plan(model, observation, state, key=key, explore=explore, horizon=horizon, min_std=min_std)

    planner = MPPI(MPPIConfig(horizon=4, samples=16, elites=4, iterations=2))
    for horizon, min_std in ((1, 0.5), (2, 0.3), (4, 0.05)):
        found = scheduled(
            planner,
            DoubleIntegrator(),
            jnp.ones(2),
            planner.init(1),
            jax.random.key(0),
            jnp.asarray(horizon > 1),
            jnp.asarray(horizon),
            jnp.asarray(min_std),
        )
        assert found.diagnostics.std >= min_std
    assert len(traced) == 1


# Parts.


@eqx.filter_jit
def returns(model, start, actions, horizon):
    return discounted_return(model, start, actions, discount=0.9, horizon=horizon)


def test_return_counts_rewards_up_to_the_horizon_and_the_value_there():
    model, start = DoubleIntegrator(), np.array([1.0, -1.0])
    actions = np.random.default_rng(0).normal(size=(5, 3, 1))
    for horizon in (1, 3, 5):
        found = returns(model, jnp.asarray(start), jnp.asarray(actions), jnp.asarray(horizon))
        for candidate in range(3):
            state, expected = start, 0.0
            for t in range(horizon):
                action = actions[t, candidate]
                expected -= 0.9**t * (state @ Q @ state + action @ R @ action)
                state = A @ state + B @ action
            expected -= 0.9**horizon * state @ riccati_solution() @ state
            np.testing.assert_allclose(found[candidate], expected, rtol=1e-5)


@eqx.filter_jit
def mixed_returns(model, start, actions, horizon, mixing, value_points):
    options = {"horizon": horizon, "mixing": mixing, "value_points": value_points}
    return discounted_return(model, start, actions, discount=0.9, **options)


@settings(max_examples=20, deadline=None)
@given(
    mixing=st.floats(0.05, 1.0),
    horizon=st.integers(1, 6),
    points=st.sampled_from([1, 3, 6, (1, 2, 6), (2, 5, 9)]),
    seed=st.integers(0, 1000),
)
def test_mixed_return_is_the_mean_of_the_returns_of_its_lengths(mixing, horizon, points, seed):
    """With a value at every step it is G_λ; with fewer, those in between count for the next that has one."""
    model, start = DoubleIntegrator(), jnp.array([1.0, -1.0])
    actions = jnp.asarray(np.random.default_rng(seed).normal(size=(6, 2, 1)), jnp.float32)
    found = mixed_returns(model, start, actions, jnp.asarray(horizon), jnp.asarray(mixing), points)
    evenly = [-(-6 * i // points) for i in range(1, points + 1)] if isinstance(points, int) else points
    expected, valued = 0.0, [min(point, horizon) for point in evenly]
    for h in range(1, horizon + 1):
        weight = mixing ** (h - 1) * (1 - mixing if h < horizon else 1)
        length = next(point for point in valued if point >= h)
        expected = expected + weight * np.asarray(returns(model, start, actions, jnp.asarray(length)))
    np.testing.assert_allclose(found, expected, rtol=2e-4)


def test_what_lies_beyond_the_horizon_may_be_anything():
    actions = jnp.array([0.5, 0.5, 3.0])[:, None, None]
    found = discounted_return(NaNAbove(jnp.asarray(1.0)), jnp.zeros(2), actions, discount=1.0, horizon=jnp.asarray(2))
    np.testing.assert_allclose(found, [1.0])
    assert ranked(discounted_return(NaNAbove(jnp.asarray(1.0)), jnp.zeros(2), actions, discount=1.0))[0] == -jnp.inf


class Proposing(DoubleIntegrator):
    """Proposes one plan that nothing else would find: every action at the upper bound."""

    def pay(self, state, action):
        return 1e3 * jnp.prod(action == 2.0) - jnp.sum(action**2)

    def propose(self, start, *, horizon, count, key):
        return jnp.full((horizon, count, 1), 2.0)


def test_a_model_that_proposes_is_listened_to():
    planner = MPPI(MPPIConfig(horizon=4, samples=16, elites=4, proposals=2, max_std=0.1), BOX)
    key, no = jax.random.key(0), jnp.asarray(False)
    found = decide(planner, Proposing(), jnp.zeros(2), planner.init(1), key, no, jnp.asarray(4))
    np.testing.assert_allclose(found.action, [2.0])


def test_a_policy_is_followed_along_its_own_latents():
    actions = follow_policy(
        lambda now, key: -0.5 * now,
        lambda now, action: now + action,
        jnp.array([[8.0], [4.0]]),
        horizon=3,
        key=jax.random.key(0),
    )
    np.testing.assert_allclose(actions[..., 0], [[-4, -2], [-2, -1], [-1, -0.5]])


def test_elite_weights():
    weights = elite_weights(jnp.array([2.0, 1.0, -jnp.inf]), 0.5)
    np.testing.assert_allclose(weights, np.array([1, np.exp(-0.5), 0]) / (1 + np.exp(-0.5)), rtol=1e-6)
    np.testing.assert_allclose(elite_weights(jnp.full(4, -jnp.inf), 0.5), 0.25)


def test_fading_noise_leaves_later_steps_of_a_plan_as_they_were():
    plan = Plan(jnp.linspace(-0.8, 0.8, 6)[:, None])

    def moved(**settings):
        planner = make_search("mppi", Box(), horizon=6, samples=64, momentum=0.0, **settings)
        found = decide(planner, DoubleIntegrator(), jnp.array([1.0, 0.0]), plan, jax.random.key(0), False, 6)
        before = jnp.concatenate([plan.mean[1:], jnp.zeros((1, 1))])
        return np.abs(found.state.mean - before)[:, 0]

    faded = moved(std_decay=0.1)
    assert faded[0] > 0.1
    # Candidates of step t deviate by 2 · 0.1ᵗ, and the mean of elites by a few of these at most.
    assert np.all(faded < 4 * 2 * 0.1 ** np.arange(6))
    assert np.max(moved()[1:]) > 0.1, "without it later steps move as well"


def test_only_ended_episodes_start_anew():
    states = {"mean": jnp.ones((3, 2, 1))}
    found = restarted({"mean": jnp.zeros((2, 1))}, states, jnp.array([False, True, False]))
    np.testing.assert_array_equal(found["mean"][:, 0, 0], [1, 0, 1])


@pytest.mark.parametrize("steps", [7, 8])
def test_coloured_noise_has_unit_variance_and_its_power_falls_as_asked(steps):
    white, red = (coloured_noise((steps, 40_000, 1), beta, key=jax.random.key(0))[..., 0] for beta in (0.0, 2.0))
    for noise in (white, red):
        np.testing.assert_allclose(np.std(noise, axis=1), 1.0, atol=0.02)
    np.testing.assert_allclose(np.cov(white), np.eye(steps), atol=0.03)
    power = np.mean(np.abs(np.fft.rfft(red, axis=0)) ** 2, axis=1)
    np.testing.assert_allclose(power[1] / power[2], 4.0, rtol=0.05)


def test_coloured_noise_of_a_single_step_has_unit_variance():
    np.testing.assert_allclose(np.std(coloured_noise((1, 40_000, 1), 2.0, key=jax.random.key(0))), 1.0, atol=0.02)


def test_a_box_maps_both_ways():
    box = Box(jnp.array([-3.0, 1.0]), jnp.array([5.0, 1.5]))
    units = jnp.array([[-1.0, 1.0], [0.0, 0.5]])
    np.testing.assert_allclose(box.from_unit(units), [[-3.0, 1.5], [1.0, 1.375]])
    np.testing.assert_allclose(box.to_unit(box.from_unit(units)), units, atol=1e-6)


def test_bad_settings():
    with pytest.raises(KoopaxError, match="unknown planner 'mpi': did you mean 'mppi'"):
        make_search("mpi", BOX)
    with pytest.raises(KoopaxError, match="horizon is 0"):
        make_search("cem", BOX, horizon=0)
    with pytest.raises(KoopaxError, match="elites is 9, but there are 8 samples"):
        make_search("mppi", BOX, samples=8, elites=9)
    with pytest.raises(KoopaxError, match="no setting 'restarts'"):
        make_search("icem", BOX, restarts=3)
