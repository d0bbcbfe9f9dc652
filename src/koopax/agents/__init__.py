"""Agents: a folder each, with the same file names, on one kind of run folder (`koopax.agents.run`).

The names that a user types are imported when they are first used:

- `SACConfig`, `train_sac`: Soft Actor-Critic from states; `export_experts`, `record_training`: what comes of a run.
- `TDMPCConfig`, `train_tdmpc`, `tdmpc_arm`: TD-MPC from states, with any latent dynamics core.
- `PixelSACConfig`, `train_pixel_sac`, `pixel_arm`: SAC from pixels, alone or with self-predictive representations.
- `read_agent`: what a run of any of them has written.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from koopax.agents.pixels.config import PixelSACConfig, pixel_arm
    from koopax.agents.pixels.train import train_pixel_sac
    from koopax.agents.recorded import read_agent
    from koopax.agents.sac.config import SACConfig
    from koopax.agents.sac.experts import export_experts
    from koopax.agents.sac.record import record_training
    from koopax.agents.sac.train import train_sac
    from koopax.agents.tdmpc.config import TDMPCConfig, tdmpc_arm
    from koopax.agents.tdmpc.train import train_tdmpc

_HOMES = {
    "PixelSACConfig": "koopax.agents.pixels.config",
    "SACConfig": "koopax.agents.sac.config",
    "TDMPCConfig": "koopax.agents.tdmpc.config",
    "export_experts": "koopax.agents.sac.experts",
    "pixel_arm": "koopax.agents.pixels.config",
    "read_agent": "koopax.agents.recorded",
    "record_training": "koopax.agents.sac.record",
    "tdmpc_arm": "koopax.agents.tdmpc.config",
    "train_pixel_sac": "koopax.agents.pixels.train",
    "train_sac": "koopax.agents.sac.train",
    "train_tdmpc": "koopax.agents.tdmpc.train",
}

__all__ = [
    "PixelSACConfig",
    "SACConfig",
    "TDMPCConfig",
    "export_experts",
    "pixel_arm",
    "read_agent",
    "record_training",
    "tdmpc_arm",
    "train_pixel_sac",
    "train_sac",
    "train_tdmpc",
]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'koopax.agents' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
