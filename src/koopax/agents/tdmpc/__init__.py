"""TD-MPC from states: `TDMPCConfig`, `train` and what a run leaves behind."""

from koopax.agents.tdmpc.config import PUBLISHED, TDMPCConfig
from koopax.agents.tdmpc.train import TrainResult, read_config, train

__all__ = ["PUBLISHED", "TDMPCConfig", "TrainResult", "read_config", "train"]
