"""The windows that are shown: the first few, and the one that a model predicts worst."""

import numpy as np
import pytest
from run_samples import HORIZON

from koopax.reporting.predictions import choose_windows, errors_by_window
from koopax.reporting.samples import Measured, choose_samples, trajectories
from koopax.training.trained import model_and_test_episodes


@pytest.fixture(scope="module")
def tested(folders):
    model, episodes = model_and_test_episodes(folders["mlp"], None)
    windows = choose_windows(episodes, horizon=HORIZON, count=40)
    return windows, Measured(0, "mlp", model, 0, errors_by_window(model, windows)["model"].state.mean(1))


def test_the_worst_window_is_shown_with_its_error_and_rank(tested):
    windows, group = tested
    samples = choose_samples(windows, [group], 3)
    assert samples.chosen[:3] == [0, 1, 2]
    worst = int(np.argmax(group.errors))
    place = samples.chosen.index(worst)
    assert f"window {worst + 1}:" in samples.texts[place]
    assert f"worst of {windows.fixed.num_windows} for mlp" in samples.texts[place]
    assert sum("worst" in text for text in samples.texts) == 1
    shown = trajectories(windows, samples, [group])
    assert shown["windows"][place]["errors"][0]["rank"] == 1
    assert shown["windows"][place]["errors"][0]["error"] == pytest.approx(group.errors.max(), rel=1e-3)
    ranks = [group.rank(i) for i in range(len(group.errors))]
    assert sorted(ranks) == list(range(1, len(ranks) + 1))
    episode = windows.episodes.episode(int(windows.episode[worst]))
    first = windows.first_step[worst]
    expected = episode.observations[first : first + HORIZON + 1, 0]
    np.testing.assert_allclose(shown["true"][place][0], expected, rtol=1e-3)


def test_a_divergent_window_is_the_worst(tested):
    windows, group = tested
    errors = group.errors.copy()
    errors[5] = np.inf
    gone = Measured(0, "mlp", group.model, 0, errors)
    assert gone.worst == 5
    assert "diverges" in choose_samples(windows, [gone], 2).texts[-1]
