"""Where commands print: results on standard output, everything else on standard error."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from rich.console import Console


@cache
def results() -> Console:
    """The console of standard output."""
    return Console()


@cache
def errors() -> Console:
    """The console of standard error: progress, notes and errors."""
    return Console(stderr=True)


def print_json(document: Any) -> None:
    """One JSON document on standard output, and nothing else."""
    print(json.dumps(document, indent=2))


@contextmanager
def progress_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, moved by calling it with the amount done and the total."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors()) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def training_progress(
    name: str, steps: int | None, seconds: float | None, *, seeds: int = 1
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Bars for training, one per seed: steps per second, losses or returns, and the time left, moved by metrics."""
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[counts]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[losses]}"),
    )
    with Progress(*columns, console=errors()) as bar:
        total = steps if seconds is None else seconds
        waiting = [bar.add_task(name, total=total, counts="compiling", losses="")]
        tasks: dict[int | None, TaskID] = {}
        shown: dict[int | None, dict[str, float]] = {}

        def watch(line: dict[str, Any]) -> None:
            seed = line.get("seed")
            if seed not in tasks:
                tasks[seed] = waiting.pop() if waiting else bar.add_task(name, total=total, counts="", losses="")
                bar.update(tasks[seed], description=name if seeds == 1 else f"{name}, seed {seed}")
            names = ("state", "reward", "validation_state", "validation_reward", "return", "evaluation_return")
            losses = shown.setdefault(seed, {})
            losses.update({key: line[key] for key in names if key in line})
            rate = line["step"] / line["seconds"] if line["seconds"] else 0.0
            decisions = f"{line['decisions']} decisions, " if "decisions" in line else ""
            bar.update(
                tasks[seed],
                completed=line["step"] if seconds is None else line["seconds"],
                counts=f"{line['step']} steps, {decisions}{rate:.1f}/s",
                losses="  ".join(f"{key.replace('validation_', 'val ')} {value:.4g}" for key, value in losses.items()),
            )

        yield watch
