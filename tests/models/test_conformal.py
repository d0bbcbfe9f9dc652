"""Conformal intervals: exact on exchangeable data, careful where windows are alike, and honest where they can't be."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import koopax
from koopax import DynamicsModel, Episodes, KoopaxError, KoopaxWarning, load_model
from koopax.data.windows import even_windows
from koopax.evaluation import calibration
from koopax.models.intervals import LEVELS, Calibration, conformal_rank, effective_number


@given(st.integers(2, 60), st.sampled_from([float(level) for level in LEVELS if level < 1]), st.integers(0, 2**32 - 1))
def test_the_chance_is_exact_on_exchangeable_data(count, level, seed):
    """Any of n + 1 exchangeable scores may be the new one: exactly rank / (n + 1) of these choices are covered."""
    scores = np.random.default_rng(seed).permutation(count + 1).astype(float)  # no two are equal
    held = 0
    for new in range(count + 1):
        others = np.delete(scores, new)[:, None, None]
        found = Calibration.fit(others, np.arange(count))
        held += scores[new] <= float(found.widths(level, 1)[0, 0])
    rank = min(count, int(np.ceil((count + 1) * level - 1e-9)))
    assert held == rank
    assert held / (count + 1) >= min(level - 1e-9, count / (count + 1))
    assert held / (count + 1) < level + 1 / (count + 1)


@given(st.integers(1, 5), st.integers(2, 30), st.integers(0, 2**32 - 1))
def test_copies_of_a_window_are_worth_one(copies, episodes, seed):
    scores = np.random.default_rng(seed).normal(size=(episodes, 1, 1))
    found = effective_number(np.repeat(scores, copies, axis=0), np.repeat(np.arange(episodes), copies))
    assert episodes * (1 - 1e-9) <= found <= max(episodes, 1.2 * episodes + 1)


def test_windows_that_are_independent_count_all():
    rng = np.random.default_rng(0)
    scores, episode = rng.normal(size=(2000, 5, 4)), np.repeat(np.arange(20), 100)
    assert effective_number(scores, episode) > 1000
    shifted = scores + 3 * rng.normal(size=20)[episode][:, None, None]
    assert effective_number(shifted, episode) < 60


def test_levels_in_between_are_in_between():
    found = Calibration.fit(np.abs(np.random.default_rng(0).normal(size=(500, 1, 1))), np.arange(500))
    widths = [float(found.widths(level, 1)[0, 0]) for level in np.linspace(0.001, 0.9999, 300)]
    assert all(np.diff(widths) >= -1e-6)
    assert widths[-1] <= float(found.scores[-1, 0, 0]) + 1e-6
    assert conformal_rank(0.9, 99, 99.0) == 90
    assert conformal_rank(0.999, 10, 10.0) == 10


def walks(seed, episodes=12, steps=40, rewards=True):
    """States that nobody can foretell: errors of any model are exchangeable between episodes."""
    rng = np.random.default_rng(seed)
    return Episodes.from_arrays(
        [np.cumsum(rng.normal(size=(steps + 1, 2)), axis=0) for _ in range(episodes)],
        [rng.normal(size=(steps, 1)) for _ in range(episodes)],
        [rng.normal(size=steps) for _ in range(episodes)] if rewards else None,
    )


SMALL = {"latent_size": 8, "encoder_hidden": (8,), "decoder_hidden": (8,)}


@pytest.fixture(scope="module")
def model():
    untrained = DynamicsModel.create("koopman", walks(0), key=jax.random.key(0), **SMALL)
    return koopax.calibrate(untrained, walks(1, episodes=60), horizon=10)


def test_intervals_hold_what_happens_as_often_as_they_say(model):
    for level in (0.5, 0.9):
        found = koopax.coverage(model, walks(2, episodes=60), level=level, horizon=10, windows=2000)
        assert abs(found.state.per_step - level).max() < 0.06
        assert abs(found.reward.per_step.mean() - level) < 0.04


def test_coverage_counts_what_lies_within_the_bounds_of_a_rollout(model):
    data, horizon = walks(3, episodes=3), 10
    found = koopax.coverage(model, data, level=0.87, horizon=horizon, windows=10_000)
    states, rewards, widths = [], [], []
    for i in range(data.num_episodes):
        episode = data.episode(i)
        starts = np.arange(40 - horizon + 1)
        actions = np.stack([episode.actions[s : s + horizon] for s in starts])
        made = model.rollouts(episode.observations[starts], actions, level=0.87)
        true = np.stack([episode.observations[s + 1 : s + 1 + horizon] for s in starts])
        states.append((made.lower <= true) & (true <= made.upper))
        true = np.stack([episode.rewards[s : s + horizon] for s in starts])
        rewards.append((made.reward_lower <= true) & (true <= made.reward_upper))
        widths.append((made.upper - made.lower) / model.normaliser.state_std)
    np.testing.assert_allclose(found.state.per_step_and_column, np.concatenate(states).mean(0), atol=1e-6)
    np.testing.assert_allclose(found.reward.per_step, np.concatenate(rewards).mean(0), atol=1e-6)
    np.testing.assert_allclose(found.state.width_per_step, np.concatenate(widths).mean((0, 2)), rtol=1e-4)
    assert set(found.to_json()) >= {"level", "per_step", "mean_width", "reward", "crps"}


def test_the_score_of_all_levels_is_the_ranked_probability_score():
    """A Gaussian's is known in closed form: σ (z (2Φ(z) − 1) + 2φ(z) − 1/√π)."""
    from scipy import stats

    table = stats.norm.ppf((1 + np.minimum(LEVELS, 0.9999)) / 2)[:, None, None]
    made = Calibration(jnp.asarray(table), jnp.asarray(1.0))
    z = np.linspace(0, 3, 7)
    exact = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
    np.testing.assert_allclose(calibration.ranked_score(z[:, None, None], made)[:, 0, 0], exact, atol=0.01)


def test_a_rollout_in_a_program_has_the_same_intervals(model):
    state, actions = jnp.ones(2), jnp.ones((7, 1))
    alone = model.rollout(state, actions, level=0.9)
    inside = eqx.filter_jit(lambda m, s, a: m.rollout(s, a, level=0.9))(model, state, actions)
    for one, other in zip(alone[:2] + alone[3:7], inside[:2] + inside[3:7], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    plain = model.rollout(state, actions)
    assert plain.lower is None
    np.testing.assert_array_equal(plain.states, alone.states)


def test_intervals_are_kept_in_the_file(model, tmp_path):
    model.save(tmp_path / "calibrated.koopax")
    again = load_model(tmp_path / "calibrated.koopax")
    assert eqx.tree_equal(again, model)
    assert again.num_parameters() == model.with_calibration(None).num_parameters()


def test_bad_questions_are_told_in_one_sentence(model, unchecked_shapes):
    state, actions = np.ones(2), np.ones((3, 1))
    for level in (0, 1, -0.5, 1.5, "0.9", True):
        with pytest.raises(KoopaxError, match="level is"):
            model.rollout(state, actions, level=level)
    with pytest.raises(KoopaxError, match="never calibrated"):
        model.with_calibration(None).rollout(state, actions, level=0.9)
    with pytest.raises(KoopaxError, match="over 11 steps, but were calibrated over 10"):
        model.rollout(state, np.ones((11, 1)), level=0.9)
    with pytest.raises(KoopaxError, match="reencode_every is 2"):
        model.rollout(state, actions, level=0.9, reencode_every=2)
    assert model.with_reencoding(2).calibration is None
    assert model.with_reencoding(None).calibration is not None


def test_too_few_windows_for_a_level_are_said():
    untrained = DynamicsModel.create("koopman", walks(0), key=jax.random.key(0), **SMALL)
    few = koopax.calibrate(untrained, walks(1, episodes=1, rewards=False), horizon=10)
    assert few.calibration.promised < 0.9
    with pytest.warns(KoopaxWarning, match="independent windows"):
        found = few.rollout(np.ones(2), np.ones((3, 1)), level=0.9)
    assert np.isnan(found.reward_lower).all()
    assert np.isfinite(found.lower).all()


def test_windows_are_evenly_spread():
    data = walks(0, episodes=5)
    chosen = even_windows(data, 10, 31)
    assert len(np.unique(chosen.rows)) == 31
    episode = np.searchsorted(data.starts, chosen.rows, side="right") - 1
    assert set(np.bincount(episode)) <= {6, 7}
    assert len(even_windows(data, 10, 10**6).rows) == 5 * 31
