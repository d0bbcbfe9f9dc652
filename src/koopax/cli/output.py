"""Where commands print: results on standard output, everything else on standard error."""

import json
from functools import cache
from typing import Any

from rich.console import Console

from koopax._progress import errors, progress_bar, training_progress

__all__ = ["errors", "print_json", "progress_bar", "results", "training_progress"]


@cache
def results() -> Console:
    """The console of standard output."""
    return Console()


def print_json(document: Any) -> None:
    """One JSON document on standard output, and nothing else."""
    print(json.dumps(document, indent=2))
