"""Environments: one way to make them, and to step several together."""

from koopax.envs.lockstep import LockStep, Steps, episode_returns
from koopax.envs.make import action_bounds, make

__all__ = ["LockStep", "Steps", "action_bounds", "episode_returns", "make"]
