"""Small plants to control: a double integrator, a pendulum about its upright point, and a cart with a pole.

| plant, and environment                            | state                       | ẋ = f(x, u)                       |
|---------------------------------------------------|-----------------------------|-----------------------------------|
| `double-integrator`, `koopax/DoubleIntegrator-v0` | position, velocity          | p̈ = u, 0.1 s a step               |
| `upright`, `koopax/Upright-v0`                    | angle, velocity             | θ̈ = 9.81 sin θ − 0.1 θ̇ + u, 0.03 s |
| `cart-pole`, `koopax/CartPole-v0`                 | position, angle, velocities | 1 m and 0.1 kg on 1 kg, 0.04 s    |

Angles are from upright. The last two are unstable: they fall by themselves, and an episode ends when they have. Reward:
−(xᵀ diag(q) x + r u²) of the state that an action leads to. Forces are constant over a step; Runge–Kutta of fourth
order, two substeps a step. The equations take NumPy or JAX arrays, so that they also serve as a planner's true model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

SUBSTEPS = 2
EPISODE_STEPS = 200
GRAVITY = 9.81


@dataclass(frozen=True)
class Plant:
    """A differential equation with one force, and where its episodes begin and end."""

    derivative: Callable[[Any, Any, Any], Any]
    """ẋ of a state [..., S] and a force [...], by the functions of `numpy` or `jax.numpy`."""
    names: tuple[str, ...]
    """Of the state's components."""
    start: tuple[float, ...]
    """Episodes begin evenly in ± this."""
    ends: tuple[float, ...]
    """An episode ends where a component leaves ± this; infinite for never."""
    force: float
    """Forces are in ± this."""
    step: float
    """Seconds of a step."""
    state_cost: tuple[float, ...]
    """q."""
    action_cost: float = 0.01
    """r."""

    def advance(self, state: Any, force: Any, xp: Any = np) -> Any:
        """The state [..., S] after a step under a force [...]."""
        for _ in range(SUBSTEPS):
            state = runge_kutta(lambda x: self.derivative(x, force, xp), state, self.step / SUBSTEPS)
        return state


def runge_kutta(derivative: Callable[[Any], Any], x: Any, h: float) -> Any:
    """The state after h seconds of ẋ = f(x), by the method of fourth order."""
    first = derivative(x)
    second = derivative(x + h / 2 * first)
    third = derivative(x + h / 2 * second)
    fourth = derivative(x + h * third)
    return x + h / 6 * (first + 2 * second + 2 * third + fourth)


def _double_integrator(x: Any, u: Any, xp: Any) -> Any:
    return xp.stack([x[..., 1], u + 0 * x[..., 1]], axis=-1)


def _upright(x: Any, u: Any, xp: Any) -> Any:
    return xp.stack([x[..., 1], GRAVITY * xp.sin(x[..., 0]) - 0.1 * x[..., 1] + u], axis=-1)


def _cart_pole(x: Any, u: Any, xp: Any) -> Any:
    """A uniform pole of half-length l = 0.5 m on a cart without friction."""
    cart, pole, half = 1.0, 0.1, 0.5
    _, angle, velocity, turning = (x[..., i] for i in range(4))
    sine, cosine = xp.sin(angle), xp.cos(angle)
    pushed = (u + pole * half * turning**2 * sine) / (cart + pole)
    angular = (GRAVITY * sine - cosine * pushed) / (half * (4 / 3 - pole * cosine**2 / (cart + pole)))
    linear = pushed - pole * half * angular * cosine / (cart + pole)
    return xp.stack([velocity, turning, linear, angular], axis=-1)


FAR = float("inf")
PLANTS = {
    "double-integrator": Plant(
        _double_integrator, ("position", "velocity"), (1.0, 0.5), (FAR, FAR), 1.0, 0.1, (1.0, 0.1)
    ),
    "upright": Plant(_upright, ("angle", "velocity"), (0.2, 0.2), (1.0, FAR), 4.0, 0.03, (1.0, 0.1)),
    "cart-pole": Plant(
        _cart_pole,
        ("position", "angle", "velocity", "turning"),
        (0.5, 0.1, 0.1, 0.1),
        (5.0, 0.5, FAR, FAR),
        10.0,
        0.04,
        (1.0, 1.0, 0.1, 0.1),
    ),
}
IDS = {
    "koopax/DoubleIntegrator-v0": "double-integrator",
    "koopax/Upright-v0": "upright",
    "koopax/CartPole-v0": "cart-pole",
}


def register() -> None:
    """Make the plants known to Gymnasium, once."""
    import gymnasium

    for identifier, name in IDS.items():
        if identifier not in gymnasium.registry:
            gymnasium.register(
                identifier,
                entry_point="koopax.envs.plant_env:PlantEnv",
                max_episode_steps=EPISODE_STEPS,
                kwargs={"plant": name},
            )
