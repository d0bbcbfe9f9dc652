"""What planners that search among candidates have in common: their bounds, their settings and a warm start."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from koopax._types import Array, Float
from koopax.planning.planner import Planner
from koopax.planning.protocol import Box, PlanState


class Plan(NamedTuple):
    """The last plan, in units of the cube."""

    mean: Float[Array, "time action"]


class SearchingPlanner(Planner):
    """Searches as far ahead as its config's `horizon`, from the last decision's plan on."""

    box: Box
    config: Any = eqx.field(static=True)

    def __init__(self, config: Any, box: Box | None):
        """`box` bounds the actions; ±1 by default."""
        self.config = config
        self.box = Box() if box is None else box

    @property
    def longest(self) -> int:
        """H: how many steps a plan has at most."""
        return self.config.horizon

    def init(self, action_size: int) -> PlanState:
        """A plan of zeros: the middle of the bounds."""
        return Plan(jnp.zeros((self.longest, action_size)))
