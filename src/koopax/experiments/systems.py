"""Small systems with known equations, simulated: what a few hundred rows of a log look like, and the truth behind them.

| name         | ẋ = f(x, u)                                                        |
|--------------|--------------------------------------------------------------------|
| `linear`     | two damped oscillations, one of which drives the other             |
| `van-der-pol`| ẍ = (1 − x²) ẋ − x + u                                             |
| `duffing`    | ẍ = x − x³ − 0.3 ẋ + u, two wells                                  |
| `pendulum`   | θ̈ = −9.81 sin θ − 0.1 θ̇ + u                                         |

The input is constant over a step and drawn anew every fifth; Runge–Kutta of fourth order, four substeps a step.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from koopax.data.episodes import Episodes

HOLD = 5
SUBSTEPS = 4
_OSCILLATIONS = np.array([[-0.1, 2.0, 0.0, 0.0], [-2.0, -0.1, 0.0, 0.0], [0.0, 0.0, -0.5, 0.7], [0.3, 0.0, -0.7, -0.5]])
_PUSH = np.array([0.0, 1.0, 0.5, 0.0])


@dataclass(frozen=True)
class System:
    """A differential equation with one input."""

    derivative: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """ẋ of states [batch, state] and inputs [batch]."""
    start: tuple[float, ...]
    """Episodes begin evenly in ± this."""
    step: float
    """Seconds of a step."""


def _linear(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    return x @ _OSCILLATIONS.T + u[:, None] * _PUSH


def _van_der_pol(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    return np.stack([x[:, 1], (1 - x[:, 0] ** 2) * x[:, 1] - x[:, 0] + u], axis=1)


def _duffing(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    return np.stack([x[:, 1], x[:, 0] - x[:, 0] ** 3 - 0.3 * x[:, 1] + u], axis=1)


def _pendulum(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    return np.stack([x[:, 1], -9.81 * np.sin(x[:, 0]) - 0.1 * x[:, 1] + u], axis=1)


SYSTEMS = {
    "linear": System(_linear, (1.5, 1.5, 1.5, 1.5), 0.1),
    "van-der-pol": System(_van_der_pol, (2.0, 2.0), 0.05),
    "duffing": System(_duffing, (1.5, 1.5), 0.05),
    "pendulum": System(_pendulum, (1.5, 1.5), 0.05),
}


def simulate(name: str, episodes: int, steps: int, *, seed: int, noise_db: float | None = None) -> Episodes:
    """Episodes of a system; with `noise_db`, measured with noise of that many decibels below the signal."""
    system, rng = SYSTEMS[name], np.random.default_rng(seed)
    state = rng.uniform(-1, 1, (episodes, len(system.start))) * system.start
    inputs = np.repeat(rng.uniform(-1, 1, (-(-steps // HOLD), episodes)), HOLD, axis=0)[:steps]
    states = [state]
    for now in inputs:
        for _ in range(SUBSTEPS):
            state = _runge_kutta(system.derivative, state, now, system.step / SUBSTEPS)
        states.append(state)
    measured = np.stack(states, axis=1)
    if noise_db is not None:
        measured = measured + 10 ** (-noise_db / 20) * measured.std(axis=(0, 1)) * rng.normal(size=measured.shape)
    return Episodes.from_arrays(
        measured.astype(np.float32), inputs.T[:, :, None].astype(np.float32), step_seconds=system.step
    )


def _runge_kutta(
    derivative: Callable[[np.ndarray, np.ndarray], np.ndarray], x: np.ndarray, u: np.ndarray, h: float
) -> np.ndarray:
    first = derivative(x, u)
    second = derivative(x + h / 2 * first, u)
    third = derivative(x + h / 2 * second, u)
    fourth = derivative(x + h * third, u)
    return x + h / 6 * (first + 2 * second + 2 * third + fourth)
