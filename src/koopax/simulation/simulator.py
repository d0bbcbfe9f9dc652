"""A learned simulator as pure functions of batches: what environments and imagination share.

With several models, each goes its own way under the same actions. The state and the reward are their means, and how far
they are apart is the simulator's uncertainty:

    u = sqrt(mean over components of var over models of ŝ / σ),     σ the data's standard deviation,

so that 0 is agreement and 1 is as far apart as two states of the data are. It grows along a rollout.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError
from koopax._types import Array, Bool, Float, Int, PRNGKeyArray
from koopax.models.dynamics import DynamicsModel
from koopax.models.stepping import Stepper
from koopax.planning.learned import RewardFunction


class Simulated(NamedTuple):
    """Where the copies of a simulator are."""

    carried: tuple[Float[Array, "copies carried"], ...]
    """What each model goes on from."""
    states: Float[Array, "copies state"]
    steps: Int[Array, " copies"]
    """Steps since the start."""


class Outcome(NamedTuple):
    """What a step led to."""

    states: Float[Array, "copies state"]
    rewards: Float[Array, " copies"]
    terminated: Bool[Array, " copies"]
    uncertainty: Float[Array, " copies"]
    """Zero for a single model."""


class Limits(NamedTuple):
    """Where an episode of a simulator ends."""

    low: Float[Array, " state"]
    high: Float[Array, " state"]
    uncertainty: Float[Array, ""]


class Simulator(eqx.Module):
    """One model or several, the reward, and where episodes end."""

    steppers: tuple[Stepper, ...]
    limits: Limits
    penalty: float = eqx.field(static=True)
    """How much of the uncertainty is taken from the reward."""
    reward: RewardFunction | None = eqx.field(static=True)

    @property
    def model(self) -> DynamicsModel:
        """The first of the models, which tells sizes and units."""
        return self.steppers[0].model

    def start(self, states: Float[Array, "copies state"]) -> Simulated:
        """Copies that start at these states, of which nothing before is known."""
        carried = tuple(jax.vmap(stepper.begin)(states) for stepper in self.steppers)
        return Simulated(carried, states, jnp.zeros(states.shape[0], jnp.int32))

    def step(self, now: Simulated, actions: Float[Array, "copies action"]) -> tuple[Simulated, Outcome]:
        """One step of every copy. One whose prediction is not finite ends where it was."""
        found = [jax.vmap(own.step)(at, actions) for own, at in zip(self.steppers, now.carried, strict=True)]
        every = jnp.stack([each.state for each in found])
        states = jnp.mean(every, axis=0)
        if self.reward is None:
            rewards = jnp.mean(jnp.stack([each.reward for each in found]), axis=0)
        else:
            rewards = self.reward(now.states[None], actions[None], states[None])[0]
        spread = every / self.model.normaliser.state_std
        uncertainty = jnp.sqrt(jnp.mean(jnp.var(spread, axis=0), axis=-1))
        lost = ~(jnp.all(jnp.isfinite(states), axis=-1) & jnp.isfinite(rewards))
        outside = jnp.any((states < self.limits.low) | (states > self.limits.high), axis=-1)
        rewards = jnp.where(lost, 0.0, rewards - self.penalty * uncertainty)
        states = jnp.where(lost[:, None], now.states, states)
        terminated = lost | outside | (uncertainty > self.limits.uncertainty)
        outcome = Outcome(states, rewards, terminated, jnp.where(lost, jnp.inf, uncertainty))
        return Simulated(tuple(each.carried for each in found), states, now.steps + 1), outcome


def draw(simulator: Simulator, starts: Float[Array, "starts state"], key: PRNGKeyArray, count: int) -> Simulated:
    """So many copies at states drawn from the starts."""
    return simulator.start(starts[jax.random.randint(key, (count,), 0, starts.shape[0])])


def restart(
    simulator: Simulator,
    now: Simulated,
    ended: Bool[Array, " copies"],
    starts: Float[Array, "starts state"],
    key: PRNGKeyArray,
) -> Simulated:
    """The copies, those that ended at a new start; nothing is encoded while none did."""

    def start_again(now: Simulated) -> Simulated:
        fresh = draw(simulator, starts, key, ended.shape[0])
        return jax.tree.map(lambda new, old: jnp.where(ended.reshape(-1, *[1] * (old.ndim - 1)), new, old), fresh, now)

    return jax.lax.cond(jnp.any(ended), start_again, lambda same: same, now)


def make_simulator(
    model: DynamicsModel | Sequence[DynamicsModel],
    *,
    reward: RewardFunction | None = None,
    bounds: tuple | None = None,
    most_uncertain: float | None = None,
    penalty: float = 0.0,
) -> Simulator:
    """A simulator of one model or of several of the same system, whose disagreement is its uncertainty."""
    models = (model,) if isinstance(model, DynamicsModel) else tuple(model)
    if not models:
        raise KoopaxError("a simulator needs a model: the list is empty.")
    sizes = {(each.config.state_size, each.config.action_size) for each in models}
    if len(sizes) > 1:
        raise KoopaxError(f"the models have states and actions of sizes {sorted(sizes)}: give models of one system.")
    if len(models) == 1 and (most_uncertain is not None or penalty):
        raise KoopaxError(
            "one model has nobody to disagree with: give several, such as the models of several seeds, "
            "or leave out most_uncertain and penalty."
        )
    if most_uncertain is not None and not most_uncertain > 0:
        raise KoopaxError(f"most_uncertain is {most_uncertain}: use a positive number, such as 0.5.")
    if not penalty >= 0:
        raise KoopaxError(f"penalty is {penalty}: use 0 or more.")
    low, high = check_bounds(bounds, models[0].config.state_size)
    limit = jnp.inf if most_uncertain is None else most_uncertain
    limits = Limits(jnp.asarray(low), jnp.asarray(high), jnp.asarray(limit, jnp.float32))
    return Simulator(tuple(Stepper(each) for each in models), limits, float(penalty), reward)


def check_bounds(bounds: tuple | None, size: int, what: str = "bounds") -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest values of each component; infinite where there are none. One number serves for all."""
    if bounds is None:
        return np.full(size, -np.inf, np.float32), np.full(size, np.inf, np.float32)
    try:
        low, high = (np.broadcast_to(np.asarray(each, np.float32), (size,)) for each in bounds)
    except (TypeError, ValueError) as error:
        raise KoopaxError(f"{what} must be (low, high) with one number or {size} each: {bounds!r} is not.") from error
    if np.isnan(low).any() or np.isnan(high).any() or (low >= high).any():
        raise KoopaxError(f"{what} contradict each other: low {low.tolist()} must be below high {high.tolist()}.")
    return low.copy(), high.copy()
