"""koopax report, video, aggregate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from koopax._atomic import check_place
from koopax.cli.output import errors, plain, print_json, results
from koopax.evaluation.protocol import WINDOWS


def report(
    runs: Positional[tuple[Path, ...]],
    *,
    out: Path = Path("report.html"),
    horizon: int = 100,
    windows: int = WINDOWS,
    videos: bool = True,
) -> None:
    """Write one self-contained page with interactive charts and videos of any set of runs.

    Args:
        runs: run folders of models and agents, or folders of such.
        out: the page.
        horizon: steps to predict.
        windows: test windows, fixed and the same for every model.
        videos: render true and predicted motion, where the data is MuJoCo's.
    """
    write(runs, out, horizon=horizon, windows=windows, videos=videos)
    results().print(str(out), soft_wrap=True, highlight=False)


def write(runs: Sequence[Path], out: Path, **effort: Any) -> None:
    """Write a report and tell on standard error how it goes and what could not be shown."""
    from koopax.reporting.build import write_report
    from koopax.reporting.models import Effort

    check_place(out)
    with errors().status("reading the runs") as status:
        problems = write_report(runs, out, effort=Effort(**effort), watch=status.update)
    _tell(problems)


def video(
    run: Positional[Path],
    *,
    out: Path | None = None,
    window: int = 0,
    horizon: int = 100,
    source: str | None = None,
) -> None:
    """Render one test window: the true motion beside the one that the model predicts from its first frame.

    Args:
        run: a run folder, or a .koopax file with --source.
        out: the .mp4 file; video.mp4 in the run folder by default.
        window: which of the fixed test windows, from 0.
        horizon: steps.
        source: another dataset than the run's own.
    """
    from koopax.reporting.video import write_video

    path = out or (run / "video.mp4" if run.is_dir() else run.with_suffix(".mp4"))
    check_place(path)
    with errors().status("rendering"):
        write_video(run, path, window=window, horizon=horizon, source=source)
    results().print(str(path), soft_wrap=True, highlight=False)


def aggregate(
    runs: Positional[tuple[Path, ...]],
    *,
    at: float | None = None,
    repetitions: int = 2000,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Aggregate agents over tasks and seeds: mean, interquartile mean and optimality gap with bootstrapped intervals.

    Args:
        runs: run folders of agents, or folders of such.
        at: environment steps at which returns are compared; as far as all runs of a task have come by default.
        repetitions: bootstrap samples.
        seed: of the bootstrap.
        json: print one JSON document.
    """
    from koopax.cli.tables import aggregate_table
    from koopax.reporting.aggregates import describe, gather
    from koopax.reporting.runs import read_runs

    found = read_runs(runs)
    _tell(found.problems)
    with errors().status("resampling"):
        document = describe(gather(found.agents, at=at), seed=seed, repetitions=repetitions)
    if json:
        print_json(document)
        return
    results().print(aggregate_table(document))
    for note in document["notes"]:
        errors().print(plain(note), soft_wrap=True, highlight=False)


def _tell(problems: Sequence[Any]) -> None:
    for problem in problems:
        errors().print(plain(f"{problem.run}: {problem.message}"), style="yellow", soft_wrap=True, highlight=False)
