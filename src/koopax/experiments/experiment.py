"""One table or figure of the paper: what it runs at which size, its summary and its figure."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from matplotlib.figure import Figure

from koopax._cluster import Cluster
from koopax._errors import unknown_name
from koopax.experiments.summaries import Summary

Size = TypeVar("Size")
Found = TypeVar("Found")

# Told of a cell's name, steps and seconds; moved by its lines of metrics.
Watcher = Callable[[str, int | None, float | None], AbstractContextManager[Callable[[dict[str, Any]], None]]]


@dataclass(frozen=True)
class Place:
    """Where an experiment runs, and who is told of it."""

    results: Path
    """What it found, a file per cell."""
    work: Path
    """Run folders while cells train."""
    report: Callable[[str], None]
    """Told what is run next."""
    watcher: Watcher
    """Makes a progress bar for a cell."""
    only: str | None = None
    """A regular expression: no other cells are run than those whose names it finds."""
    cluster: Cluster | None = None
    """Where cells run; None for this process."""


def away(folder: Path) -> Place:
    """A place on another machine, with nobody to tell."""

    @contextmanager
    def silent(*_: Any) -> Iterator[Callable[[dict[str, Any]], None]]:
        yield lambda line: None

    return Place(folder / "results", folder, lambda text: None, silent)


@dataclass(frozen=True)
class Experiment(Generic[Size, Found]):
    """What `koopax reproduce NAME` runs."""

    name: str
    """On the command line, and of the folder with the results."""
    budgets: Mapping[str, Size]
    """How large it is, by the name of a budget: `smoke`, `cpu` and `paper`."""
    run: Callable[[Size, Place], Found]
    """Runs what is not finished yet and returns all that was found."""
    summarise: Callable[[Found], Summary]
    """Tables, made from what was found alone."""
    figure: Callable[[Found], Figure]
    """The figure, made from what was found alone."""

    def budget(self, name: str) -> Size:
        """The size at the budget of that name."""
        if name not in self.budgets:
            raise unknown_name("budget", name, list(self.budgets))
        return self.budgets[name]
