"""`koopax sweep`: one model under every combination of some options, compared on the validation episodes.

OUT/cells/CELL.json      what a combination found
OUT/runs/CELL/           its run
OUT/table.md, figure.png all of them, best first
"""

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from koopax._atomic import check_place, new_file
from koopax._cluster import Cluster, has_ray
from koopax._compilations import keep_compilations
from koopax._errors import KoopaxError
from koopax._plots import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILION, tidy
from koopax.experiments.experiment import Place, Watcher
from koopax.experiments.grid import Cell, Testing, error_of, run_grid
from koopax.experiments.summaries import Summary, markdown
from koopax.training.config import TrainConfig
from koopax.training.tasks import TrainTask

SETTINGS = {f.name for f in fields(TrainConfig)}
MOST_CELLS = 10_000
WINDOWS = 2_000
HORIZON = 100
DRAWN = (BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY)


def parse_values(text: str) -> tuple[Any, ...]:
    """`1,2,3` or `[8],[16,16]` or `paper,multiscale`: JSON where it parses as such, else text."""
    try:
        values = json.loads(f"[{text}]")
    except json.JSONDecodeError:
        values = [_value(part) for part in text.split(",")]
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def cells(task: TrainTask, options: Mapping[str, Sequence[Any]], seeds: int) -> list[Cell]:
    """A cell for every combination of the options' values and every seed; `model` names the model itself.

    An option is a setting of training, such as learning_rate, or else one of the model, such as latent_size.
    """
    if seeds < 1:
        raise KoopaxError(f"seeds is {seeds}: use 1 or more.")
    count = seeds * int(np.prod([len(values) for values in options.values()], dtype=float))
    if not options or count > MOST_CELLS:
        raise KoopaxError(
            f"a sweep of {count} trainings is asked for: give --option NAME=A,B,… so that there are 2 to {MOST_CELLS}."
        )
    for name, values in options.items():
        if not values or len(set(map(repr, values))) != len(values):
            raise KoopaxError(f"--option {name} has the values {list(values)}: give one or more, each once.")
        if name == "seed":
            raise KoopaxError("a sweep over seeds is asked for: use --seeds.")
    return [
        _cell(task, dict(zip(options, values, strict=True)), task.train.seed + number)
        for values in itertools.product(*options.values())
        for number in range(seeds)
    ]


def _cell(task: TrainTask, chosen: dict[str, Any], seed: int) -> Cell:
    training = {name: value for name, value in chosen.items() if name in SETTINGS}
    of_model = {name: value for name, value in chosen.items() if name not in SETTINGS and name != "model"}
    task = replace(
        task,
        model=str(chosen.get("model", task.model)),
        model_options={**task.model_options, **of_model},
        train=replace(task.train, seed=seed, **training),
    )
    labels = {**chosen, "seed": seed}
    name = "-".join(f"{key}={_slug(value)}" for key, value in labels.items())
    return Cell(name, labels, task)


def _slug(value: Any) -> str:
    return re.sub(r"[^A-Za-z0-9.+]+", "_", str(value)).strip("_")


def sweep(
    task: TrainTask,
    options: Mapping[str, Sequence[Any]],
    *,
    out: Path,
    report: Callable[[str], None],
    watcher: Watcher,
    seeds: int = 1,
    cluster: str | None = None,
    early_stopping: bool = True,
    command: str = "koopax sweep",
) -> Summary:
    """Run what is not finished of a sweep, write its table and figure into `out`, and return the table.

    With Ray installed and `early_stopping`, Ray Tune runs the cells, several at a time, and ends those early that are
    behind (ASHA). Without either, all run to their ends: on the cluster's machines, or one after another in this
    process.
    """
    chosen = cells(task, options, seeds)
    horizon = task.train.validation_horizon or task.train.horizon or HORIZON
    testing = Testing(horizon=horizon, windows=WINDOWS, split="validation")
    check_place(out / "cells")
    tuned = early_stopping and has_ray()
    with Cluster(cluster) if cluster is not None or tuned else nullcontext() as connected:
        place = Place(out, out / "runs", report, watcher, cluster=connected)
        out.mkdir(parents=True, exist_ok=True)
        keep_compilations()
        if tuned:
            from koopax.experiments.tuning import run_tuned

            found = run_tuned(chosen, testing, place)
        else:
            found = run_grid(chosen, testing, place)
    summary = summarise(found)
    summary.write(out, command=command, budget={"cells": len(chosen), "early_stopping": tuned})
    with new_file(out / "figure.png", overwrite=True) as temporary:
        figure(found).savefig(temporary, dpi=150, format="png")
    return summary


def error(cell: dict[str, Any]) -> float:
    """State error on the validation episodes; infinite where the cell diverged or was ended early."""
    return error_of(cell, "state")


def summarise(found: Sequence[dict[str, Any]]) -> Summary:
    """A row per cell, best first."""
    ordered = sorted(found, key=lambda cell: (error(cell), -cell.get("step", 0)))
    names = list(ordered[0]["labels"])
    rows = [[str(cell["labels"][name]) for name in names] + _columns(cell) for cell in ordered]
    header = [*names, "state error", "last validation", "steps", "seconds"]
    document = {
        "cells": [
            {"cell": cell["cell"], **cell["labels"], "error": error(cell), "step": cell.get("step")} for cell in ordered
        ]
    }
    return Summary("Sweep: normalised state error on the validation episodes", [markdown(header, rows)], document)


def _columns(cell: dict[str, Any]) -> list[str]:
    value, curve = error(cell), cell.get("curve", [])
    said = f"{value:.4g}" if np.isfinite(value) else "ended early" if cell.get("ended_early") else "diverged"
    last = f"{curve[-1]['validation_state']:.4g}" if curve else ""
    return [said, last, str(cell.get("step", "")), f"{cell.get('seconds', 0):.1f}"]


def figure(found: Sequence[dict[str, Any]]) -> Figure:
    """The validation error of every cell while it was trained; the best six in colour."""
    drawn = Figure(figsize=(7, 4.5), layout="constrained")
    panel = drawn.subplots()
    ordered = sorted(found, key=lambda cell: (error(cell), -cell.get("step", 0)))
    for rank, cell in reversed(list(enumerate(ordered))):
        curve = cell.get("curve", [])
        steps, values = [line["step"] for line in curve], [line["validation_state"] for line in curve]
        best = rank < len(DRAWN)
        label = ", ".join(f"{name} {value}" for name, value in cell["labels"].items()) if best else None
        look = {"color": DRAWN[rank], "linewidth": 1.6} if best else {"color": INK, "alpha": 0.25, "linewidth": 0.8}
        panel.plot(
            steps, values, marker="o" if best else None, markersize=3, label=label, zorder=3 if best else 1, **look
        )
    panel.set(xlabel="gradient steps", ylabel="state error on validation windows", yscale="log")
    handles, labels = panel.get_legend_handles_labels()
    if handles:
        panel.legend(handles[::-1], labels[::-1], frameon=False, fontsize=8, title="best first", title_fontsize=8)
    tidy(panel)
    return drawn
