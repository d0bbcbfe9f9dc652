"""Evaluation: prediction errors at every step, spectra, gradients through time, and statistics over runs.

Names are imported when first used, so that `import koopax.evaluation` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koopax.evaluation.errors import choose_windows, predict_windows, squared_errors
    from koopax.evaluation.gradients import GradientProfile, gradient_profile
    from koopax.evaluation.prediction import ErrorCurve, PredictionError, prediction_error
    from koopax.evaluation.spectrum import SpectrumAnalysis, analyse_spectrum, mode_importance

_MODULES = {
    "ErrorCurve": "prediction",
    "GradientProfile": "gradients",
    "PredictionError": "prediction",
    "SpectrumAnalysis": "spectrum",
    "analyse_spectrum": "spectrum",
    "choose_windows": "errors",
    "gradient_profile": "gradients",
    "mode_importance": "spectrum",
    "predict_windows": "errors",
    "prediction_error": "prediction",
    "squared_errors": "errors",
}

__all__ = [
    "ErrorCurve",
    "GradientProfile",
    "PredictionError",
    "SpectrumAnalysis",
    "analyse_spectrum",
    "choose_windows",
    "gradient_profile",
    "mode_importance",
    "predict_windows",
    "prediction_error",
    "squared_errors",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"koopax.evaluation.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'koopax.evaluation' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
