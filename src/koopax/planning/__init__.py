"""Planners, one file each, what they see of a model, and control loops.

Names are imported when first used, so that `import koopax.planning` costs nothing.
"""

from typing import TYPE_CHECKING

from koopax._lazy import export_lazily

if TYPE_CHECKING:
    from koopax.planning.cem import CEM, CEMConfig
    from koopax.planning.choice import PLANNERS, QuadraticCost, make_lqr, make_planner, make_search
    from koopax.planning.constraints import Constraints
    from koopax.planning.control import control_environment, plan_many
    from koopax.planning.controller import Controller
    from koopax.planning.gradient import GradientConfig, GradientPlanner
    from koopax.planning.icem import ICEM, ICEMConfig
    from koopax.planning.learned import LearnedModel, RewardedModel, load_reward
    from koopax.planning.lqr import LQR, linearise
    from koopax.planning.mppi import MPPI, MPPIConfig
    from koopax.planning.planner import Decision, Diagnostics, Planner
    from koopax.planning.protocol import Box, PlanningModel, ProposingModel, RememberingModel, follow_policy
    from koopax.planning.qp import QP, QPConfig
    from koopax.planning.result import ControlProgress, ControlResult
    from koopax.planning.trained import control_trained

_MODULES = {
    "Box": "protocol",
    "CEM": "cem",
    "CEMConfig": "cem",
    "Constraints": "constraints",
    "ControlProgress": "result",
    "ControlResult": "result",
    "Controller": "controller",
    "Decision": "planner",
    "Diagnostics": "planner",
    "GradientConfig": "gradient",
    "GradientPlanner": "gradient",
    "ICEM": "icem",
    "ICEMConfig": "icem",
    "LQR": "lqr",
    "LearnedModel": "learned",
    "MPPI": "mppi",
    "MPPIConfig": "mppi",
    "PLANNERS": "choice",
    "Planner": "planner",
    "PlanningModel": "protocol",
    "ProposingModel": "protocol",
    "QP": "qp",
    "QPConfig": "qp",
    "QuadraticCost": "choice",
    "RememberingModel": "protocol",
    "RewardedModel": "learned",
    "control_environment": "control",
    "control_trained": "trained",
    "follow_policy": "protocol",
    "linearise": "lqr",
    "load_reward": "learned",
    "make_lqr": "choice",
    "make_planner": "choice",
    "make_search": "choice",
    "plan_many": "control",
}

__all__ = [
    "CEM",
    "ICEM",
    "LQR",
    "MPPI",
    "PLANNERS",
    "QP",
    "Box",
    "CEMConfig",
    "Constraints",
    "ControlProgress",
    "ControlResult",
    "Controller",
    "Decision",
    "Diagnostics",
    "GradientConfig",
    "GradientPlanner",
    "ICEMConfig",
    "LearnedModel",
    "MPPIConfig",
    "Planner",
    "PlanningModel",
    "ProposingModel",
    "QPConfig",
    "QuadraticCost",
    "RememberingModel",
    "RewardedModel",
    "control_environment",
    "control_trained",
    "follow_policy",
    "linearise",
    "load_reward",
    "make_lqr",
    "make_planner",
    "make_search",
    "plan_many",
]

__getattr__, __dir__ = export_lazily(__name__, _MODULES)
