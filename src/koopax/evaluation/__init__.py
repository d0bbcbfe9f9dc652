"""Evaluation: prediction errors at every step, spectra, gradients through time, and statistics over runs.

Names are imported when first used, so that `import koopax.evaluation` costs nothing.
"""

from typing import TYPE_CHECKING

from koopax._lazy import export_lazily

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

__getattr__, __dir__ = export_lazily(__name__, _MODULES)
