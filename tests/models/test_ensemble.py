"""Ensembles: the mean and spread of their members, in rollouts, files and plans."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_conformal import SMALL, walks

import koopax
from koopax import DynamicsModel, Ensemble, KoopaxError
from koopax.planning.ensemble import EnsembleModel
from koopax.planning.learned import LearnedModel
from koopax.planning.protocol import RememberingModel


def members(count=2):
    data = walks(0)
    return [DynamicsModel.create("koopman", data, key=jax.random.key(i), **SMALL) for i in range(count)]


@pytest.fixture(scope="module")
def ensemble():
    return koopax.calibrate(Ensemble(members()), walks(1, episodes=40), horizon=10)


def test_it_predicts_the_mean_and_tells_the_spread(ensemble):
    state, actions = np.array([1.0, -2.0]), np.random.default_rng(0).normal(size=(6, 1))
    found = ensemble.rollout(state, actions, level=0.9)
    each = np.stack([m.rollout(state, actions).states for m in ensemble.members])
    np.testing.assert_allclose(found.states, each.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.spread, each.std(0, ddof=1), rtol=1e-4, atol=1e-6)
    assert (found.upper - found.lower > 0).all()
    batch = ensemble.rollouts(state[None], actions[None], level=0.9)
    np.testing.assert_allclose(batch.upper[0], found.upper, rtol=1e-4, atol=1e-5)


def test_its_intervals_hold_what_happens(ensemble):
    found = koopax.coverage(ensemble, walks(2, episodes=40), level=0.9, horizon=10, windows=1000)
    assert abs(found.state.per_step - 0.9).max() < 0.06
    error = koopax.prediction_error(ensemble, walks(2), horizon=10, windows=50)
    assert error.model == "2 × koopman"


@pytest.mark.slow
def test_members_that_agree_have_the_intervals_of_one():
    """Where nobody disagrees, the floor is all there is of the scale: it must be the same before and after."""
    (one,) = members(1)
    episodes = walks(1, episodes=20)
    alone, together = (koopax.calibrate(own, episodes, horizon=5) for own in (one, Ensemble([one, one])))
    state, actions = np.array([1.0, -2.0]), np.zeros((5, 1))
    wide, same = (own.rollout(state, actions, level=0.9) for own in (alone, together))
    np.testing.assert_allclose(same.upper - same.lower, wide.upper - wide.lower, rtol=1e-3)


@pytest.mark.slow
def test_planners_see_the_mean_reward_less_the_risk(ensemble):
    actions = jnp.asarray(np.random.default_rng(0).normal(size=(4, 5, 1)), jnp.float32)
    state = jnp.array([0.5, 0.5])

    def rewards(risk):
        seen = EnsembleModel(ensemble, risk=risk)
        assert isinstance(seen, RememberingModel)
        latents = seen.rollout(seen.encode(state, horizon=4), actions)
        return seen.reward(latents, actions), seen.disagreement(latents)

    plain, apart = rewards(0.0)
    each = []
    for member in ensemble.members:
        own = LearnedModel(member)
        each.append(own.reward(own.rollout(own.encode(state, horizon=4), actions), actions))
    np.testing.assert_allclose(plain, np.mean(each, axis=0), rtol=1e-4, atol=1e-5)
    careful, _ = rewards(2.0)
    np.testing.assert_allclose(plain - careful, 2 * ensemble.normaliser.reward_std * apart, rtol=1e-3, atol=1e-5)
    states = np.stack([jax.vmap(m.rollout, (None, 1), 1)(state, actions).states for m in ensemble.members])
    slow = np.sqrt((states / np.asarray(ensemble.normaliser.state_std)).var(0, ddof=1).mean(-1))
    np.testing.assert_allclose(apart, slow, rtol=1e-3, atol=1e-5)


def test_the_best_candidate_under_risk_is_one_that_members_agree_on(ensemble):
    candidates = jnp.linspace(-3, 3, 41)[None, :, None]
    plain, careful = EnsembleModel(ensemble), EnsembleModel(ensemble, risk=1e4)
    for state in jnp.array([[0.5, 0.5], [-3.0, 1.0], [2.0, -2.0]]):
        latents = plain.rollout(plain.encode(state, horizon=1), candidates)
        apart = plain.disagreement(latents)[0]
        safest = int(jnp.argmax(careful.reward(latents, candidates)[0]))
        assert float(jnp.ptp(apart)) > 0
        assert float(apart[safest]) == pytest.approx(float(apart.min()), rel=1e-3)


def test_what_is_no_ensemble_is_refused():
    with pytest.raises(KoopaxError, match="nobody to disagree"):
        Ensemble(members(1))
    other = DynamicsModel.create(
        "dmdc", koopax.Episodes.from_arrays([np.eye(4, 3)], [np.ones((3, 1))], None), key=jax.random.key(0)
    )
    with pytest.raises(KoopaxError, match="no ensemble"):
        Ensemble([*members(1), other])
    with pytest.raises(KoopaxError, match="never calibrated"):
        Ensemble(members(2)).rollout(np.ones(2), np.ones((2, 1)), level=0.9)
