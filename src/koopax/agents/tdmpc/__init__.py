"""TD-MPC from states: `TDMPCConfig`, `train` and what a run leaves behind."""

from koopax.agents.tdmpc.config import ARMS, PUBLISHED, TDMPCConfig, arm
from koopax.agents.tdmpc.train import TrainResult, read_config, train

__all__ = ["ARMS", "PUBLISHED", "TDMPCConfig", "TrainResult", "arm", "read_config", "train"]
