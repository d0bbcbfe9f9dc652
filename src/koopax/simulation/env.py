"""A learned simulator as a Gymnasium environment, and as a vector environment of many copies."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import ArrayLike

from koopax._errors import KoopaxError
from koopax._types import Array
from koopax.data.episodes import Episodes
from koopax.models.dynamics import DynamicsModel
from koopax.planning.learned import RewardFunction
from koopax.simulation.programs import programs_of
from koopax.simulation.simulator import Simulated, check_bounds, make_simulator
from koopax.simulation.starts import StartAt, make_starts


class _World:
    """What one environment and a vector of them have in common."""

    def __init__(
        self,
        model: DynamicsModel | Sequence[DynamicsModel],
        starts: Episodes | ArrayLike,
        start_at: StartAt,
        action_bounds: tuple | None,
        max_steps: int,
        **options: Any,
    ):
        self.simulator = make_simulator(model, **options)
        self.programs, self.arrays = programs_of(self.simulator)
        config = self.simulator.model.config
        sizes = {"state_size": config.state_size, "action_size": config.action_size}
        self.starts = make_starts(starts, **sizes, start_at=start_at)
        if action_bounds is None:
            if not isinstance(starts, Episodes):
                raise KoopaxError("action_bounds are not known: give (low, high), or episodes as starts.")
            action_bounds = data_action_bounds(starts)
        if max_steps < 1:
            raise KoopaxError(f"max_steps is {max_steps}: use 1 or more.")
        low, high = check_bounds(action_bounds, config.action_size, "action_bounds")
        self.max_steps = max_steps
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (config.state_size,), np.float32)


def data_action_bounds(episodes: Episodes) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest actions that were taken; a component that never varied gets a width of 2."""
    found = episodes.statistics().action
    low, high = np.asarray(found.minimum, np.float32), np.asarray(found.maximum, np.float32)
    still = low >= high
    return np.where(still, low - 1, low), np.where(still, high + 1, high)


class SimulatedEnv(gymnasium.Env):
    """A trained model as a Gymnasium environment.

    `reset(options={"state": s})` starts at a state of your own. `info["uncertainty"]` is how far several models are
    apart, see `koopax.simulation.simulator`.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium's own form)

    def __init__(
        self,
        model: DynamicsModel | Sequence[DynamicsModel],
        *,
        starts: Episodes | ArrayLike,
        start_at: StartAt = "first",
        reward: RewardFunction | None = None,
        bounds: tuple | None = None,
        most_uncertain: float | None = None,
        penalty: float = 0.0,
        action_bounds: tuple | None = None,
        max_steps: int = 1000,
        render_mode: None = None,
    ):
        """Make a simulator of one model, or of several models of the same system.

        Args:
            model: a trained model; or several, such as those of several seeds, whose means are predicted.
            starts: episodes, or an array `[starts, state]`; a reset draws one of them.
            start_at: "first" starts at the first states of episodes, "any" at any state that they went through.
            reward: a JAX function of (states, actions, next_states) over the last axis, instead of the learned reward.
            bounds: (low, high) of states, outside of which an episode terminates; one number each, or one a component.
            most_uncertain: the disagreement of several models above which an episode terminates, in standard
                deviations of the data.
            penalty: how much of the disagreement is taken from the reward.
            action_bounds: (low, high) of actions; those of the episodes by default. Actions are clipped to them.
            max_steps: steps after which an episode is truncated.
            render_mode: None, as there is nothing to see.
        """
        options = {"reward": reward, "bounds": bounds, "most_uncertain": most_uncertain, "penalty": penalty}
        self._world = _World(model, starts, start_at, action_bounds, max_steps, **options)
        self.action_space, self.observation_space = self._world.action_space, self._world.observation_space
        self.render_mode = render_mode
        self._now: Simulated | None = None
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode, at a state drawn from the starts or at `options["state"]`."""
        super().reset(seed=seed)
        starts, world = self._world.starts, self._world
        if options and "state" in options:
            config = world.simulator.model.config
            starts = make_starts(options["state"], state_size=config.state_size, action_size=config.action_size)
        state = starts[int(self.np_random.integers(len(starts)))]
        self._now, self._steps = world.programs.start(world.arrays, state[None]), 0
        return np.array(state), self._info(0.0)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """What the model expects of an action."""
        if self._now is None:
            raise KoopaxError("step was called before reset: reset the environment first.")
        space = self._world.action_space
        taken = np.clip(np.asarray(action, np.float32).reshape(space.shape), space.low, space.high)
        self._now, outcome = self._world.programs.step(self._world.arrays, self._now, taken[None])
        self._steps += 1
        state, reward, terminated, uncertainty = (np.asarray(part)[0] for part in outcome)
        truncated = self._steps >= self._world.max_steps
        return state, float(reward), bool(terminated), truncated, self._info(float(uncertainty))

    def _info(self, uncertainty: float) -> dict[str, float]:
        return {"uncertainty": uncertainty} if len(self._world.simulator.steppers) > 1 else {}


class SimulatedVectorEnv(VectorEnv):
    """Many copies of a simulated environment, which are stepped and reset by one compiled call.

    A copy whose episode ends starts again in the same step (`AutoresetMode.SAME_STEP`): its observation is the new
    start, and `info["final_obs"]` holds the last states of all copies, with `info["_final_obs"]` telling which count.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        model: DynamicsModel | Sequence[DynamicsModel],
        num_envs: int,
        *,
        starts: Episodes | ArrayLike,
        start_at: StartAt = "first",
        reward: RewardFunction | None = None,
        bounds: tuple | None = None,
        most_uncertain: float | None = None,
        penalty: float = 0.0,
        action_bounds: tuple | None = None,
        max_steps: int = 1000,
    ):
        """As `SimulatedEnv`, for `num_envs` copies."""
        if num_envs < 1:
            raise KoopaxError(f"num_envs is {num_envs}: use 1 or more.")
        options = {"reward": reward, "bounds": bounds, "most_uncertain": most_uncertain, "penalty": penalty}
        self._world = _World(model, starts, start_at, action_bounds, max_steps, **options)
        self.num_envs = num_envs
        self.single_action_space = self._world.action_space
        self.single_observation_space = self._world.observation_space
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self._starts = jnp.asarray(self._world.starts)
        self._now: Simulated | None = None

    def reset(  # type: ignore[override]  (Gymnasium's own types are narrower than what it calls it with)
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict]:
        """Start every copy at a state drawn from the starts."""
        del options
        super().reset(seed=seed)
        self._key = jax.random.key(int(self.np_random.integers(2**31)))
        self._now = self._world.programs.draw(self._world.arrays, self._starts, self._next_key(), self.num_envs)
        return np.asarray(self._now.states), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:  # type: ignore[override]
        """One step of all copies; those that ended start again."""
        if self._now is None:
            raise KoopaxError("step was called before reset: reset the environments first.")
        space = self.single_action_space
        taken = np.clip(np.asarray(actions, np.float32), space.low, space.high)  # type: ignore[attr-defined]
        self._now, outcome, truncated = self._world.programs.step_again(
            self._world.arrays, self._now, taken, self._starts, self._next_key(), self._world.max_steps
        )
        truncated = np.asarray(truncated)
        ended = np.asarray(outcome.terminated) | truncated
        info: dict[str, Any] = {}
        if len(self._world.simulator.steppers) > 1:
            info["uncertainty"] = np.asarray(outcome.uncertainty)
        if ended.any():
            info |= {"final_obs": np.asarray(outcome.states), "_final_obs": ended}
        rewards, terminated = np.asarray(outcome.rewards), np.asarray(outcome.terminated)
        return np.asarray(self._now.states), rewards, terminated, truncated, info

    def _next_key(self) -> Array:
        self._key, used = jax.random.split(self._key)
        return used
