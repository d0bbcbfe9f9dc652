"""Progress on standard error: bars for anything that counts, and the line that a training shows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

Watcher = Callable[[dict[str, Any]], None]

# What a training tells of itself, in the order in which it is shown.
SHOWN = ("state", "reward", "validation_state", "validation_reward", "return", "evaluation_return")


@cache
def errors() -> "Console":
    """The console of standard error: progress, notes and errors."""
    from rich.console import Console

    return Console(stderr=True)


@contextmanager
def progress_bar(description: str, *, show: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar, moved by calling it with the amount done and the total."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors(), disable=not show) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def training_progress(
    name: str, steps: int | None, seconds: float | None, *, seeds: int = 1, console: "Console | None" = None
) -> Iterator[Watcher]:
    """Bars for training, one per seed, moved by lines of metrics: steps per second and the time left.

    Losses or returns have a line of their own beneath, so that they never take the bar's place.
    """
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class TrainingBars(Progress):
        """Bars, and beneath them the newest metrics."""

        newest = ""

        def get_renderables(self):
            yield self.make_tasks_table(self.tasks)
            if self.newest:
                yield Text(f"  {self.newest}", no_wrap=True, overflow="ellipsis")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[counts]}"),
        TimeRemainingColumn(compact=True),
    )
    with TrainingBars(*columns, console=console or errors()) as bars:
        total = steps if seconds is None else seconds
        waiting = [bars.add_task(name, total=total, counts="preparing")]
        tasks: dict[int | None, TaskID] = {}
        shown: dict[int | None, dict[str, float]] = {}

        def watch(line: dict[str, Any]) -> None:
            seed = line.get("seed")
            if seed not in tasks:
                tasks[seed] = waiting.pop() if waiting else bars.add_task(name, total=total, counts="")
                bars.update(tasks[seed], description=name if seeds == 1 else f"{name}, seed {seed}")
            if "doing" in line:
                bars.update(tasks[seed], counts=line["doing"])
                return
            if "compile_seconds" in line:
                # How many steps there will be may have been left open until now.
                known = total or line.get("steps")
                bars.update(tasks[seed], total=known, counts=f"compiled in {line['compile_seconds']:.1f} s")
                return
            metrics = shown.setdefault(seed, {})
            metrics.update({key: line[key] for key in SHOWN if key in line})
            bars.newest = "  ".join(f"{_label(key)} {metrics[key]:.4g}" for key in SHOWN if key in metrics)
            bars.update(
                tasks[seed],
                completed=line["step"] if seconds is None else line["seconds"],
                counts=_counts(line),
            )

        yield watch


def _label(metric: str) -> str:
    return metric.replace("validation_", "val ").replace("_", " ")


def _counts(line: dict[str, Any]) -> str:
    rate = line["step"] / line["seconds"] if line["seconds"] else 0.0
    decisions = f"{line['decisions']} decisions, " if "decisions" in line else ""
    return f"{line['step']} steps, {decisions}{rate:.1f}/s"
