"""Where commands print: results on standard output, everything else on standard error."""

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from koopax._progress import errors, progress_bar, training_progress

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["errors", "plain", "print_json", "progress_bar", "results", "show_measurement", "training_progress"]


@cache
def results() -> Console:
    """The console of standard output."""
    return Console()


def plain(text: str) -> str:
    """Text from anywhere as the terminal may have it: no markup, and control codes visible instead of obeyed."""
    printable = "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
    return printable.replace("[", r"\[")


def print_json(document: Any) -> None:
    """One JSON document on standard output, and nothing else."""
    print(json.dumps(document, indent=2))


def show_measurement(found: dict[str, Any], table: "RenderableType", *, json: bool, out: Path | None) -> None:
    """Write a measurement where it is asked for, and print it."""
    from koopax.bench.document import write

    if out is not None:
        write(out, found)
        errors().print(f"written to {out}", highlight=False)
    if json:
        print_json(found)
    else:
        results().print(table)
