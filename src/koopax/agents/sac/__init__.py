"""Soft Actor-Critic from states: `SACConfig`, `train` and what a run leaves behind."""

from koopax.agents.sac.config import SACConfig
from koopax.agents.sac.train import TrainResult, export_policy, read_config, read_curve, train

__all__ = ["SACConfig", "TrainResult", "export_policy", "read_config", "read_curve", "train"]
