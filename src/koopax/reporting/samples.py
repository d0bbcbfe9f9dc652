"""The test windows that are shown one by one: the first few, which chance has chosen, and those predicted worst."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from koopax.data.windows import Windows
from koopax.models.dynamics import DynamicsModel
from koopax.models.prediction import Prediction
from koopax.reporting.numbers import number, numbers, short
from koopax.reporting.pixels import channel_labels, channel_means
from koopax.reporting.predictions import TestWindows, predict

LEVEL = 0.9
"""Of the intervals around what is predicted."""


@dataclass(frozen=True)
class Measured:
    """A group of runs that was tested; one run stands for it where single windows are shown."""

    number: int
    """Of the group, among those on the same data."""
    label: str
    """What the group is called."""
    model: DynamicsModel
    """That of the first run that could be tested."""
    seed: int
    """Of that run."""
    errors: np.ndarray
    """That run's state error in each of the test windows, the mean over time, in units of variance [window]."""

    @property
    def worst(self) -> int:
        """The window with the largest error."""
        return int(np.argmax(self.errors))

    def rank(self, window: int) -> int:
        """1 for the window with the largest error, 2 for the next."""
        return 1 + int((self.errors > self.errors[window]).sum())


@dataclass(frozen=True)
class Samples:
    """Windows to show, and what each group predicts for them."""

    chosen: list[int]
    """Their numbers among the test windows."""
    texts: list[str]
    """What each is called."""
    values: Windows
    """The windows themselves [time, sample, …]."""
    predicted: dict[int, Prediction]
    """By the number of the group [time, sample, …]."""


def choose_samples(windows: TestWindows, tested: Sequence[Measured], count: int) -> Samples:
    """The first `count` test windows, and after them each group's worst."""
    first = range(min(count, windows.fixed.num_windows))
    chosen = list(dict.fromkeys([*first, *(group.worst for group in tested)]))
    values = windows.fixed.take(np.array(chosen))
    horizon = values.actions.shape[0]
    predicted = {g.number: predict(g.model, values, level=_level(g.model, horizon)) for g in tested}
    return Samples(chosen, [_text(windows, tested, window) for window in chosen], values, predicted)


def _level(model: DynamicsModel, horizon: int) -> float | None:
    """The level of the intervals that are shown; None for a model that knows none so far ahead."""
    return LEVEL if model.calibration is not None and horizon <= model.calibration.horizon else None


def _text(windows: TestWindows, tested: Sequence[Measured], window: int) -> str:
    start = windows.first_step[window]
    text = (
        f"window {window + 1}: episode {windows.episode[window] + 1}, steps {start} to {start + windows.fixed.horizon}"
    )
    worst = [
        f"worst of {windows.fixed.num_windows} for {group.label}, "
        + (f"error {short(group.errors[window])}" if np.isfinite(group.errors[window]) else "diverges")
        for group in tested
        if group.worst == window
    ]
    return " · ".join([text, *worst])


def trajectories(windows: TestWindows, samples: Samples, tested: Sequence[Measured]) -> dict[str, Any]:
    """The samples' trajectories, component by component: true, and as predicted by the first run of each group."""
    episodes, values, shape = windows.episodes, samples.values, windows.episodes.image_shape
    names = list(episodes.metadata.state_names or [f"state {i}" for i in range(episodes.state_size)])
    if shape is not None:
        names = channel_labels(shape)
    rewarded = episodes.has_rewards
    components = names + (["reward"] if rewarded else [])

    def by_component(states: Any, rewards: Any) -> list[Any]:
        followed = np.concatenate([values.states[:1], states])
        columns = (followed if shape is None else channel_means(followed, shape)).transpose(1, 2, 0)
        return [
            [*numbers(columns[i]), *([numbers(rewards[:, i])] if rewarded else [])] for i in range(len(samples.chosen))
        ]

    return {
        "names": components,
        "states": len(names),
        "units": [episodes.metadata.units.get(name, "") for name in components],
        "windows": [
            {
                "text": text,
                "errors": {
                    group.number: {"error": number(group.errors[window]), "rank": group.rank(window)}
                    for group in tested
                },
            }
            for window, text in zip(samples.chosen, samples.texts, strict=True)
        ],
        "true": by_component(values.states[1:], values.rewards),
        "predicted": {
            number_: by_component(predicted.states, predicted.rewards)
            for number_, predicted in samples.predicted.items()
        },
        "level": LEVEL,
        "lower": {
            number_: by_component(predicted.lower, predicted.reward_lower)
            for number_, predicted in samples.predicted.items()
            if predicted.lower is not None
        },
        "upper": {
            number_: by_component(predicted.upper, predicted.reward_upper)
            for number_, predicted in samples.predicted.items()
            if predicted.upper is not None
        },
    }
