"""Figures of the planning experiment."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from koopax._plots import BLUE, INK, ORANGE, SKY, VERMILION, tidy
from koopax.evaluation.aggregate import performance_profile
from koopax.experiments.planning import MAXIMUM_RETURN, PUBLISHED_RETURNS, comparable_scores

STYLES = ((INK, ":", "^"), (BLUE, "-", "o"), (SKY, "--", "s"), (ORANGE, "-.", "D"), (VERMILION, "--", "v"))
PROFILE_POINTS = 101


def curves(found: list[dict[str, Any]]) -> Figure:
    """Returns against environment steps, one panel per task, and the performance profile where seeds allow one.

    Markers are evaluations, averaged over seeds; thin lines are the training episodes of each run. The dashed line is
    what TD-MPC's authors report after as many steps.
    """
    tasks = list(dict.fromkeys(cell["labels"]["task"] for cell in found))
    scores = comparable_scores(found)
    panels_wanted = len(tasks) + bool(scores)
    columns = min(3, panels_wanted)
    rows = -(-panels_wanted // columns)
    figure = Figure(figsize=(4.6 * columns, 3.4 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for panel, task in zip(panels, tasks, strict=False):
        _task(panel, task, [cell for cell in found if cell["labels"]["task"] == task])
    if scores:
        _profile(panels[len(tasks)], scores)
    for panel in panels[panels_wanted:]:
        panel.set_visible(False)
    panels[0].legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def _task(panel: Axes, task: str, mine: list[dict[str, Any]]) -> None:
    labels = list(dict.fromkeys(cell["labels"]["arm"] for cell in mine))
    for label, (colour, line, marker) in zip(labels, STYLES, strict=False):
        runs = [cell["curve"] for cell in mine if cell["labels"]["arm"] == label and cell["curve"]]
        for run in runs:
            panel.plot(_column(run, "env_steps"), _column(run, "return"), color=colour, alpha=0.25, linewidth=0.8)
        evaluated = [[entry for entry in run if "evaluation_return" in entry] for run in runs]
        shared = min((len(run) for run in evaluated), default=0)
        if shared:
            steps = np.mean([_column(run[:shared], "env_steps") for run in evaluated], axis=0)
            means = np.mean([_column(run[:shared], "evaluation_return") for run in evaluated], axis=0)
            panel.plot(steps, means, color=colour, linestyle=line, marker=marker, label=f"{label} ({len(runs)})")
    steps = mine[0]["made_of"]["config"]["steps"]
    published = PUBLISHED_RETURNS.get(task, {}).get(steps)
    if published is not None:
        panel.axhline(published, color=VERMILION, linestyle="--", linewidth=1, label="TD-MPC, published")
    panel.set(title=task, xlabel="environment steps", ylabel="return", ylim=(0, None))
    tidy(panel)


def _profile(panel: Axes, scores: dict[str, np.ndarray]) -> None:
    thresholds = np.linspace(0, 1, PROFILE_POINTS)
    profiles = performance_profile(scores, thresholds, seed=0)
    for (label, profile), (colour, line, _) in zip(profiles.items(), STYLES, strict=False):
        panel.plot(thresholds, profile["value"], color=colour, linestyle=line, label=label)
        panel.fill_between(thresholds, profile["low"], profile["high"], color=colour, alpha=0.15, linewidth=0)
    panel.set(title="performance profile", xlabel=f"return / {MAXIMUM_RETURN:.0f}", ylabel="share of runs above")
    tidy(panel)


def _column(lines: list[dict[str, Any]], name: str) -> np.ndarray:
    return np.array([line[name] for line in lines], float)
