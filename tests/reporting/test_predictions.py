"""Errors kept window by window agree with the evaluation that streams them."""

import json
import shutil

import equinox as eqx
import jax
import numpy as np
import pytest
from run_samples import HORIZON

from koopax import KoopaxError
from koopax.evaluation.prediction import prediction_error
from koopax.reporting.groups import by_data
from koopax.reporting.models import Effort, describe
from koopax.reporting.predictions import choose_windows, errors_by_window, predict
from koopax.reporting.runs import read_runs
from koopax.training.trained import model_and_test_episodes


@pytest.fixture(scope="module")
def tested(folders):
    model, episodes = model_and_test_episodes(folders["mlp"], None)
    return model, choose_windows(episodes, horizon=HORIZON)


def test_terminal_and_report_show_the_same_numbers(tested):
    """Both by default: the same windows, the same errors, the same names."""
    model, windows = tested
    found = errors_by_window(model, windows)
    expected = prediction_error(model, windows.episodes, horizon=HORIZON)
    assert Effort().windows >= windows.fixed.num_windows == expected.windows > 8
    np.testing.assert_allclose(found["model"].state.mean(0), expected.state.per_step, rtol=1e-5)
    np.testing.assert_allclose(found["model"].state_raw.mean(0), expected.state.per_step_raw, rtol=1e-5)
    np.testing.assert_allclose(found["model"].reward.mean(0), expected.reward.per_step, rtol=1e-5)
    np.testing.assert_allclose(found["model"].per_dimension.mean(0), expected.state.per_dimension, rtol=1e-5)
    for name, (state, reward) in expected.baselines.items():
        np.testing.assert_allclose(found[name].state.mean(0), state.per_step, rtol=1e-5)
        np.testing.assert_allclose(found[name].reward.mean(0), reward.per_step, rtol=1e-5)
    assert set(found) == {"model", *expected.baselines}


def test_fewer_windows_are_the_same_few_in_both(tested):
    model, windows = tested
    few = choose_windows(windows.episodes, horizon=HORIZON, count=9)
    expected = prediction_error(model, windows.episodes, horizon=HORIZON, windows=9)
    np.testing.assert_allclose(errors_by_window(model, few)["model"].state.mean(), expected.state.normalised, rtol=1e-5)


def errors_by_window_are_those_of_the_predictions_that_are_shown(tested):
    model, windows = tested
    some = windows.fixed.take(slice(3))
    predicted = predict(model, some)
    squares = ((predicted.states - some.states[1:]) ** 2).mean(-1).T
    np.testing.assert_allclose(errors_by_window(model, windows)["model"].state_raw[:3], squares, rtol=1e-4)


def test_windows_know_where_they_are_from(tested):
    _, windows = tested
    values = windows.fixed.take(slice(3))
    for i in range(3):
        episode = windows.episodes.episode(int(windows.episode[i]))
        first = windows.first_step[i]
        np.testing.assert_array_equal(values.states[:, i], episode.observations[first : first + HORIZON + 1])


def test_what_is_not_finite_is_infinitely_wrong(tested):
    model, windows = tested
    broken = eqx.tree_at(
        lambda model: model.normaliser.state_mean, model, replace_fn=lambda mean: mean.at[0].set(jax.numpy.nan)
    )
    found = errors_by_window(broken, windows)
    assert np.isinf(found["model"].state).all()
    assert np.isfinite(found["constant"].state).all()


def test_a_run_whose_data_has_changed_is_not_tested(folders, tmp_path):
    """As `koopax evaluate`, which refuses it; another run on the same data is shown."""
    shutil.copytree(folders["mlp"], tmp_path / "mlp")
    path = tmp_path / "mlp" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"fingerprint": "of other data"}))
    found = read_runs([tmp_path / "mlp", folders["mlp"]])
    problems = []
    effort = Effort(horizon=HORIZON, windows=8, videos=False)
    (data,) = by_data(found.models)
    document = describe(data, effort, problems, lambda text: None)
    assert [problem.run for problem in problems] == [str(tmp_path / "mlp")]
    assert "No prediction is shown: the data has changed" in problems[0].message
    assert "has changed since" in problems[0].message
    assert [model.get("tested") for model in document["models"]] == [1]
    with pytest.raises(KoopaxError, match="has changed since"):
        model_and_test_episodes(tmp_path / "mlp", None)
