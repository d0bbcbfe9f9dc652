"""What the page shows of the models trained on one set of data, as plain JSON."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError
from koopax.data.episodes import Episodes
from koopax.data.fingerprint import fingerprint
from koopax.data.inspection import summarise
from koopax.data.windows import Windows
from koopax.evaluation.gradients import gradient_profile
from koopax.evaluation.protocol import BASELINES, WINDOWS
from koopax.models.encoding import past_of_windows
from koopax.reporting import modes
from koopax.reporting.films import Films
from koopax.reporting.groups import DataGroup, Group
from koopax.reporting.intervals import interval
from koopax.reporting.numbers import band, numbers, thinned
from koopax.reporting.predictions import TestWindows, WindowErrors, choose_windows, errors_by_window
from koopax.reporting.runs import ModelRun, Problem
from koopax.reporting.samples import Measured, choose_samples, trajectories
from koopax.training.regression import dmdc_reference
from koopax.training.run import same_fingerprint
from koopax.training.tasks import Splits, splits

QUANTITIES = ("state", "state_raw", "reward", "reward_raw")
POINTS = 400
"""Points of a training curve."""
CHANGED = (
    "No prediction is shown: the data has changed since this run was trained, so that the test episodes may be among "
    "those it was trained on. Restore the data, or train again."
)


@dataclass(frozen=True)
class Effort:
    """How much a report computes and shows."""

    horizon: int = 100
    """Steps to predict."""
    windows: int = WINDOWS
    """Test windows."""
    trajectories: int = 8
    """Windows whose trajectories are shown, besides each model's worst."""
    videos: bool = True
    """Whether to render videos."""


Watch = Callable[[str], None]

# Normalised errors beyond which a regression is said to diverge: a thousand times that of predicting the mean.
DIVERGED = 1e3


def describe(data: DataGroup, effort: Effort, problems: list[Problem], watch: Watch) -> dict[str, Any]:
    """Everything the page shows of one set of data; what fails is added to `problems`."""
    document: dict[str, Any] = {
        "name": data.name,
        "rewards": True,
        "models": [_training(group) for group in data.groups],
    }
    episodes = _load(data, document, problems, watch)
    tested: list[Measured] = []
    films = None
    if episodes is not None:
        document |= _summary(episodes)
        document["changed"] = not any(
            same_fingerprint(run.document, fingerprint(episodes.train)) for group in data.groups for run in group.runs
        )
        models = [run.model for group in data.groups for run in group.runs if run.model is not None]
        windows = choose_windows(episodes.test, horizon=effort.horizon, count=effort.windows, models=models)
        tested = _test(data, windows, episodes, document, problems, watch)
        if tested:
            samples = choose_samples(windows, tested, effort.trajectories)
            document |= {
                "horizon": windows.fixed.horizon,
                "windows": windows.fixed.num_windows,
                "of_frames": episodes.test.image_shape is not None,
                "trajectories": trajectories(windows, samples, tested),
            }
            films = Films(episodes.test, samples, tested) if effort.videos else None
            _gradients(tested, samples.values, document, watch)
    _spectra(data, tested, None if episodes is None else episodes.test, document, watch)
    if films is not None:
        watch("finishing the videos")
        document |= films.result()
    elif not effort.videos:
        document["video_note"] = "Videos were left out on request."
    return document


def _training(group: Group[ModelRun]) -> dict[str, Any]:
    """A group's name, size and training curves."""
    first = group.runs[0].document
    return {
        "label": group.label,
        "core": first["model"]["core"],
        "parameters": first.get("parameters"),
        "seeds": [run.seed for run in group.runs],
        "steps": max(run.document.get("outcome", {}).get("step", 0) for run in group.runs),
        "seconds": max(run.document.get("outcome", {}).get("seconds", 0.0) for run in group.runs),
        "training": [_curves(run) for run in group.runs],
    }


def _curves(run: ModelRun) -> dict[str, Any]:
    curves: dict[str, Any] = {}
    for name in ("state", "reward", "validation_state", "validation_reward"):
        lines = [line for line in run.metrics if {name, "step", "seconds"} <= set(line)]
        chosen = [lines[i] for i in thinned(len(lines), POINTS)]
        if chosen:
            curves[name] = {
                "step": [line["step"] for line in chosen],
                "seconds": numbers([line["seconds"] for line in chosen], 5),
                "value": numbers([line[name] for line in chosen]),
            }
    return {"seed": run.seed, "curves": curves}


def _load(data: DataGroup, document: dict[str, Any], problems: list[Problem], watch: Watch) -> Splits | None:
    """The episodes that the runs were trained, validated and tested on, where they can still be read."""
    task = data.groups[0].runs[0].task
    if task is None:
        _untested(document, "its data is not recorded")
        return None
    watch(f"loading {data.name}")
    try:
        return splits(task)
    except KoopaxError as error:
        problems.append(Problem(data.name, f"The data can't be read, so no prediction is shown: {error}"))
        _untested(document, "its data can't be read")
        return None


def _untested(document: dict[str, Any], reason: str) -> None:
    for model in document["models"]:
        model["untested"] = reason


def _summary(episodes: Splits) -> dict[str, Any]:
    """What is known of the data; `rewards` tells whether there are any."""
    train = episodes.train
    returns = numbers(train.returns[thinned(train.num_episodes, 2000)], 5) if train.has_rewards else []
    return {
        "rewards": train.has_rewards,
        "summary": summarise(train)
        | {
            "test_episodes": episodes.test.num_episodes,
            "validation_episodes": episodes.validation.num_episodes,
            "all_returns": returns,
        },
    }


def _test(
    data: DataGroup,
    windows: TestWindows,
    episodes: Splits,
    document: dict[str, Any],
    problems: list[Problem],
    watch: Watch,
) -> list[Measured]:
    """Add the errors of every group that can be tested on these episodes."""
    tested, trained_on = [], fingerprint(episodes.train)
    for number_, group in enumerate(data.groups):
        found: list[WindowErrors] = []
        for run in group.runs:
            reason = _hindrance(run, windows.episodes, trained_on, problems)
            if reason or run.model is None:
                document["models"][number_]["untested"] = reason
                continue
            watch(f"predicting with {group.label}, seed {run.seed}")
            errors = errors_by_window(run.model, windows)
            found.append(errors["model"])
            if len(found) == 1:
                tested.append(Measured(number_, group.label, run.model, run.seed, errors["model"].state.mean(1)))
                if "baselines" not in document:
                    known = {name: errors[name] for name in BASELINES} | _reference(data, episodes, windows)
                    document["baselines"] = {
                        name: {quantity: numbers(getattr(of, quantity).mean(0)) for quantity in QUANTITIES}
                        for name, of in known.items()
                    }
        if found:
            document["models"][number_] |= _error_document(found, windows)
    return tested


def _reference(data: DataGroup, episodes: Splits, windows: TestWindows) -> dict[str, WindowErrors]:
    """The errors of DMDc on the same episodes, so that everyone sees what a network adds; not where it is shown."""
    models = [run.model for group in data.groups for run in group.runs if run.model is not None]
    if any(model.config.name == "dmdc" for model in models) or episodes.train.image_shape is not None:
        return {}
    history = max(model.config.history for model in models)
    found = errors_by_window(dmdc_reference(episodes.train, episodes.validation, history=history), windows)["model"]
    # One that diverges would stretch every chart and tell nothing.
    return {"dmdc": found} if found.state.mean(0).max() < DIVERGED else {}


def _hindrance(run: ModelRun, test: Episodes, trained_on: str, problems: list[Problem]) -> str:
    """Why a run's model can't be tested, in a few words; a sentence on it is among the problems. Empty if it can."""
    if run.model is None:
        return "it has no finished model"
    if not same_fingerprint(run.document, trained_on):
        problems.append(Problem(str(run.folder), CHANGED))
        return "its data has changed since training"
    sizes = run.model.config.state_size, run.model.config.action_size
    if sizes != (test.state_size, test.action_size):
        problems.append(Problem(str(run.folder), f"Its model has sizes {sizes}, which its data has not."))
        return "its data has other sizes"
    return ""


def _error_document(found: list[WindowErrors], windows: TestWindows) -> dict[str, Any]:
    """Means over windows, with intervals over seeds where there are several, else over test episodes."""
    several = len(found) > 1

    def of(values: list[np.ndarray]) -> dict[str, Any]:
        return band(
            interval(np.stack([v.mean(0) for v in values])) if several else interval(values[0], windows.episode)
        )

    return {
        "error": {quantity: of([getattr(errors, quantity) for errors in found]) for quantity in QUANTITIES},
        "overall": {
            quantity: of([getattr(errors, quantity).mean(1, keepdims=True) for errors in found])
            for quantity in QUANTITIES
        },
        "per_dimension": of([errors.per_dimension for errors in found]),
        "tested": len(found),
        "interval_over": "seeds" if several else "test episodes",
        "nonfinite": sum(int((~np.isfinite(errors.state).all(1)).sum()) for errors in found),
        "predicted": sum(len(errors.state) for errors in found),
    }


def _gradients(tested: Sequence[Measured], samples: Windows, document: dict[str, Any], watch: Watch) -> None:
    """Gradient profiles along the first sample, one run per group."""
    for group in tested:
        watch(f"following gradients through {group.label}")
        model = group.model
        actions = model.normaliser.normalise_action(jnp.asarray(samples.actions[:, 0]))
        first = jax.tree.map(lambda array: jnp.asarray(array[:, :1]), samples)
        start = jax.vmap(model.encode_past)(past_of_windows(model, first))[0]
        profile = gradient_profile(model.core, start, actions, key=jax.random.key(0))
        last = profile.inputs[-1] / profile.at_loss[-1]
        document["models"][group.number]["gradient"] = {"start": numbers(profile.transfer), "actions": numbers(last)}


def _spectra(
    data: DataGroup, tested: Sequence[Measured], test: Episodes | None, document: dict[str, Any], watch: Watch
) -> None:
    """The modes of one run per group with a Koopman core: the one that was tested, where there is one."""
    by_number = {group.number: (group.model, group.seed) for group in tested}
    for number_, group in enumerate(data.groups):
        untested = [(run.model, run.seed) for run in group.runs if run.model is not None]
        model, seed = by_number[number_] if number_ in by_number else next(iter(untested), (None, 0))
        if model is None or model.config.core != "koopman":
            continue
        watch(f"reading the spectrum of {group.label}")
        measured_on = test if number_ in by_number else None
        document["models"][number_]["spectrum"] = modes.describe(model, seed, measured_on)
