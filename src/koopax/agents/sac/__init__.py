"""Soft Actor-Critic from states: `SACConfig`, `train` and what a run leaves behind."""

from koopax.agents.sac.config import SACConfig
from koopax.agents.sac.experts import export_experts
from koopax.agents.sac.record import record_training
from koopax.agents.sac.train import TrainResult, export_policy, read_config, read_curve, train

__all__ = [
    "SACConfig",
    "TrainResult",
    "export_experts",
    "export_policy",
    "read_config",
    "read_curve",
    "record_training",
    "train",
]
