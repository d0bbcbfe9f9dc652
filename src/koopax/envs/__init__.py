"""Environments: one way to make them, to step several together, and to draw them."""

from koopax.envs.camera import Camera, make_drawing
from koopax.envs.lockstep import LockStep, Steps, episode_returns
from koopax.envs.make import action_bounds, make, refuse_module

__all__ = ["Camera", "LockStep", "Steps", "action_bounds", "episode_returns", "make", "make_drawing", "refuse_module"]
