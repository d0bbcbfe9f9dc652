"""Small systems with known equations, simulated: what a few hundred rows of a log look like, and the truth behind them.

| name         | ẋ = f(x, u)                                                        |
|--------------|--------------------------------------------------------------------|
| `linear`     | two damped oscillations, one of which drives the other             |
| `van-der-pol`| ẍ = (1 − x²) ẋ − x + u                                             |
| `duffing`    | ẍ = x − x³ − 0.3 ẋ + u, two wells                                  |
| `pendulum`   | θ̈ = −9.81 sin θ − 0.1 θ̇ + u                                         |
| `two-mass`   | ẍ = −4 x − 4 (x − y) − 0.2 ẋ + 4 u,  ÿ = −4 (y − x) − 0.2 ẏ          |
| `circuit`    | i̇ = u − i − v,  v̇ = i − 0.2 v − 0.3 v³ − (v − w),  ẇ = v − w          |
| `lorenz`     | ẋ = 10 (y − x),  ẏ = x (28 − z) − y,  ż = x y − 8/3 z, without input  |

The circuit is a coil, a diode-like resistor and two capacitors, driven by the voltage u. The input is constant over a
step and drawn anew every fifth; Runge–Kutta of fourth order, four substeps a step.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from koopax.data.episodes import Episodes
from koopax.envs.plants import runge_kutta

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
    settle: int = 0
    """Steps that pass before an episode begins, so that it begins where the system stays."""


def _linear(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    return x @ _OSCILLATIONS.T + u[:, None] * _PUSH


def _van_der_pol(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    return np.stack([x[:, 1], (1 - x[:, 0] ** 2) * x[:, 1] - x[:, 0] + u], axis=1)


def _duffing(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    return np.stack([x[:, 1], x[:, 0] - x[:, 0] ** 3 - 0.3 * x[:, 1] + u], axis=1)


def _pendulum(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    return np.stack([x[:, 1], -9.81 * np.sin(x[:, 0]) - 0.1 * x[:, 1] + u], axis=1)


def _two_mass(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    near, speed, far, far_speed = x.T
    first = -4 * near - 4 * (near - far) - 0.2 * speed + 4 * u
    return np.stack([speed, first, far_speed, -4 * (far - near) - 0.2 * far_speed], axis=1)


def _circuit(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    current, inner, outer = x.T
    return np.stack(
        [u - current - inner, current - 0.2 * inner - 0.3 * inner**3 - (inner - outer), inner - outer], axis=1
    )


def _lorenz(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    del u
    first, second, third = x.T
    return np.stack([10 * (second - first), first * (28 - third) - second, first * second - 8 / 3 * third], axis=1)


SYSTEMS = {
    "linear": System(_linear, (1.5, 1.5, 1.5, 1.5), 0.1),
    "van-der-pol": System(_van_der_pol, (2.0, 2.0), 0.05),
    "duffing": System(_duffing, (1.5, 1.5), 0.05),
    "pendulum": System(_pendulum, (1.5, 1.5), 0.05),
    "two-mass": System(_two_mass, (1.0, 1.0, 1.0, 1.0), 0.1),
    "circuit": System(_circuit, (1.0, 1.0, 1.0), 0.2),
    "lorenz": System(_lorenz, (10.0, 10.0, 10.0), 0.02, settle=500),
}


def simulate(
    name: str,
    episodes: int,
    steps: int,
    *,
    seed: int,
    noise_db: float | None = None,
    sensors: tuple[int, ...] | None = None,
    forced: bool = True,
) -> Episodes:
    """Episodes of a system.

    Args:
        name: of the system.
        episodes: how many.
        steps: of each.
        seed: of starts, inputs and noise.
        noise_db: decibels by which the noise of the measurements lies below the signal; None for none.
        sensors: the components of the state that are measured; None for all.
        forced: whether there is an input; without it the episodes have no actions.
    """
    system, rng = SYSTEMS[name], np.random.default_rng(seed)
    state = rng.uniform(-1, 1, (episodes, len(system.start))) * system.start
    inputs = np.repeat(rng.uniform(-1, 1, (-(-steps // HOLD), episodes)), HOLD, axis=0)[:steps] * forced

    def moved(state: np.ndarray, now: np.ndarray) -> np.ndarray:
        for _ in range(SUBSTEPS):
            state = runge_kutta(lambda x: system.derivative(x, now), state, system.step / SUBSTEPS)
        return state

    for _ in range(system.settle):
        state = moved(state, np.zeros(episodes))
    states = [state]
    for now in inputs:
        states.append(moved(states[-1], now))
    measured = np.stack(states, axis=1)
    if sensors is not None:
        measured = measured[:, :, list(sensors)]
    if noise_db is not None:
        measured = measured + 10 ** (-noise_db / 20) * measured.std(axis=(0, 1)) * rng.normal(size=measured.shape)
    actions = inputs.T[:, :, None].astype(np.float32) if forced else None
    return Episodes.from_arrays(measured.astype(np.float32), actions, step_seconds=system.step)
