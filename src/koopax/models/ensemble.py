"""Several models of the same system as one: their mean is the prediction, their disagreement tells where it is weak.

How far members are apart ranks predictions by difficulty, but is no interval: five seeds that make the same mistake
agree on it. So the spread is only the scale of the scores that intervals are calibrated by:

    scale = √(spread² + floor²)        floor: the root mean square of the spread at that step and column

see `koopax.models.intervals`.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import equinox as eqx
import numpy as np

from koopax._errors import KoopaxError
from koopax._types import Array, Float
from koopax.data.normalisation import Normaliser
from koopax.models.buckets import is_traced, on_host
from koopax.models.config import ModelConfig
from koopax.models.dynamics import DynamicsModel, Reencoding
from koopax.models.intervals import Calibration, calibration_for, check_returns, warn_of_few, with_band
from koopax.models.prediction import Prediction

# Spread below which members agree, in units of the training data's deviation.
AGREEMENT = 1e-3


class Ensemble(eqx.Module):
    """Models that predict together; methods take one example, as those of a DynamicsModel do."""

    members: tuple[DynamicsModel, ...]
    calibration: Calibration | None
    floor: Float[Array, "horizon column"] | None
    """Of the spread, in units of the training data's deviation."""

    def __init__(self, members: Sequence[DynamicsModel]):
        """Models of the same system, such as the seeds of one training; all in the units of the same data."""
        if len(members) < 2:
            raise KoopaxError(f"an ensemble of {len(members)} has nobody to disagree: give 2 models or more.")
        sizes = {(own.config.state_size, own.config.action_size, own.config.history) for own in members}
        if len(sizes) > 1:
            raise KoopaxError(
                f"models of states, actions and histories of sizes {sorted(sizes)} are no ensemble: give alike ones."
            )
        self.members = tuple(member.with_calibration(None) for member in members)
        self.calibration, self.floor = None, None

    @property
    def config(self) -> ModelConfig:
        """That of the first member, whose sizes are all members'."""
        return self.members[0].config

    @property
    def normaliser(self) -> Normaliser:
        """The first member's."""
        return self.members[0].normaliser

    @property
    def name(self) -> str:
        """What it is called in tables, such as "5 × mlp"."""
        return f"{len(self.members)} × {self.config.name}"

    @property
    def past_steps(self) -> int:
        """How many steps before the newest observation a member makes use of."""
        return max(member.past_steps for member in self.members)

    def num_parameters(self) -> int:
        """How many numbers were trained in all."""
        return sum(member.num_parameters() for member in self.members)

    def steps_between_returns(self, reencode_every: Reencoding = None) -> int | None:
        """As the first member says."""
        return self.members[0].steps_between_returns(reencode_every)

    def with_calibration(self, calibration: Calibration | None, floor: Array | None = None) -> "Ensemble":
        """The same ensemble with these intervals, or with none."""
        return eqx.tree_at(
            lambda own: (own.calibration, own.floor), self, (calibration, floor), is_leaf=lambda part: part is None
        )

    def rollout(self, state: Any, actions: Any, *, level: float | None = None, **options: Any) -> Prediction:
        """The mean of what the members predict, with their `spread`, and intervals where a level is asked for.

        Args:
            state: as for `DynamicsModel.rollout`, and so are actions and options.
            actions: one per step.
            level: such as 0.9, for an ensemble that was calibrated.
            **options: `past_actions`, `durations`, `reencode_every`.
        """
        return self._together([member.rollout(state, actions, **options) for member in self.members], level, options)

    def rollouts(self, states: Any, actions: Any, *, level: float | None = None, **options: Any) -> Prediction:
        """As `rollout`, of a batch."""
        return self._together([member.rollouts(states, actions, **options) for member in self.members], level, options)

    def _together(self, found: list[Prediction], level: float | None, options: dict[str, Any]) -> Prediction:
        pairs = [(each.states, each.rewards) for each in found]
        (states, spread), (rewards, reward_spread) = (on_host(_summary, *parts) for parts in zip(*pairs, strict=True))
        mean = Prediction(states, rewards, spread=spread, reward_spread=reward_spread)
        if level is None:
            return mean
        steps = mean.rewards.shape[-1]
        calibration = calibration_for(self, level, steps)
        for member in self.members:
            check_returns(member, options.get("reencode_every"))
        if not is_traced(calibration):
            warn_of_few(calibration, level)
        of_state, of_reward = self.normaliser.state_std, self.normaliser.reward_std
        floor = np.full((steps, 2), AGREEMENT, np.float32) if self.floor is None else self.floor
        scales = on_host(_scales, spread, reward_spread, floor, of_state, of_reward)
        return with_band(mean, calibration, level, scales)


def _summary(*members: Any) -> tuple[Any, Any]:
    """The mean of what members predict, and how far they are apart."""
    number, mean = len(members), sum(members[1:], start=members[0]) / len(members)
    squares = [(own - mean) ** 2 for own in members]
    return mean, (sum(squares[1:], start=squares[0]) / (number - 1)) ** 0.5


def _scales(spread: Any, reward_spread: Any, floor: Any, of_state: Any, of_reward: Any) -> tuple[Any, Any]:
    """√(spread² + floor²) of states and of rewards."""
    own = floor[: reward_spread.shape[-1]]
    return (
        (spread**2 + (own[:, :-1] * of_state) ** 2) ** 0.5,
        (reward_spread**2 + (own[:, -1] * of_reward) ** 2) ** 0.5,
    )


AnyModel: TypeAlias = DynamicsModel | Ensemble
"""What can be evaluated and planned with."""


def floor_of(spread: np.ndarray) -> np.ndarray:
    """The floor [horizon, column] of spreads [window, horizon, column], and not less than where members agree."""
    return np.maximum(np.sqrt(np.mean(np.square(spread, dtype=np.float64), axis=0)), AGREEMENT)
