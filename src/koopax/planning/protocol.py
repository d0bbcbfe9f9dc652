"""What a planner sees of a model, and what a user sees of a planner.

A planner searches for the actions a_0 … a_{H−1} that maximise

    G = Σ_{t=0}^{h−1} γᵗ r(x_t, a_t) + γʰ V(x_h),        x_0 = encode(o),  h ≤ H,

over N candidates that start from the same observation. Everything is written for one environment, in pure JAX, with
the model as an argument: `jax.vmap` over observations, plan states and keys plans for several environments.

Arrays are time-major: actions `[time, candidate, action]` in the environment's own units, rewards `[time, candidate]`.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

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


class Diagnostics(NamedTuple):
    """How a search went."""

    value: Float[Array, ""]
    """G of the best candidate."""
    std: Float[Array, ""]
    """Mean standard deviation of the first action at the end of the search, in units of the cube; 0 without one."""
    nonfinite: Float[Array, ""]
    """Share of the last candidates whose G was not finite."""


class Decision(NamedTuple):
    """What a planner decided."""

    action: Float[Array, " action"]
    """The action to take now, within the bounds."""
    state: PlanState
    """Warm start of the next decision."""
    diagnostics: Diagnostics
    """How the search went."""


class Planner(eqx.Module):
    """Chooses actions by searching through a model. The search's state is separate: it can be scanned and saved."""

    box: eqx.AbstractVar[Box]

    @abc.abstractmethod
    def init(self, action_size: int) -> PlanState:
        """The state at an episode's start."""

    @abc.abstractmethod
    def plan(
        self,
        model: PlanningModel,
        observation: Float[Array, " state"],
        state: PlanState,
        *,
        key: PRNGKeyArray,
        explore: bool | Array = False,
        horizon: int | Array | None = None,
    ) -> Decision:
        """The action for one observation.

        Args:
            model: what to search through.
            observation: of one environment.
            state: what the last decision of this episode returned, or `init`.
            key: for candidates and exploration.
            explore: add the planner's exploration noise; may be traced.
            horizon: h in G, from 1 to the planner's own H, which it is by default; may be traced.
        """


def discounted_return(
    model: PlanningModel,
    start: PlanStart,
    actions: Float[Array, "time candidate action"],
    *,
    discount: float,
    horizon: int | Array | None = None,
) -> Float[Array, " candidate"]:
    """G of every candidate, as it comes: it may be not finite."""
    longest = actions.shape[0]
    last = longest if horizon is None else horizon
    latents = model.rollout(start, actions)
    rewards = model.reward(latents, actions)
    step = jnp.arange(longest)
    # `where`, not a product: what lies beyond the horizon must not count even if it is not finite.
    counted = jnp.where((step < last)[:, None], rewards * (discount**step)[:, None], 0.0)
    end = jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, last, 0, keepdims=False), latents)
    return jnp.sum(counted, axis=0) + discount ** jnp.asarray(last, rewards.dtype) * model.value(end)


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
