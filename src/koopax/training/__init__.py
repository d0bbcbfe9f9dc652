"""Training: losses, one gradient step, the loop around it, and the run folder that keeps what it finds.

Names are imported when first used, so that `import koopax.training` costs nothing.
"""

from typing import TYPE_CHECKING

from koopax._lazy import export_lazily

if TYPE_CHECKING:
    from koopax.training.config import TrainConfig
    from koopax.training.fitting import fit, fit_seeds
    from koopax.training.losses import loss_terms
    from koopax.training.run import Run
    from koopax.training.tasks import TrainTask, run_task, run_task_seeds, splits
    from koopax.training.trained import load_trained, model_and_test_episodes

_MODULES = {
    "Run": "run",
    "TrainConfig": "config",
    "TrainTask": "tasks",
    "fit": "fitting",
    "fit_seeds": "fitting",
    "load_trained": "trained",
    "loss_terms": "losses",
    "model_and_test_episodes": "trained",
    "run_task": "tasks",
    "run_task_seeds": "tasks",
    "splits": "tasks",
}

__all__ = [
    "Run",
    "TrainConfig",
    "TrainTask",
    "fit",
    "fit_seeds",
    "load_trained",
    "loss_terms",
    "model_and_test_episodes",
    "run_task",
    "run_task_seeds",
    "splits",
]

__getattr__, __dir__ = export_lazily(__name__, _MODULES)
