"""Whether the data of a model cover what planning asks of it, as far as the model itself can tell.

A model keeps the mean and standard deviation of its data. A search tries actions all over the bounds: where the data's
actions varied much less than that, the model was never shown what most candidates do. And a controller leads where the
data has not been: a state counts as outside if a component is more than `FAR` standard deviations from the data's mean,
which by Chebyshev's inequality at most 4 % of the data's own values are, and far fewer as a rule. Means and deviations
do not see that an expert's actions, however large, are always the same ones in the same state; so in the end the model
predicts the episodes that were played, over as many steps as a plan has (`PREDICTED` at most): an error of more than
`WRONG`, in variances of its data, means that the plans were made of guesses.
"""

import warnings

import numpy as np

from koopax._errors import KoopaxWarning
from koopax.data.episodes import Episodes
from koopax.data.normalisation import Normaliser
from koopax.envs import Steps
from koopax.evaluation.prediction import prediction_error
from koopax.models.dynamics import Reencoding
from koopax.models.ensemble import AnyModel
from koopax.planning.protocol import Box

NARROW = 0.5
FAR = 5.0
MANY = 0.05
WRONG = 0.5
PREDICTED = 20
WINDOWS = 500


def action_spread(normaliser: Normaliser, box: Box) -> np.ndarray:
    """Standard deviation of the data's actions relative to that of actions drawn evenly from the bounds, `[action]`."""
    width = np.broadcast_to(np.asarray(box.high - box.low, float), normaliser.action_std.shape)
    return np.asarray(normaliser.action_std) / (width / np.sqrt(12))


def warn_of_narrow_actions(normaliser: Normaliser, box: Box) -> None:
    """Warn if an action's spread in the data is less than `NARROW` of the bounds'."""
    spread = action_spread(normaliser, box)
    narrow = np.flatnonzero(spread < NARROW)
    if len(narrow):
        warnings.warn(
            f"{len(narrow)} of {len(spread)} components of the actions vary little in the model's data (component "
            f"{spread.argmin()} by {spread.min():.0%} of what evenly drawn actions do), but planning searches all of "
            "their range: train on data with more varied actions, such as those of a random policy.",
            KoopaxWarning,
            stacklevel=3,
        )


class Coverage:
    """Looks at the episodes that a controller plays: the first one of each environment."""

    def __init__(self, model: AnyModel, horizon: int):
        self.model, self.steps = model, min(horizon, PREDICTED)
        self.mean, self.std = np.asarray(model.normaliser.state_mean), np.asarray(model.normaliser.state_std)
        self.seen = self.far = 0
        self.played: list[tuple[np.ndarray, Steps]] = []
        self.over = np.zeros(1, bool)  # whose first episode has ended

    def add(self, actions: np.ndarray, taken: Steps) -> None:
        """Count the states of one decision, `[environment, …]`, and keep what happened."""
        self.seen += len(actions)
        self.far += int((np.abs((taken.observations - self.mean) / self.std) > FAR).any(axis=-1).sum())
        if not self.over.all():
            self.played.append((actions, taken))
        self.over = self.over | taken.terminated | taken.truncated

    @property
    def outside(self) -> float | None:
        """Share of the states met that are outside; None before any."""
        return self.far / self.seen if self.seen else None

    def prediction_error(self, reencode_every: Reencoding = None) -> float | None:
        """The model's mean squared error over the steps of a plan, normalised; None if too little was played."""
        episodes = [self._first_episode(i) for i in range(len(self.played[0][0]))] if self.played else []
        long = [episode for episode in episodes if len(episode[1]) >= self.steps]
        if not long:
            return None
        data = Episodes.from_arrays(*(list(arrays) for arrays in zip(*long, strict=True)))
        found = prediction_error(
            self.model, data, horizon=self.steps, windows=WINDOWS, reencode_every=reencode_every
        ).state.normalised
        return found if np.isfinite(found) else None

    def _first_episode(self, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Observations `[T+1, state]`, actions and rewards of environment i until its first episode ends."""
        ended = [bool(taken.terminated[i] | taken.truncated[i]) for _, taken in self.played]
        steps = self.played[: ended.index(True) + 1 if True in ended else None]
        last = steps[-1][1].next_observations[i]
        return (
            np.stack([*(taken.observations[i] for _, taken in steps), last]),
            np.stack([actions[i] for actions, _ in steps]),
            np.stack([taken.rewards[i] for _, taken in steps]),
        )

    def warn(self, error: float | None) -> None:
        """Warn of predictions that were wrong, or else of states that were outside."""
        if error is not None and error > WRONG:
            problem = (
                f"over {self.steps} steps of the episodes that were played the model's predictions err by {error:.2g} "
                "variances of its data (1 is as wrong as predicting the data's mean)"
            )
        elif self.outside is not None and self.outside > MANY:
            problem = (
                f"{self.outside:.0%} of the states met while planning lie more than {FAR:g} standard deviations from "
                "the mean of the model's data"
            )
        else:
            return
        warnings.warn(
            f"{problem}: planning led where the data had not been. Train on data with other states and actions too, "
            "such as those of a random policy.",
            KoopaxWarning,
            stacklevel=3,
        )
