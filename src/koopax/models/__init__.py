"""Models: normaliser, encoder, latent core, decoder and reward; the cores, one file each.

Names are imported when first used, so that `import koopax.models` costs nothing.
"""

from typing import TYPE_CHECKING

from koopax._lazy import export_lazily

if TYPE_CHECKING:
    from koopax.models.config import ModelConfig
    from koopax.models.dssm import DSSMCore
    from koopax.models.dynamics import DynamicsModel
    from koopax.models.files import load_model, save_model
    from koopax.models.gru import GRUCore
    from koopax.models.images import make_image_decoder, make_image_encoder
    from koopax.models.koopman import KoopmanCore
    from koopax.models.latent import (
        CORES,
        CandidateStart,
        LatentDynamics,
        Memory,
        SequenceDynamics,
        make_core,
        steps_every,
    )
    from koopax.models.mlp import MLPCore
    from koopax.models.modes import SpectrumAnalysis
    from koopax.models.networks import MLP
    from koopax.models.prediction import OneStep, Prediction
    from koopax.models.presets import PRESETS, preset
    from koopax.models.recurrence import linear_recurrence, multiply, powers
    from koopax.models.spectrum import Spectrum, discretise, make_spectrum
    from koopax.models.transformer import TransformerCore

_MODULES = {
    "CORES": "latent",
    "CandidateStart": "latent",
    "DSSMCore": "dssm",
    "DynamicsModel": "dynamics",
    "GRUCore": "gru",
    "KoopmanCore": "koopman",
    "LatentDynamics": "latent",
    "MLP": "networks",
    "MLPCore": "mlp",
    "Memory": "latent",
    "ModelConfig": "config",
    "OneStep": "prediction",
    "PRESETS": "presets",
    "Prediction": "prediction",
    "SequenceDynamics": "latent",
    "Spectrum": "spectrum",
    "SpectrumAnalysis": "modes",
    "TransformerCore": "transformer",
    "discretise": "spectrum",
    "linear_recurrence": "recurrence",
    "load_model": "files",
    "make_core": "latent",
    "make_image_decoder": "images",
    "make_image_encoder": "images",
    "make_spectrum": "spectrum",
    "multiply": "recurrence",
    "powers": "recurrence",
    "preset": "presets",
    "save_model": "files",
    "steps_every": "latent",
}

__all__ = [
    "CORES",
    "MLP",
    "PRESETS",
    "CandidateStart",
    "DSSMCore",
    "DynamicsModel",
    "GRUCore",
    "KoopmanCore",
    "LatentDynamics",
    "MLPCore",
    "Memory",
    "ModelConfig",
    "OneStep",
    "Prediction",
    "SequenceDynamics",
    "Spectrum",
    "SpectrumAnalysis",
    "TransformerCore",
    "discretise",
    "linear_recurrence",
    "load_model",
    "make_core",
    "make_image_decoder",
    "make_image_encoder",
    "make_spectrum",
    "multiply",
    "powers",
    "preset",
    "save_model",
    "steps_every",
]

__getattr__, __dir__ = export_lazily(__name__, _MODULES)
