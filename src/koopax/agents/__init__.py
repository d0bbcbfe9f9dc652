"""Agents: a folder each, with the same file names, on one kind of run folder (`koopax.agents.run`).

The names that a user types are imported when they are first used:

- `SACConfig`, `train_sac`: Soft Actor-Critic from states; `export_experts`, `record_training`: what comes of a run.
- `ImaginationConfig`, `train_imagination`: SAC in a learned simulator, from a fixed dataset.
- `TDMPCConfig`, `train_tdmpc`, `tdmpc_arm`: TD-MPC from states, with any latent dynamics core.
- `PixelSACConfig`, `train_pixel_sac`, `pixel_arm`: SAC from pixels, alone or with self-predictive representations.
- `read_agent`: what a run of any of them has written.
"""

from typing import TYPE_CHECKING

from koopax._lazy import export_lazily

if TYPE_CHECKING:
    from koopax.agents.imagination.config import ImaginationConfig
    from koopax.agents.imagination.train import train_imagination
    from koopax.agents.pixels.config import PixelSACConfig, pixel_arm
    from koopax.agents.pixels.train import train_pixel_sac
    from koopax.agents.recorded import read_agent
    from koopax.agents.sac.config import SACConfig
    from koopax.agents.sac.experts import export_experts
    from koopax.agents.sac.record import record_training
    from koopax.agents.sac.train import train_sac
    from koopax.agents.tdmpc.arms import tdmpc_arm
    from koopax.agents.tdmpc.config import TDMPCConfig
    from koopax.agents.tdmpc.train import train_tdmpc

_MODULES = {
    "ImaginationConfig": "imagination.config",
    "PixelSACConfig": "pixels.config",
    "SACConfig": "sac.config",
    "TDMPCConfig": "tdmpc.config",
    "export_experts": "sac.experts",
    "pixel_arm": "pixels.config",
    "read_agent": "recorded",
    "record_training": "sac.record",
    "tdmpc_arm": "tdmpc.arms",
    "train_imagination": "imagination.train",
    "train_pixel_sac": "pixels.train",
    "train_sac": "sac.train",
    "train_tdmpc": "tdmpc.train",
}

__all__ = [
    "ImaginationConfig",
    "PixelSACConfig",
    "SACConfig",
    "TDMPCConfig",
    "export_experts",
    "pixel_arm",
    "read_agent",
    "record_training",
    "tdmpc_arm",
    "train_imagination",
    "train_pixel_sac",
    "train_sac",
    "train_tdmpc",
]

__getattr__, __dir__ = export_lazily(__name__, _MODULES)
