"""A report on any set of runs: read, measure, describe, write."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

from koopax import _provenance
from koopax._atomic import new_file
from koopax._errors import KoopaxError
from koopax.agents.recorded import RecordedRun
from koopax.reporting import agents, aggregates, models
from koopax.reporting.groups import by_data, flat
from koopax.reporting.models import Effort
from koopax.reporting.page import page
from koopax.reporting.reading import reading
from koopax.reporting.runs import ORIGIN, ModelRun, Problem, Runs, read_runs
from koopax.reporting.video import SERIES


def write_report(
    folders: str | PathLike[str] | Sequence[str | PathLike[str]],
    out: str | PathLike[str] = "report.html",
    *,
    effort: Effort = Effort(),  # noqa: B008  (frozen)
    watch: Callable[[str], None] | None = None,
) -> list[Problem]:
    """Write one self-contained page on these runs; returns what could not be shown, which the page tells too.

    Args:
        folders: a run folder of a model or agent, or a folder of such; or several of them.
        out: the .html file.
        effort: how much to compute.
        watch: called with what is being done.
    """
    runs = read_runs(Path(folder) for folder in ([folders] if isinstance(folders, str | PathLike) else folders))
    document = describe(runs, effort, watch or (lambda message: None))
    text = page(document)
    with new_file(Path(out), overwrite=True) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return runs.problems


def describe(runs: Runs, effort: Effort, watch: Callable[[str], None]) -> dict[str, Any]:
    """All that the page shows, as plain JSON."""
    document: dict[str, Any] = {
        "data": [models.describe(data, effort, runs.problems, watch) for data in by_data(runs.models)],
        "agents": agents.describe(runs.agents),
        "aggregates": _aggregates(runs, watch),
        "runs": [_settings(run) for run in (*runs.models, *runs.agents)],
        "colours": SERIES,
    }
    names = [data["name"] for data in document["data"]] + [task["task"] for task in document["agents"]]
    count = len(document["runs"])
    return document | {
        "title": names if len(names) < 3 else [f"{len(names)} systems"],
        "subtitle": f"{count} run{'s' if count > 1 else ''} · {datetime.now(UTC):%d %B %Y} · "
        f"koopax {_provenance.versions().get('koopax', '')}",
        "problems": [{"run": problem.run, "message": problem.message} for problem in runs.problems],
        "reading": reading(document),
    }


def _aggregates(runs: Runs, watch: Callable[[str], None]) -> dict[str, Any] | None:
    if len({run.task for run in runs.agents}) == len(runs.agents):
        return None  # no task was tried twice, so there is nothing to aggregate
    watch("aggregating the agents' returns")
    try:
        return aggregates.describe(aggregates.gather(runs.agents))
    except (KoopaxError, ImportError) as error:
        runs.problems.append(Problem("aggregates", f"There are none: {error}"))
        return None


def _settings(run: ModelRun | RecordedRun) -> dict[str, Any]:
    """A run's settings and where its numbers come from."""
    commit = {} if run.document.get("commit") is None else {"commit": run.document["commit"][:12]}
    return {
        "folder": str(run.folder),
        "kind": "model" if isinstance(run, ModelRun) else "agent",
        "settings": flat({k: v for k, v in run.document.items() if k not in (*ORIGIN, "format")}),
        "provenance": flat({k: run.document[k] for k in ("versions", "machine") if k in run.document}) | commit,
    }
