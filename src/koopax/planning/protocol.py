"""What a planner sees of a model, and what planners share.

A planner searches for the actions a_0 … a_{H−1} that maximise

    G = Σ_{t=0}^{h−1} γᵗ r(x_t, a_t) + γʰ V(x_h),        x_0 = encode(o),  h ≤ H,

over N candidates that start from the same observation. Everything is written for one environment, in pure JAX, with
the model as an argument: `jax.vmap` over observations, plan states and keys plans for several environments.

Arrays are time-major: actions `[time, candidate, action]` in the environment's own units, rewards `[time, candidate]`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import KoopaxError
from koopax._types import Array, Float, PRNGKeyArray

# What all candidates of one plan share: the first latent, and whatever can be computed from it once.
PlanStart: TypeAlias = Any
# A pytree with leaves [time+1, candidate, …]: x_0 … x_H of each candidate; or [candidate, …] for one of these steps.
PlanLatents: TypeAlias = Any
# What a planner carries from one decision to the next: its warm start.
PlanState: TypeAlias = Any


@runtime_checkable
class PlanningModel(Protocol):
    """All that a planner knows of a model."""

    def encode(self, observation: Float[Array, " state"], *, horizon: int) -> PlanStart:
        """What candidates of up to `horizon` steps share; a linear core computes λᵏ x_0, k = 0 … H, here, once."""
        ...

    def rollout(self, start: PlanStart, actions: Float[Array, "time candidate action"]) -> PlanLatents:
        """x_0 … x_T of every candidate, leaves `[time+1, candidate, …]`; any T up to the start's horizon."""
        ...

    def reward(
        self, latents: PlanLatents, actions: Float[Array, "time candidate action"]
    ) -> Float[Array, "time candidate"]:
        """r(x_t, a_t) for t = 0 … T−1, of latents x_0 … x_T as `rollout` returns them."""
        ...

    def value(self, latents: PlanLatents) -> Float[Array, " candidate"]:
        """V(x) of one step's latents, leaves `[candidate, …]`; zero for a model without a value."""
        ...


@runtime_checkable
class RememberingModel(PlanningModel, Protocol):
    """A model for which the actions just taken are part of where it is, because its observations don't tell them."""

    @property
    def remembered_actions(self) -> int:
        """How many of them it makes use of."""
        ...

    def encode(
        self,
        observation: Float[Array, " state"] | Float[Array, "observed state"],
        *,
        horizon: int,
        past_actions: Float[Array, "past action"] | None = None,
    ) -> PlanStart:
        """As `PlanningModel.encode`; past actions are in the environment's units, oldest first, NaN if unknown.

        A model with a history (`remembered_observations` above 0) takes the latest observations as well.
        """
        ...


def remembered_observations(model: Any) -> int:
    """How many observations before the newest a model makes use of; none, where it does not say."""
    return getattr(model, "remembered_observations", 0)


@runtime_checkable
class ProposingModel(PlanningModel, Protocol):
    """A model that also suggests candidates of its own, such as what its policy would do."""

    def propose(
        self, start: PlanStart, *, horizon: int, count: int, key: PRNGKeyArray
    ) -> Float[Array, "time candidate action"]:
        """`count` action sequences of `horizon` steps."""
        ...


def follow_policy(
    policy: Callable[[Any, PRNGKeyArray], Array],
    step: Callable[[Any, Array], Any],
    latents: Any,
    *,
    horizon: int,
    key: PRNGKeyArray,
) -> Float[Array, "time candidate action"]:
    """The actions of a policy that follows its own latents, in sequence: the usual body of `propose`.

    Args:
        policy: actions `[candidate, action]` of latents `[candidate, …]` and a key.
        step: the next latents of latents and actions.
        latents: where the candidates start, `[candidate, …]`.
        horizon: steps.
        key: for the policy's noise.
    """

    def move(now: Any, step_key: PRNGKeyArray) -> tuple[Any, Array]:
        actions = policy(now, step_key)
        return step(now, actions), actions

    return jax.lax.scan(move, latents, jax.random.split(key, horizon))[1]


class Box(eqx.Module):
    """Bounds of the actions. Planners search in the unit cube [−1, 1]ᴬ; this is the affine map to the environment's."""

    low: Float[Array, "..."]
    high: Float[Array, "..."]

    def __init__(self, low: Any = -1.0, high: Any = 1.0):
        """`low` and `high` are numbers or arrays `[action]`."""
        self.low, self.high = jnp.asarray(low, float), jnp.asarray(high, float)

    def from_unit(self, unit: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        """Actions of points of the cube; never outside the bounds, not even by rounding."""
        middle, half = (self.high + self.low) / 2, (self.high - self.low) / 2
        return jnp.clip(middle + half * unit, self.low, self.high)

    def to_unit(self, action: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        """Points of the cube of actions; those outside the bounds go to the cube's surface."""
        middle, half = (self.high + self.low) / 2, (self.high - self.low) / 2
        return jnp.clip((action - middle) / half, -1.0, 1.0)


def discounted_return(
    model: PlanningModel,
    start: PlanStart,
    actions: Float[Array, "time candidate action"],
    *,
    discount: float,
    horizon: int | Array | None = None,
    mixing: float | Array = 1.0,
    value_points: int | Sequence[int] = 1,
) -> Float[Array, " candidate"]:
    """G of every candidate, as it comes: it may be not finite.

    With λ = `mixing` < 1 it is the exponentially weighted mean of the h-step returns, in which no value counts alone:

        G_λ = (1 − λ) Σ_{h=1}^{H−1} λ^{h−1} G_h + λ^{H−1} G_H,    G_h = Σ_{t<h} γᵗ r_t + γʰ V(x_h).

    V is evaluated at the `value_points` steps h_i = ⌈i H / n⌉ only, or at the steps that it lists in ascending order,
    and each has the weight of all steps since the one before it: λ^{h_{i−1}} − λ^{h_i}, the last one λ^{h_{n−1}}.
    """
    longest = actions.shape[0]
    last = jnp.asarray(longest if horizon is None else horizon)
    if isinstance(value_points, int):
        count = min(value_points, longest)
        value_points = [-(-i * longest // count) for i in range(1, count + 1)]
    count = len(value_points)
    latents = model.rollout(start, actions)
    rewards = model.reward(latents, actions)
    # Points beyond the horizon fall on it; only the first of them and the last have a weight there.
    points = jnp.minimum(jnp.asarray(value_points), last)
    passed = (mixing**points).astype(rewards.dtype)
    weights = jnp.concatenate([jnp.ones(1, rewards.dtype), passed[:-1]]).at[:-1].add(-passed[:-1])
    step = jnp.arange(longest)
    reached = (step[:, None] < points) @ weights
    # `where`, not a product: what does not count must not count even if it is not finite.
    counted = jnp.where((step < last)[:, None], rewards * (reached * discount**step)[:, None], 0.0)
    ends = jax.tree.map(lambda leaf: leaf[points].reshape(-1, *leaf.shape[2:]), latents)
    values = model.value(ends).reshape(count, -1)
    valued = jnp.where((weights > 0)[:, None], (weights * discount**points)[:, None] * values, 0.0)
    return jnp.sum(counted, axis=0) + jnp.sum(valued, axis=0)


def ranked(values: Float[Array, " candidate"]) -> Float[Array, " candidate"]:
    """Values that can be sorted: one that is not finite ranks last."""
    return jnp.where(jnp.isfinite(values), values, -jnp.inf)


def shifted(plan: Float[Array, "time *rest"]) -> Float[Array, "time *rest"]:
    """A plan one step later: its first action is done, and nothing is known of the new last one."""
    return jnp.concatenate([plan[1:], jnp.zeros_like(plan[:1])])


def within(plan: Float[Array, "time *rest"], horizon: int | Array | None) -> Float[Array, "time *rest"]:
    """A plan that is zero from the horizon on, about which nothing was learned; whole without a horizon."""
    if horizon is None:
        return plan
    counts = jnp.arange(plan.shape[0]) < horizon
    return jnp.where(counts.reshape(-1, *([1] * (plan.ndim - 1))), plan, 0.0)


def explored(
    unit: Float[Array, " action"], std: float | Array, explore: bool | Array, *, key: PRNGKeyArray
) -> Float[Array, " action"]:
    """A point of the cube with noise where exploring; it stays in the cube."""
    noise = std * jax.random.normal(key, unit.shape)
    return jnp.clip(unit + jnp.where(explore, noise, 0.0), -1.0, 1.0)


def check_positive(config: Any, *names: str, **limits: int) -> None:
    """Raise unless those settings are positive and none exceeds its limit, which is a number of samples."""
    for name in names:
        value = getattr(config, name)
        if not value > 0:
            raise KoopaxError(f"{name} is {value}: use a positive number.")
    for name, limit in limits.items():
        if getattr(config, name) > limit:
            raise KoopaxError(f"{name} is {getattr(config, name)}, but there are {limit} samples: use fewer.")


def restarted(initial: PlanState, states: PlanState, ended: Array) -> PlanState:
    """Plan states `[environment, …]` in which those of ended episodes `[environment]` are `initial` again."""

    def choose(fresh: Array, old: Array) -> Array:
        return jnp.where(ended.reshape(-1, *([1] * (old.ndim - 1))), fresh, old)

    return jax.tree.map(choose, initial, states)
