"""What the cells of `koopax.experiments.sensors` found, as tables and a figure."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from koopax._plots import BLUE, GREEN, INK, ORANGE, tidy
from koopax.experiments.summaries import Summary, markdown

HISTORY = 10
LENGTH = 200
# The largest Lyapunov exponent of the Lorenz system, per second, and the period of the Van der Pol oscillator.
LYAPUNOV = {"lorenz": 0.9056}
PERIOD = {"van-der-pol": 6.6633}
# A prediction is valid as long as it misses by less than this, in standard deviations of the states.
VALID = 0.4
MISSING = 0.3


def summarise(found: list[dict[str, Any]]) -> Summary:
    """A table for each kind of cell."""
    sections: list[str] = []
    kinds: dict[str, list[dict[str, Any]]] = {}
    for cell in found:
        kinds.setdefault(cell["kind"], []).append(cell)
    if "history" in kinds:
        header = ["system", "sees", "error of 100 steps", "at first", "fit of the long run", "largest", "returns every"]
        rows = [
            [
                cell["system"],
                _told(cell["arm"]),
                _text(cell["error"]),
                _text(cell["error_at_first"]),
                _text(cell["long_run"]["fit_percent"], "{:.1f} %"),
                _text(cell["long_run"]["largest"], "{:.2f}"),
                str(cell["reencode_every"] or "never"),
            ]
            for cell in kinds["history"]
        ]
        steps = kinds["history"][0]["long_run"]["steps"]
        sections += [
            markdown(header, rows),
            "One sensor of each system is tested. Errors are normalised, of free runs on test windows that begin where "
            "a whole history is known, and `at first`, at an episode's first observation, where it is not. The long "
            f"run has {steps:,} steps; `largest` is its largest prediction relative to the largest measurement.",
        ]
    if "free" in kinds:
        header = [
            "system, no input",
            "model",
            "error of 100 steps",
            "valid for, median",
            "strongest modes: period, half-life",
        ]
        rows = [[c["system"], c["arm"], _text(c["error"]), _valid(c), _modes(c["spectrum"])] for c in kinds["free"]]
        sections += [markdown(header, rows), f"Valid: below {VALID} standard deviations. {_facts()}"]
    if "filter" in kinds:
        header = ["system", "sensors", "filter", "believing every observation", "last observation held", "open loop"]
        rows = [
            [
                cell["system"],
                sensors,
                *(f"{cell[sensors][arm]:.2g}" for arm in ("filter", "trusting", "held", "open_loop")),
            ]
            for cell in kinds["filter"]
            for sensors in ("clean", "noisy")
        ]
        sections += [
            markdown(header, rows),
            f"Normalised error over {LENGTH} steps with {MISSING:.0%} of the observations missing; noisy sensors have "
            "noise of a tenth of each column's standard deviation.",
        ]
    return Summary("Seen through sensors: history, no actions and a filter", sections, {"cells": found})


def _told(arm: str) -> str:
    return {
        "whole": "the whole state",
        "sensor": "the sensor alone",
        "history": f"its last {HISTORY}",
        "recurrent": f"its last {HISTORY}, recurrent",
        "dmdc": f"its last {HISTORY}, DMDc",
        "edmd": f"its last {HISTORY}, EDMD",
    }[arm]


def _text(value: float | None, form: str = "{:.2g}") -> str:
    return "diverges" if value is None else form.format(value)


def _valid(cell: dict[str, Any]) -> str:
    valid, times = cell["valid_seconds"], cell["valid_lyapunov_times"]
    beyond = "≥ " if valid["median"] >= valid["of"] else ""
    return f"{beyond}{valid['median']:.1f} s" + ("" if times is None else f", {times:.1f} Lyapunov times")


def _modes(spectrum: list[dict[str, float | None]] | None) -> str:
    if spectrum is None:
        return "–"
    return "; ".join(f"{_text(mode['period'])} s, {_text(mode['half_life'])} s" for mode in spectrum[:3])


def _facts() -> str:
    return (
        f"A Lyapunov time of the Lorenz system is {1 / LYAPUNOV['lorenz']:.2f} s; the Van der Pol oscillator's period "
        f"is {PERIOD['van-der-pol']:.2f} s."
    )


def figure(found: list[dict[str, Any]]) -> Figure:
    """Error of the sensor over the horizon, a panel per system."""
    cells = [cell for cell in found if cell["kind"] == "history"]
    systems = list(dict.fromkeys(cell["system"] for cell in cells)) or ["–"]
    drawn = Figure(figsize=(3.4 * len(systems), 3.6), layout="constrained")
    panels = np.atleast_1d(drawn.subplots(1, len(systems), sharey=True))
    styles = {
        "whole": (INK, "-"),
        "sensor": (ORANGE, "-"),
        "history": (BLUE, "-"),
        "recurrent": (BLUE, "--"),
        "dmdc": (GREEN, "-"),
        "edmd": (GREEN, "--"),
    }
    for panel, system in zip(panels, systems, strict=True):
        for cell in (cell for cell in cells if cell["system"] == system):
            colour, line = styles[cell["arm"]]
            errors = [np.nan if each is None else max(each, 1e-14) for each in cell["per_step"]]
            panel.plot(np.arange(1, len(errors) + 1), errors, color=colour, linestyle=line, label=_told(cell["arm"]))
        panel.set(yscale="log", title=system, xlabel="step")
        tidy(panel)
    panels[0].set_ylabel("error of the sensor, normalised")
    if cells:
        panels[-1].legend(frameon=False, fontsize=7)
    return drawn
