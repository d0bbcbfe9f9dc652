"""koopax: learned dynamics models that predict hundreds of steps ahead.

The public names are imported when they are first used, so that `import koopax` and `koopax --help` are instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from koopax._errors import KoopaxError, KoopaxWarning
    from koopax.collection.collecting import collect
    from koopax.collection.loading import load
    from koopax.data import Episodes
    from koopax.evaluation.calibration import calibrate, coverage
    from koopax.evaluation.estimator import Estimator
    from koopax.evaluation.filter_fit import fit_noise
    from koopax.evaluation.gradients import gradient_profile
    from koopax.evaluation.prediction import prediction_error
    from koopax.evaluation.spectrum import analyse_spectrum
    from koopax.exporting.export import export_model as export
    from koopax.models.dynamics import DynamicsModel
    from koopax.models.ensemble import Ensemble
    from koopax.models.files import load_model
    from koopax.planning.controller import Controller
    from koopax.planning.trained import control_trained as plan
    from koopax.reporting.build import write_report as report
    from koopax.simulation.env import SimulatedEnv, SimulatedVectorEnv
    from koopax.training.ensembles import load_ensemble
    from koopax.training.fitting import fit, fit_seeds
    from koopax.training.run import Run

_HOMES = {
    "Controller": "koopax.planning.controller",
    "DynamicsModel": "koopax.models.dynamics",
    "Ensemble": "koopax.models.ensemble",
    "Episodes": "koopax.data",
    "Estimator": "koopax.evaluation.estimator",
    "KoopaxError": "koopax._errors",
    "KoopaxWarning": "koopax._errors",
    "Run": "koopax.training.run",
    "SimulatedEnv": "koopax.simulation.env",
    "SimulatedVectorEnv": "koopax.simulation.env",
    "analyse_spectrum": "koopax.evaluation.spectrum",
    "calibrate": "koopax.evaluation.calibration",
    "collect": "koopax.collection.collecting",
    "coverage": "koopax.evaluation.calibration",
    "export": "koopax.exporting.export:export_model",
    "fit": "koopax.training.fitting",
    "fit_noise": "koopax.evaluation.filter_fit",
    "fit_seeds": "koopax.training.fitting",
    "gradient_profile": "koopax.evaluation.gradients",
    "load": "koopax.collection.loading",
    "load_ensemble": "koopax.training.ensembles",
    "load_model": "koopax.models.files",
    "plan": "koopax.planning.trained:control_trained",
    "prediction_error": "koopax.evaluation.prediction",
    "report": "koopax.reporting.build:write_report",
}

__all__ = [
    "Controller",
    "DynamicsModel",
    "Ensemble",
    "Episodes",
    "Estimator",
    "KoopaxError",
    "KoopaxWarning",
    "Run",
    "SimulatedEnv",
    "SimulatedVectorEnv",
    "__version__",
    "analyse_spectrum",
    "calibrate",
    "collect",
    "coverage",
    "export",
    "fit",
    "fit_noise",
    "fit_seeds",
    "gradient_profile",
    "load",
    "load_ensemble",
    "load_model",
    "plan",
    "prediction_error",
    "report",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module 'koopax' has no attribute {name!r}")
    home, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(home), attribute or name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("koopax")
    except PackageNotFoundError:  # a source tree on the path
        return "unknown"


def __dir__() -> list[str]:
    return __all__
