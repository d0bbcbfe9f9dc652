"""Free runs over whole episodes: from the first observations to the end, however many steps that is.

    rmse = √ mean (ŷ − y)²,     fit = 100 (1 − ‖ŷ − y‖ / ‖y − ȳ‖) percent

for each column y of the states, over all steps of all episodes after the first history: 100 is exact, 0 is as good as
the column's mean ȳ, and a model that is worse than that is below 0.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from koopax._errors import KoopaxError
from koopax.data.episodes import Episodes
from koopax.models.dynamics import Reencoding
from koopax.models.ensemble import AnyModel, Ensemble

# Steps that are predicted at a time, in as many episodes as that is.
TOGETHER = 100_000


@dataclass(frozen=True)
class ColumnFit:
    """How well one column is predicted."""

    rmse: float
    """Root of the mean squared error, raw units; infinite where a prediction diverges."""
    fit_percent: float
    """100 is exact, 0 as good as the mean; −∞ where a prediction diverges."""

    def to_json(self) -> dict[str, float | None]:
        """Plain numbers; those that are not finite become None."""
        return {
            "rmse": self.rmse if np.isfinite(self.rmse) else None,
            "fit_percent": self.fit_percent if np.isfinite(self.fit_percent) else None,
        }


@dataclass(frozen=True)
class WholeEpisodes:
    """What `whole_episodes` found."""

    model: str
    """Name of the core, of the regression, or of the ensemble."""
    history: int
    """Observations of each episode that the model was shown."""
    episodes: int
    """Episodes that were predicted."""
    steps: int
    """Steps that were predicted, in all of them."""
    longest: int
    """Steps of the longest free run."""
    nonfinite: int
    """Episodes whose prediction diverged."""
    columns: dict[str, ColumnFit]
    """By the name of the state column."""
    reward: ColumnFit | None
    """Of the rewards; None where there are none."""

    def to_json(self) -> dict[str, Any]:
        """The document that `koopax evaluate --whole-episodes --json` prints."""
        return {
            "model": self.model,
            "history": self.history,
            "episodes": self.episodes,
            "steps": self.steps,
            "longest": self.longest,
            "nonfinite": self.nonfinite,
            "columns": {name: column.to_json() for name, column in self.columns.items()},
            "reward": None if self.reward is None else self.reward.to_json(),
        }


def whole_episodes(
    model: AnyModel,
    episodes: Episodes,
    *,
    reencode_every: Reencoding = None,
    watch: Callable[[int, int], None] | None = None,
) -> WholeEpisodes:
    """Predict every episode from its first history to its end and compare.

    Args:
        model: the model, or an ensemble, which predicts the mean of its members' free runs.
        episodes: test episodes, that the model was not trained on.
        reencode_every: see `DynamicsModel.rollout`.
        watch: called with the steps done and the steps in all.
    """
    history = model.config.history
    if (shortest := int(episodes.lengths.min())) < history:
        raise KoopaxError(
            f"an episode of {shortest} steps leaves nothing to predict after a history of {history} observations: "
            "leave it out, or use a model with a shorter history."
        )
    found = _Sums(episodes.state_size + 1)
    longest = nonfinite = 0
    total = int((episodes.lengths - (history - 1)).sum())
    for numbers in _together(episodes.lengths):
        true, predicted = _free_runs(model, [episodes.episode(int(number)) for number in numbers], reencode_every)
        for known, expected in zip(true, predicted, strict=True):
            found.add(known, expected)
            nonfinite += not np.isfinite(expected).all()
            longest = max(longest, len(known))
        if watch is not None:
            watch(found.count, total)
    columns = found.columns()
    names = episodes.metadata.state_names or [f"state {number}" for number in range(episodes.state_size)]
    return WholeEpisodes(
        model=model.name if isinstance(model, Ensemble) else model.config.name,
        history=history,
        episodes=episodes.num_episodes,
        steps=found.count,
        longest=longest,
        nonfinite=nonfinite,
        columns=dict(zip(names, columns[:-1], strict=True)),
        reward=columns[-1] if episodes.has_rewards else None,
    )


class _Sums:
    """Sums over steps, in float64, of what errors and fits are made of."""

    def __init__(self, columns: int) -> None:
        self.count = 0
        self.mean, self.squares, self.errors = np.zeros(columns), np.zeros(columns), np.zeros(columns)

    def add(self, true: np.ndarray, predicted: np.ndarray) -> None:
        count, mean = len(true), true.mean(axis=0)
        shift = mean - self.mean
        self.squares += ((true - mean) ** 2).sum(axis=0) + shift**2 * self.count * count / (self.count + count)
        self.count += count
        self.mean += shift * count / self.count
        with np.errstate(over="ignore", invalid="ignore"):
            missed = (predicted - true) ** 2
        self.errors += np.where(np.isfinite(missed), missed, np.inf).sum(axis=0)

    def columns(self) -> list[ColumnFit]:
        fits = [self._fit(errors, squares) for errors, squares in zip(self.errors, self.squares, strict=True)]
        return [
            ColumnFit(float(np.sqrt(errors / self.count)), fit) for errors, fit in zip(self.errors, fits, strict=True)
        ]

    @staticmethod
    def _fit(errors: float, squares: float) -> float:
        if squares == 0:  # a constant column has nothing to explain
            return 100.0 if errors == 0 else -np.inf
        return float(100 * (1 - np.sqrt(errors / squares)))


def _together(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Numbers of episodes that are predicted in one batch: of about the same length, and not too many steps."""
    order = np.argsort(lengths, kind="stable")[::-1]
    first = 0
    while first < len(order):
        end = first + max(1, TOGETHER // int(lengths[order[first]]))
        yield order[first:end]
        first = end


def _free_runs(
    model: AnyModel, episodes: list[Any], reencode_every: Reencoding
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Of each episode, states and rewards after its first history as they were and as predicted [steps, state + 1]."""
    before = model.config.history - 1
    longest = max(len(episode.actions) for episode in episodes) - before

    def filled(rows: np.ndarray, value: float = 0.0) -> np.ndarray:
        widths = [(0, longest - (len(rows) - before))] + [(0, 0)] * (rows.ndim - 1)
        return np.pad(rows[before:], widths, constant_values=value)

    states = np.stack([e.observations[: before + 1] if before else e.observations[0] for e in episodes])
    regular = episodes[0].durations is None
    # What an episode lacks at its end is filled up and cut off: dynamics are causal.
    found = model.rollouts(
        states,
        np.stack([filled(e.actions) for e in episodes]),
        past_actions=np.stack([e.actions[:before] for e in episodes]) if before else None,
        durations=None if regular else np.stack([filled(e.durations, 1.0) for e in episodes]),
        reencode_every=reencode_every,
    )
    joined = np.concatenate([found.states, found.rewards[..., None]], axis=-1, dtype=np.float64)
    true = [
        np.concatenate([e.observations[before + 1 :], e.rewards[before:, None]], axis=-1, dtype=np.float64)
        for e in episodes
    ]
    return true, [joined[number, : len(rows)] for number, rows in enumerate(true)]
