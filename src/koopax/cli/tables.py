"""Tables for the terminal."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from koopax.evaluation.prediction import ErrorCurve, PredictionError
from koopax.evaluation.spectrum import SpectrumAnalysis


def error_table(errors: Sequence[PredictionError], *, rows: int = 8) -> Table:
    """Normalised state and reward errors at some steps of the horizon and on average, for one model or several."""
    first = errors[0]
    # Narrow enough that two models and the baselines fit into 80 columns uncut.
    table = Table(
        title=f"normalised mean squared error, {first.windows} windows of {first.horizon} steps",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    table.add_column("step", justify="right")
    curves: list[tuple[str, ErrorCurve]] = []
    for quantity in ("state", "reward"):
        curves += [(f"{quantity}\n{error.model}", getattr(error, quantity)) for error in errors]
        index = 0 if quantity == "state" else 1
        curves += [(f"{quantity}\n{name}", curve[index]) for name, curve in first.baselines.items()]
    for name, _ in curves:
        table.add_column(name, justify="right")
    for step in _spread(first.horizon, rows):
        table.add_row(str(step), *(_short(curve.per_step[step - 1]) for _, curve in curves))
    table.add_section()
    table.add_row("mean", *(_short(curve.normalised) for _, curve in curves), style="bold")
    table.add_row("raw", *(_short(curve.raw) for _, curve in curves))
    nonfinite = [f"{error.nonfinite} of {error.model}'s" for error in errors if error.nonfinite]
    if nonfinite:
        table.caption = f"rollouts that left the finite numbers: {', '.join(nonfinite)}"
    return table


def spectrum_table(analysis: SpectrumAnalysis, *, rows: int = 20) -> Table:
    """The first modes of `SpectrumAnalysis.table` and the stability margin."""
    columns = analysis.table()
    shown = min(rows, analysis.discrete.size)
    table = Table(
        title=f"{shown} of {analysis.discrete.size} modes; stability margin {analysis.stability_margin:.3g}; "
        f"{int(analysis.aliased.sum())} aliased",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    table.add_column("#", justify="right")
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for row in range(shown):
        cells = [
            ("yes" if column[row] else "") if column.dtype == bool else _short(column[row])
            for column in columns.values()
        ]
        table.add_row(str(row + 1), *cells)
    return table


def aggregate_table(document: dict[str, Any]) -> Table:
    """Agents' aggregates over tasks, with their intervals; what a score is stands in the caption."""
    tasks = document["tasks"]
    table = Table(
        title=f"scores over {len(tasks)} task{'s' if len(tasks) > 1 else ''}, with 95 % intervals",
        caption="; ".join(
            f"{task['task']}: a return of {task['score_of_one']:g} scores 1, at {task['steps']:g} steps"
            for task in tasks
        ),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("agent")
    for heading in ("mean", "interquartile mean", "optimality gap", "runs"):
        table.add_column(heading, justify="right")
    for agent in document["agents"]:
        cells = [agent[name] for name in ("mean", "iqm", "optimality_gap")]
        shown = [f"{cell['value']:.3f}\n\\[{cell['low']:.3f}, {cell['high']:.3f}]" for cell in cells]
        table.add_row(agent["agent"], *shown, str(agent["runs"]))
    return table


def _spread(horizon: int, rows: int) -> list[int]:
    """Steps from 1 to the horizon, evenly spread on a logarithmic scale."""
    return sorted({round(step) for step in np.geomspace(1, horizon, rows)})


def _short(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "∞"
