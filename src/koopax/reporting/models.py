"""What the page shows of the models trained on one set of data, as plain JSON."""

import base64
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError, KoopaxWarning
from koopax.data.episodes import Episodes
from koopax.data.fingerprint import fingerprint
from koopax.data.inspection import summarise
from koopax.data.windows import Windows
from koopax.evaluation.gradients import gradient_profile
from koopax.evaluation.protocol import BASELINES, WINDOWS
from koopax.evaluation.spectrum import SpectrumAnalysis, analyse_spectrum, mode_importance
from koopax.models.dynamics import DynamicsModel, Prediction
from koopax.reporting.groups import DataGroup, Group
from koopax.reporting.intervals import interval
from koopax.reporting.numbers import band, number, numbers, thinned
from koopax.reporting.predictions import TestWindows, WindowErrors, choose_windows, errors_by_window, predict
from koopax.reporting.runs import ModelRun, Problem
from koopax.reporting.video import Rendering, panels
from koopax.training.tasks import check_unchanged, splits

QUANTITIES = ("state", "state_raw", "reward", "reward_raw")
POINTS = 400
"""Points of a training curve."""
IMPORTANCE_WINDOWS = 16
"""Windows that the importance of modes is measured on; it needs the decoder's Jacobian."""
PANELS = 3
"""Models in a video, besides the true motion."""


@dataclass(frozen=True)
class Effort:
    """How much a report computes and shows."""

    horizon: int = 100
    """Steps to predict."""
    windows: int = WINDOWS
    """Test windows."""
    trajectories: int = 8
    """Windows whose trajectories are shown."""
    videos: bool = True
    """Whether to render videos."""


Watch = Callable[[str], None]


def describe(data: DataGroup, effort: Effort, problems: list[Problem], watch: Watch) -> dict[str, Any]:
    """Everything the page shows of one set of data; what fails is added to `problems`."""
    document: dict[str, Any] = {"name": data.name, "models": [_training(group) for group in data.groups]}
    test, changed = _test_episodes(data, document, problems, watch)
    shown, rendering = [], None
    if test is not None:
        windows = choose_windows(test, horizon=effort.horizon, count=effort.windows)
        samples = windows.fixed.take(slice(effort.trajectories))
        shown = _predictions(data, windows, samples, changed, document, problems, watch)
        if shown:
            document |= _windows(windows, samples, shown)
            rendering = _start_video(windows.episodes, samples, shown, document, effort)
        _gradients(data, samples, document, watch)
    _spectra(data, test, document, watch)
    if rendering is not None:
        _finish_video(rendering, document, watch)
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


def _test_episodes(
    data: DataGroup, document: dict[str, Any], problems: list[Problem], watch: Watch
) -> tuple[Episodes | None, set[Path]]:
    """The test episodes, and the folders of the runs whose data has changed since, so that nothing is predicted."""
    run = data.groups[0].runs[0]
    if run.task is None:
        return None, set()
    watch(f"loading {data.name}")
    try:
        episodes = splits(run.task)
    except KoopaxError as error:
        problems.append(Problem(data.name, f"The data can't be read, so nothing is predicted: {error}"))
        return None, set()
    now, changed = fingerprint(episodes.train), set()
    for run in (run for group in data.groups for run in group.runs):
        try:
            check_unchanged(run.folder, data.name, now)
        except KoopaxError as error:
            problems.append(Problem(str(run.folder), f"Nothing is predicted: {error}"))
            changed.add(run.folder)
    document["summary"] = summarise(episodes.train) | {
        "test_episodes": episodes.test.num_episodes,
        "validation_episodes": episodes.validation.num_episodes,
        "all_returns": numbers(episodes.train.returns[thinned(episodes.train.num_episodes, 2000)], 5),
    }
    return episodes.test, changed


def _predictions(
    data: DataGroup,
    windows: TestWindows,
    samples: Windows,
    changed: set[Path],
    document: dict[str, Any],
    problems: list[Problem],
    watch: Watch,
) -> list[tuple[int, Prediction]]:
    """Add the errors of every group; returns what its first run predicts for the samples, with the group's number."""
    shown = []
    for number_, group in enumerate(data.groups):
        found: list[WindowErrors] = []
        for run in group.runs:
            if run.model is None or run.folder in changed:
                continue
            sizes = run.model.config.state_size, run.model.config.action_size
            if sizes != (windows.episodes.state_size, windows.episodes.action_size):
                problems.append(Problem(str(run.folder), f"Its model has sizes {sizes}, which its data has not."))
                continue
            watch(f"predicting with {group.label}, seed {run.seed}")
            errors = errors_by_window(run.model, windows)
            found.append(errors["model"])
            if len(found) == 1:
                shown.append((number_, predict(run.model, samples)))
                if "baselines" not in document:
                    document["baselines"] = {
                        name: {quantity: numbers(getattr(errors[name], quantity).mean(0)) for quantity in QUANTITIES}
                        for name in BASELINES
                    }
        if found:
            document["models"][number_] |= _error_document(found, windows)
    return shown


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


def _windows(windows: TestWindows, samples: Windows, shown: list[tuple[int, Prediction]]) -> dict[str, Any]:
    """The trajectories of the first few windows: true, and as predicted by the first run of each group."""
    metadata, count = windows.episodes.metadata, samples.rewards.shape[1]
    names = metadata.state_names or [f"state {i}" for i in range(windows.episodes.state_size)]

    def by_dimension(states: Any, rewards: Any) -> list[Any]:
        columns = np.concatenate([samples.states[:1], states]).transpose(1, 2, 0)
        return [[*numbers(columns[window]), numbers(rewards[:, window])] for window in range(count)]

    return {
        "horizon": windows.fixed.horizon,
        "windows": windows.fixed.num_windows,
        "trajectories": {
            "names": [*names, "reward"],
            "units": [metadata.units.get(name, "") for name in [*names, "reward"]],
            "windows": [
                f"episode {windows.episode[i] + 1}, steps {windows.first_step[i]} to "
                f"{windows.first_step[i] + windows.fixed.horizon}"
                for i in range(count)
            ],
            "true": by_dimension(samples.states[1:], samples.rewards),
            "predicted": {number_: by_dimension(predicted.states, predicted.rewards) for number_, predicted in shown},
        },
    }


def _start_video(
    test: Episodes,
    samples: Windows,
    shown: list[tuple[int, Prediction]],
    document: dict[str, Any],
    effort: Effort,
) -> Rendering | None:
    if not effort.videos:
        document["video_note"] = "Videos were left out on request."
        return None
    labelled = [(document["models"][i]["label"], predicted.states) for i, predicted in shown[:PANELS]]
    try:
        return Rendering(test.metadata.environment, panels(samples, 0, labelled))
    except (KoopaxError, OSError) as error:
        document["video_note"] = f"No video: {error}"
        return None


def _finish_video(rendering: Rendering, document: dict[str, Any], watch: Watch) -> None:
    watch("finishing the video")
    try:
        document["video"] = base64.b64encode(rendering.result()).decode()
    except KoopaxError as error:
        document["video_note"] = f"No video: {error}"


def _gradients(data: DataGroup, samples: Windows, document: dict[str, Any], watch: Watch) -> None:
    """Gradient profiles along the first window, one run per group."""
    for number_, group in enumerate(data.groups):
        run = next((run for run in group.runs if run.model is not None), None)
        if run is None or run.model is None or "error" not in document["models"][number_]:
            continue
        watch(f"following gradients through {group.label}")
        model = run.model
        actions = model.normaliser.normalise_action(jnp.asarray(samples.actions[:, 0]))
        start = model.encode(jnp.asarray(samples.states[0, 0]))
        profile = gradient_profile(model.core, start, actions, key=jax.random.key(0))
        last = profile.inputs[-1] / profile.at_loss[-1]
        document["models"][number_]["gradient"] = {"start": numbers(profile.transfer), "actions": numbers(last)}


def _spectra(data: DataGroup, test: Episodes | None, document: dict[str, Any], watch: Watch) -> None:
    """Eigenvalues before and after training, one run per group with a Koopman core."""
    for number_, group in enumerate(data.groups):
        run = next((run for run in group.runs if run.model is not None), None)
        if run is None or run.model is None or run.model.config.core != "koopman":
            continue
        watch(f"reading the spectrum of {group.label}")
        importance = None
        if test is not None and "error" in document["models"][number_]:
            importance = mode_importance(run.model, test, windows=IMPORTANCE_WINDOWS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KoopaxWarning)  # the page counts the aliased modes
            after = analyse_spectrum(run.model)
            before = analyse_spectrum(_initial(run.model, run.seed))
        document["models"][number_]["spectrum"] = _spectrum(before, after, importance)


def _initial(model: DynamicsModel, seed: int) -> DynamicsModel:
    """The model as it was before its first step."""
    return DynamicsModel(model.config, model.normaliser, key=jax.random.key(seed))


def _spectrum(before: SpectrumAnalysis, after: SpectrumAnalysis, importance: np.ndarray | None) -> dict[str, Any]:
    return {
        "before": {"real": numbers(np.real(before.discrete)), "imag": numbers(np.imag(before.discrete))},
        "after": {"real": numbers(np.real(after.discrete)), "imag": numbers(np.imag(after.discrete))},
        "half_life": numbers(after.half_life),
        "period": numbers(after.period),
        "half_life_before": numbers(before.half_life),
        "period_before": numbers(before.period),
        "importance": None if importance is None else numbers(importance, 3),
        "aliased": after.aliased.tolist(),
        "margin": number(after.stability_margin),
    }
