"""Tables for the terminal."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from koopax.cli.output import plain
from koopax.evaluation.calibration import Coverage
from koopax.evaluation.prediction import ErrorCurve, PredictionError
from koopax.evaluation.spectrum import SpectrumAnalysis
from koopax.evaluation.whole import WholeEpisodes
from koopax.exporting.export import Exported
from koopax.planning.result import ControlResult
from koopax.training.auto import AutoRun


def error_table(errors: Sequence[PredictionError], *, rows: int = 8) -> Table:
    """Normalised state and reward errors at some steps of the horizon and on average, for one model or several.

    Rewards are left out where the data has none.
    """
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
    for index, quantity in enumerate(("state", "reward")):
        found = [(f"{quantity}\n{error.model}", getattr(error, quantity)) for error in errors]
        found += [(f"{quantity}\n{name}", curve[index]) for name, curve in first.baselines.items()]
        curves += [(name, curve) for name, curve in found if curve is not None]
    for name, _ in curves:
        table.add_column(name, justify="right")
    for step in _spread(first.horizon, rows):
        table.add_row(str(step), *(_short(curve.per_step[step - 1]) for _, curve in curves))
    table.add_section()
    table.add_row("mean", *(_short(curve.normalised) for _, curve in curves), style="bold")
    table.add_row("raw", *(_short(curve.raw) for _, curve in curves))
    notes = [] if first.reward is not None else ["the data has no rewards"]
    nonfinite = [f"{error.nonfinite} of {error.model}'s" for error in errors if error.nonfinite]
    if nonfinite:
        notes.append(f"predictions that diverged: {', '.join(nonfinite)}")
    if notes:
        table.caption = "; ".join(notes)
    return table


def whole_table(found: WholeEpisodes) -> Table:
    """Error and fit of each column over whole episodes."""
    table = Table(
        title=f"free runs of {found.model} over {found.episodes} whole episodes, {found.steps} steps",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    table.add_column("column")
    table.add_column("RMSE", justify="right")
    table.add_column("fit", justify="right")
    for name, column in found.columns.items():
        table.add_row(plain(name), _short(column.rmse), f"{column.fit_percent:.1f} %")
    if found.reward is not None:
        table.add_section()
        table.add_row("reward", _short(found.reward.rmse), f"{found.reward.fit_percent:.1f} %")
    if found.nonfinite:
        table.caption = f"predictions that diverged: {found.nonfinite} of {found.episodes}"
    return table


def coverage_table(found: Coverage, *, rows: int = 8) -> Table:
    """How often intervals hold what happened at some steps of the horizon and on average, and how wide they are."""
    table = Table(
        title=f"intervals of level {found.level:g}: how often they hold what happened, and their mean width",
        caption="widths in units of the training data's standard deviation; CRPS is the continuous ranked probability "
        "score of all levels together, lower is better",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("step", justify="right")
    parts = {name: part for name, part in (("state", found.state), ("reward", found.reward)) if part is not None}
    for name in parts:
        table.add_column(f"{name}\ncoverage", justify="right")
        table.add_column(f"{name}\nwidth", justify="right")
    for step in _spread(len(found.state.per_step), rows):
        cells = [(part.per_step[step - 1], part.width_per_step[step - 1]) for part in parts.values()]
        table.add_row(str(step), *(text for held, width in cells for text in (f"{held:.1%}", _short(width))))
    table.add_section()
    means = [(f"{part.per_step.mean():.1%}", _short(part.width_per_step.mean())) for part in parts.values()]
    table.add_row("mean", *(text for pair in means for text in pair), style="bold")
    table.add_row("CRPS", *(text for part in parts.values() for text in ("", _short(part.crps))))
    return table


def spectrum_table(analysis: SpectrumAnalysis, *, rows: int = 20) -> Table:
    """The first modes of `SpectrumAnalysis.table` and the stability margin."""
    columns = analysis.table()
    if not analysis.unstable.any():
        columns = {name: column for name, column in columns.items() if name not in ("unstable", "doubling_time")}
    shown = min(rows, analysis.discrete.size)
    table = Table(
        title=f"{shown} of {analysis.discrete.size} modes; stability margin {analysis.stability_margin:.3g}; "
        f"{int(analysis.aliased.sum())} aliased" + _instability(analysis),
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


def _instability(analysis: SpectrumAnalysis) -> str:
    count = int(analysis.unstable.sum())
    return f"; unstable: {count} mode{'s grow' if count > 1 else ' grows'}" if count else ""


def aggregate_table(document: dict[str, Any]) -> Table:
    """Agents' aggregates over tasks, with their intervals; what a score is stands in the caption."""
    tasks = document["tasks"]
    table = Table(
        title=f"scores over {len(tasks)} task{'s' if len(tasks) > 1 else ''}, with 95 % intervals",
        caption="; ".join(
            f"{plain(task['task'])}: a return of {task['score_of_one']:g} scores 1, at {task['steps']:g} steps"
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
        table.add_row(plain(agent["agent"]), *shown, str(agent["runs"]))
    return table


def auto_table(found: AutoRun) -> Table:
    """What `--model auto` tried: the error of free runs on validation episodes, and what it cost."""
    shown = Table(
        "model",
        "validation error",
        "returns",
        "parameters",
        "seconds",
        title="tried, and how well it predicts validation episodes",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for candidate in found.candidates:
        every = candidate.reencode_every
        cells = (
            candidate.name,
            _short(candidate.error),
            "never" if every is None else f"every {every} steps" if every > 1 else "every step",
            f"{candidate.parameters:,}",
            f"{candidate.seconds:.1f}",
        )
        shown.add_row(*cells, style="bold" if candidate.name == found.kept else None)
    return shown


def control_table(result: ControlResult) -> Table:
    """The returns that `koopax plan` reached, beside those of random actions."""
    limited = result.violation is not None
    outside = ("outside the bounds by",) if limited else ()
    shown = Table("episodes", "mean return", "std", "lowest", "highest", "random actions", "ms per decision", *outside)
    found = [np.mean, np.std, np.min, np.max]
    numbers = [f"{function(result.returns):.1f}" if result.returns else "–" for function in found]
    reference = "–" if result.random_return is None else f"{result.random_return:.1f}"
    beyond = (f"{result.violation:.2g}",) if limited else ()
    shown.add_row(str(len(result.returns)), *numbers, reference, f"{result.ms_per_decision:.2f}", *beyond)
    return shown


def play_table(found: dict[str, Any]) -> Table:
    """What `koopax agent play` found: returns, plans, and the errors at the first and last step of a window."""
    errors = found.get("model_errors", found.get("prediction_errors", []))
    shown = Table("episodes", "mean return", "ms per decision")
    numbers = [str(len(found["returns"])), f"{found['mean_return']:.1f}", f"{found['ms_per_decision']:.2f}"]
    if "plan_length" in found:
        shown.add_column("plan")
        numbers.append(f"{found['plan_length']} steps")
    for step in (1, len(errors)) if errors else ():
        shown.add_column(f"model error at {step}")
        numbers.append(f"{errors[step - 1]:.3f}")
    shown.add_row(*numbers)
    return shown


def _spread(horizon: int, rows: int) -> list[int]:
    """Steps from 1 to the horizon, evenly spread on a logarithmic scale."""
    return sorted({round(step) for step in np.geomspace(1, horizon, rows)})


def _short(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "∞"


def export_table(exported: Exported) -> Table:
    """The files of an exported model and their sizes."""
    table = Table(title=f"{exported.document['model']} as {exported.document['form']} in {exported.folder}")
    table.add_column("file")
    table.add_column("bytes", justify="right")
    for file, size in exported.document["bytes"].items():
        table.add_row(file, f"{size:,}")
    memory = exported.document.get("memory")
    if memory:
        table.caption = f"{memory['constants']:,} bytes of constants and {memory['stack']:,} of stack"
    return table
