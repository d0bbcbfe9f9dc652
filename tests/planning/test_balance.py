"""Unstable plants, from random pushes: a model of them and a controller that balances."""

import jax
import numpy as np
import pytest

import koopax
from koopax import DynamicsModel
from koopax.planning.choice import QuadraticCost
from koopax.planning.trained import control_trained

PLANTS = {"koopax/Upright-v0": 2, "koopax/CartPole-v0": 4}


@pytest.fixture(scope="module", params=PLANTS)
def plant(request):
    """An environment, and random pushes that let it fall."""
    return request.param, koopax.collect(request.param, policy="random", steps=1500, seed=0)


@pytest.mark.parametrize("name", ["dmdc", pytest.param("koopman", marks=pytest.mark.slow)])
def test_lqr_balances(plant, name):
    """A Koopman model that is not trained at all begins at DMDc, and must be as good."""
    env, data = plant
    model = DynamicsModel.create(name, data, key=jax.random.key(0))
    model = koopax.fit(model, data, horizon=5, steps=0, progress=False).model
    goal = QuadraticCost(goal=(0.0,) * PLANTS[env])
    states = []
    found = control_trained(
        model,
        env,
        planner="lqr",
        episodes=3,
        seed=1,
        cost=goal,
        watch=lambda progress: states.append(progress.taken.next_observations),
    )
    assert found.lengths == (200, 200, 200)
    assert np.abs(states[-1]).max() < 0.02
    assert max(abs(value) for value in found.returns) < 20
