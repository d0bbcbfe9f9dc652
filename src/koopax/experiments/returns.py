"""Returns of agents, task by task: what is comparable between arms, aggregates over tasks, and curves.

A document of a cell has its task, arm and seed in `labels`, its last evaluation in `return` and its metrics in `curve`.
The most that any task of the DeepMind Control suite gives is 1000.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from koopax._plots import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILION, legend_of, tidy
from koopax.evaluation.aggregate import performance_profile
from koopax.experiments.summaries import markdown

MAXIMUM_RETURN = 1000.0
# Of the arms, in their order; those behind the eighth have the colours again, with other markers.
LINES = (
    (INK, ":"),
    (BLUE, "-"),
    (SKY, "--"),
    (ORANGE, "-."),
    (VERMILION, "--"),
    (GREEN, "-"),
    (PURPLE, ":"),
    (GREY, "-."),
)
MARKERS = ("^", "o", "s", "D", "v", "P", "X", "*")
REFERENCE_LINES = ((VERMILION, "--"), (INK, "-."))
PROFILE_POINTS = 101

# What others report of a task after as many environment steps, by name.
References = Callable[[str, int], Mapping[str, float]]


def names(found: list[dict[str, Any]], label: str) -> list[str]:
    """The values of a label, in the order in which they occur."""
    return list(dict.fromkeys(cell["labels"][label] for cell in found))


def returns_of(found: list[dict[str, Any]], task: str, label: str) -> list[float]:
    """The returns of an arm's runs in a task."""
    return [float(cell["return"]) for cell in found if (cell["labels"]["task"], cell["labels"]["arm"]) == (task, label)]


def comparable_scores(found: list[dict[str, Any]], *, least: int = 2) -> dict[str, np.ndarray]:
    """Normalised returns `[runs, tasks]` of each arm, over the tasks with as many seeds or more in every arm."""
    chosen, labels = comparable_tasks(found, least=least), names(found, "arm")
    if not chosen:
        return {}
    runs = min(chosen.values())
    return {
        label: np.stack([returns_of(found, task, label)[:runs] for task in chosen], axis=1) / MAXIMUM_RETURN
        for label in labels
    }


def comparable_tasks(found: list[dict[str, Any]], *, least: int = 2) -> dict[str, int]:
    """The tasks with as many seeds or more in every arm, and how many every arm has."""
    labels = names(found, "arm")
    counts = {task: min(len(returns_of(found, task, label)) for label in labels) for task in names(found, "task")}
    return {task: count for task, count in counts.items() if count >= least}


def aggregate_table(aggregates: dict[str, Any], runs: int) -> str:
    """Mean, IQM and optimality gap of every arm, with intervals where there is more than one run."""

    def told(one: dict[str, float]) -> str:
        return f"{one['value']:.3f}" + (f" [{one['low']:.3f}, {one['high']:.3f}]" if runs > 1 else "")

    rows = [[label, *(told(one) for one in statistics.values())] for label, statistics in aggregates["arms"].items()]
    each = f"{runs} runs each" if runs > 1 else "one run each, so without intervals"
    heading = f"Normalised by 1000, over {', '.join(aggregates['tasks'])} with {each}:"
    return heading + "\n\n" + markdown(["arm", "mean", "IQM", "optimality gap"], rows)


def arm_styles(arms: list[str]) -> dict[str, tuple[str, str, str]]:
    """Colour, line and marker of each arm; of up to 64 no two have the same colour and marker."""
    count = len(LINES)
    return {
        arm: (*LINES[number % count], MARKERS[(number + number // count) % len(MARKERS)])
        for number, arm in enumerate(arms)
    }


def return_curves(
    found: list[dict[str, Any]], references: References, compared: list[dict[str, Any]] | None = None
) -> Figure:
    """Returns against environment steps, one panel per task, and the performance profile where seeds allow one.

    Markers are evaluations, averaged over seeds; thin lines are the training episodes of each run; lines across are
    what others report. The profile is of the runs in `compared`, by default of all.
    """
    tasks, styles = names(found, "task"), arm_styles(names(found, "arm"))
    scores = comparable_scores(found if compared is None else compared)
    panels_wanted = len(tasks) + bool(scores)
    columns = min(3, panels_wanted)
    rows = -(-panels_wanted // columns)
    figure = Figure(figsize=(max(4.6 * columns, 7), 3.4 * rows + 0.5), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for panel, task in zip(panels, tasks, strict=False):
        _task(panel, task, [cell for cell in found if cell["labels"]["task"] == task], styles, references)
    if scores:
        _profile(panels[len(tasks)], scores, styles)
    for panel in panels[panels_wanted:]:
        panel.set_visible(False)
    handles, shown = legend_of(panels[: len(tasks)], styles)
    figure.legend(handles, shown, frameon=False, fontsize=8, loc="outside lower center", ncols=min(4, len(shown)))
    return figure


def _task(
    panel: Axes, task: str, mine: list[dict[str, Any]], styles: Mapping[str, tuple], references: References
) -> None:
    for label in names(mine, "arm"):
        colour, line, marker = styles[label]
        runs = [cell["curve"] for cell in mine if cell["labels"]["arm"] == label and cell["curve"]]
        for run in runs:
            played = [entry for entry in run if "return" in entry]
            panel.plot(_column(played, "env_steps"), _column(played, "return"), color=colour, alpha=0.25, linewidth=0.8)
        evaluated = [[entry for entry in run if "evaluation_return" in entry] for run in runs]
        shared = min((len(run) for run in evaluated), default=0)
        if shared:
            steps = np.mean([_column(run[:shared], "env_steps") for run in evaluated], axis=0)
            means = np.mean([_column(run[:shared], "evaluation_return") for run in evaluated], axis=0)
            panel.plot(steps, means, color=colour, linestyle=line, marker=marker, label=label)
    steps = mine[0]["made_of"]["config"]["steps"]
    for (name, value), (colour, line) in zip(references(task, steps).items(), REFERENCE_LINES, strict=False):
        panel.axhline(value, color=colour, linestyle=line, linewidth=1, label=name)
    panel.set(title=task, xlabel="environment steps", ylabel="return", ylim=(0, None))
    tidy(panel)


def _profile(panel: Axes, scores: dict[str, np.ndarray], styles: Mapping[str, tuple]) -> None:
    thresholds = np.linspace(0, 1, PROFILE_POINTS)
    profiles = performance_profile(scores, thresholds, seed=0)
    for label, profile in profiles.items():
        colour, line, _ = styles[label]
        panel.plot(thresholds, profile["value"], color=colour, linestyle=line, label=label)
        panel.fill_between(thresholds, profile["low"], profile["high"], color=colour, alpha=0.15, linewidth=0)
    panel.set(title="performance profile", xlabel=f"return / {MAXIMUM_RETURN:.0f}", ylabel="share of runs above")
    tidy(panel)


def _column(lines: list[dict[str, Any]], name: str) -> np.ndarray:
    return np.array([line[name] for line in lines], float)
