"""`koopax reproduce`: run an experiment of the registry and write its table and figure."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from koopax._atomic import check_place, new_file
from koopax._cluster import Cluster
from koopax._compilations import keep_compilations
from koopax.experiments.experiment import Place, Watcher
from koopax.experiments.registry import experiment


def reproduce(
    name: str,
    budget: str,
    *,
    results: Path,
    work: Path,
    report: Callable[[str], None],
    watcher: Watcher,
    only: str | None = None,
    cluster: str | None = None,
) -> Path:
    """Run what is not finished of an experiment, and write its table and figure. Returns their folder.

    With `only`, a regular expression, only cells whose names it finds are run, and the table is of what is finished.
    With the address of a Ray `cluster`, cells run on its machines, and their results come back to `results`.
    """
    chosen = experiment(name)
    size = chosen.budget(budget)
    place = Place(results / name / budget, work / name / budget, report, watcher, only)
    check_place(place.results / "cells")
    check_place(place.work)
    with nullcontext() if cluster is None else Cluster(cluster) as connected:
        place = replace(place, cluster=connected)
        place.results.mkdir(parents=True, exist_ok=True)
        keep_compilations()
        found = chosen.run(size, place)
    command = f"koopax reproduce {name} --budget {budget}"
    chosen.summarise(found).write(place.results, command=command, budget=asdict(size))
    with new_file(place.results / "figure.png", overwrite=True) as temporary:
        chosen.figure(found).savefig(temporary, dpi=150, format="png")
    return place.results
