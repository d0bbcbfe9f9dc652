"""Every table and figure by name: what `koopax reproduce` knows."""

from typing import Any

from koopax._errors import unknown_name
from koopax.experiments import (
    balance,
    constraints,
    first_steps,
    gradients,
    imagination,
    init_ablation,
    latent_ablation,
    longer_training,
    planning,
    planning_options,
    prediction,
    representation,
    search,
    sensors,
    small_data,
    speed,
    swing_up,
    uncertainty,
)
from koopax.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment[Any, Any]] = {
    experiment.name: experiment
    for experiment in (
        prediction.EXPERIMENT,
        speed.EXPERIMENT,
        init_ablation.EXPERIMENT,
        latent_ablation.EXPERIMENT,
        gradients.EXPERIMENT,
        planning.EXPERIMENT,
        planning.LONG,
        planning_options.EXPERIMENT,
        representation.EXPERIMENT,
        search.EXPERIMENT,
        first_steps.EXPERIMENT,
        longer_training.EXPERIMENT,
        imagination.EXPERIMENT,
        sensors.EXPERIMENT,
        small_data.EXPERIMENT,
        balance.EXPERIMENT,
        constraints.EXPERIMENT,
        swing_up.EXPERIMENT,
        uncertainty.EXPERIMENT,
    )
}


def experiment(name: str) -> Experiment[Any, Any]:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, list(EXPERIMENTS))
    return EXPERIMENTS[name]
