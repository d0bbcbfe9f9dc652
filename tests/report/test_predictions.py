"""Errors kept window by window agree with the evaluation that streams them."""

import dataclasses

import numpy as np
import pytest
from run_samples import HORIZON

from koopax.evaluation.prediction import prediction_error
from koopax.report import predictions
from koopax.report.predictions import baseline_errors, choose_windows, errors, predict
from koopax.training.tasks import model_and_test_episodes


@pytest.fixture(scope="module")
def tested(folders):
    model, episodes = model_and_test_episodes(folders["mlp"], None)
    return model, choose_windows(episodes, horizon=HORIZON, count=40)


def test_mean_errors_are_those_of_the_evaluation(tested, monkeypatch):
    model, windows = tested
    assert windows.fixed.num_windows > 8
    monkeypatch.setattr(predictions, "BATCH", 8)  # so that the last batch overlaps the one before
    found = errors(model, predict(model, windows.values), windows.values)
    expected = prediction_error(model, windows.episodes, horizon=HORIZON, windows=40)
    np.testing.assert_allclose(found.state.mean(0), expected.state.per_step, rtol=1e-4)
    np.testing.assert_allclose(found.state_raw.mean(0), expected.state.per_step_raw, rtol=1e-4)
    np.testing.assert_allclose(found.reward.mean(0), expected.reward.per_step, rtol=1e-4)
    np.testing.assert_allclose(found.per_dimension.mean(0), expected.state.per_dimension, rtol=1e-4)
    for name, twin in (("no change", "constant"), ("training mean", "mean")):
        baseline = baseline_errors(model, windows.values)[name]
        np.testing.assert_allclose(baseline.state.mean(0), expected.baselines[twin][0].per_step, rtol=1e-4)


def test_windows_know_where_they_are_from(tested):
    _, windows = tested
    for i in range(3):
        episode = windows.episodes.episode(int(windows.episode[i]))
        first = windows.first_step[i]
        np.testing.assert_array_equal(windows.values.states[i], episode.observations[first : first + HORIZON + 1])


def test_what_is_not_finite_is_infinitely_wrong(tested):
    model, windows = tested
    predicted = predict(model, windows.values)
    broken = dataclasses.replace(predicted, states=predicted.states.copy())
    broken.states[0, 5:] = np.nan
    found = errors(model, broken, windows.values)
    assert np.isinf(found.state[0, 5:]).all()
    assert np.isfinite(found.state[1:]).all()
