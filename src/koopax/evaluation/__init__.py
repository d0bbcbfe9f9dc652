"""Evaluation: prediction errors at every step, spectra, gradients through time, and statistics over runs.

Names are imported when first used, so that `import koopax.evaluation` costs nothing.
"""

from typing import TYPE_CHECKING

from koopax._lazy import export_lazily

if TYPE_CHECKING:
    from koopax.evaluation.calibration import Coverage, calibrate, coverage
    from koopax.evaluation.errors import choose_windows, predict_windows, squared_errors
    from koopax.evaluation.estimator import Estimator
    from koopax.evaluation.filter_fit import fit_noise
    from koopax.evaluation.filter_noise import FilterNoise
    from koopax.evaluation.gradients import GradientProfile, gradient_profile
    from koopax.evaluation.prediction import ErrorCurve, PredictionError, prediction_error
    from koopax.evaluation.spectrum import SpectrumAnalysis, analyse_spectrum, mode_importance
    from koopax.evaluation.whole import WholeEpisodes, whole_episodes

_MODULES = {
    "Coverage": "calibration",
    "ErrorCurve": "prediction",
    "Estimator": "estimator",
    "FilterNoise": "filter_noise",
    "GradientProfile": "gradients",
    "PredictionError": "prediction",
    "SpectrumAnalysis": "spectrum",
    "analyse_spectrum": "spectrum",
    "WholeEpisodes": "whole",
    "calibrate": "calibration",
    "choose_windows": "errors",
    "coverage": "calibration",
    "fit_noise": "filter_fit",
    "whole_episodes": "whole",
    "gradient_profile": "gradients",
    "mode_importance": "spectrum",
    "predict_windows": "errors",
    "prediction_error": "prediction",
    "squared_errors": "errors",
}

__all__ = [
    "Coverage",
    "ErrorCurve",
    "Estimator",
    "FilterNoise",
    "GradientProfile",
    "PredictionError",
    "SpectrumAnalysis",
    "WholeEpisodes",
    "analyse_spectrum",
    "calibrate",
    "choose_windows",
    "coverage",
    "fit_noise",
    "gradient_profile",
    "mode_importance",
    "predict_windows",
    "prediction_error",
    "squared_errors",
    "whole_episodes",
]

__getattr__, __dir__ = export_lazily(__name__, _MODULES)
