"""Figures of the paper's experiments."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from koopax._plots import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILION, tidy
from koopax.experiments.grid import error_of

STYLES = {
    "koopman": (BLUE, "-", "o"),
    "gru": (ORANGE, "--", "s"),
    "mlp": (INK, ":", "^"),
    "transformer": (GREEN, "-.", "D"),
    "dssm": (PURPLE, (0, (5, 1, 1, 1, 1, 1)), "v"),
    "mlp@100": (VERMILION, ":", "x"),
}


def prediction(found: list[dict[str, Any]]) -> Figure:
    """State error against the step, one panel per dataset, at equal training time; seeds averaged."""
    datasets = list(dict.fromkeys(cell["labels"]["dataset"] for cell in found))
    chosen = [cell for cell in found if cell["labels"]["regime"] == "time" and np.isfinite(error_of(cell, "state"))]
    columns = min(3, len(datasets))
    rows = -(-len(datasets) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.1 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, dataset in zip(panels, datasets, strict=False):
        for model, (colour, line, _) in STYLES.items():
            curves = [
                cell["error"]["state"]["per_step"]
                for cell in chosen
                if cell["labels"]["dataset"] == dataset and cell["labels"]["model"] == model
            ]
            if curves:
                steps = np.arange(1, len(curves[0]) + 1)
                panel.plot(steps, np.mean(curves, axis=0), color=colour, linestyle=line, label=model)
        panel.set(yscale="log", title=dataset, xlabel="step", ylabel="state error (normalised)")
        tidy(panel)
    for panel in panels[len(datasets) :]:
        panel.set_visible(False)
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def ablation(found: list[dict[str, Any]]) -> Figure:
    """State error of each arm, one panel per environment; a point per seed and a bar at their mean."""
    environments = list(dict.fromkeys(cell["labels"]["environment"] for cell in found))
    figure = Figure(figsize=(5.5 * len(environments), 3.6), layout="constrained")
    for panel, environment in zip(figure.subplots(1, len(environments), squeeze=False)[0], environments, strict=True):
        mine = [c for c in found if c["labels"]["environment"] == environment and np.isfinite(error_of(c, "state"))]
        arms = list(dict.fromkeys(cell["labels"]["arm"] for cell in mine))
        for position, arm in enumerate(arms):
            values = [error_of(c, "state") for c in mine if c["labels"]["arm"] == arm]
            panel.scatter([position] * len(values), values, color=BLUE, zorder=3)
            panel.hlines(np.mean(values), position - 0.25, position + 0.25, color=INK)
        panel.set_xticks(range(len(arms)), arms, rotation=25, ha="right", fontsize=8)
        panel.set(title=f"{environment}-expert", ylabel="state error (normalised)", ylim=(0, None))
        tidy(panel)
    return figure


def search(found: list[dict[str, Any]]) -> Figure:
    """State error of every arm, a marker per environment, best on top."""
    figure = Figure(figsize=(7, 6), layout="constrained")
    panel = figure.subplots()
    values: dict[str, dict[str, float]] = {}
    for cell in found:
        values.setdefault(cell["labels"]["arm"], {})[cell["labels"]["environment"]] = error_of(cell, "state")
    order = sorted(values, key=lambda arm: -np.mean(np.log(list(values[arm].values()))))
    environments = list(dict.fromkeys(cell["labels"]["environment"] for cell in found))
    for environment, colour, marker in zip(environments, (BLUE, ORANGE, GREEN), ("o", "s", "D"), strict=False):
        points = [values[arm].get(environment, np.nan) for arm in order]
        panel.scatter(points, range(len(order)), color=colour, marker=marker, label=environment)
    panel.set_yticks(range(len(order)), order, fontsize=8)
    panel.set(xscale="log", xlabel="state error on the validation split (normalised)")
    panel.legend(frameon=False, fontsize=8)
    tidy(panel)
    return figure


def gradients(found: dict[str, Any]) -> Figure:
    """Gradient transfer against the step, with the theorem's lines."""
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    panel = figure.subplots()
    colours = iter((BLUE, VERMILION, GREEN, INK, ORANGE, PURPLE, SKY))
    lines = iter(("-", "-", "-", ":", "--", "-.", (0, (5, 1, 1, 1, 1, 1))))
    for label, arm in found["arms"].items():
        colour = next(colours)
        steps = np.arange(1, len(arm["transfer"]) + 1)
        panel.plot(steps, arm["transfer"], color=colour, linestyle=next(lines), linewidth=2, label=label)
        if arm["theorem"] is not None and arm["theorem"]["slowest"] == arm["theorem"]["fastest"]:
            every = max(1, len(steps) // 12)
            theorem = np.asarray(arm["theorem"]["slowest"])
            panel.plot(steps[::every], theorem[::every], "o", color=colour, markerfacecolor="white")
    panel.plot([], [], "o", color=INK, markerfacecolor="white", label="theorem 3.1: exp(kΔtμ)")
    panel.set(yscale="log", xlabel="steps between loss and start", ylabel="|∂L/∂x₀| / |∂L/∂xₖ|")
    panel.set_ylim(max(1e-12, panel.get_ylim()[0]), panel.get_ylim()[1])
    panel.legend(frameon=False, fontsize=8)
    tidy(panel)
    return figure
