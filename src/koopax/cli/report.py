"""koopax report, video."""

from pathlib import Path

from tyro.conf import Positional

from koopax.cli.output import errors, results


def report(
    runs: Positional[tuple[Path, ...]],
    *,
    out: Path = Path("report.html"),
    horizon: int = 100,
    windows: int = 500,
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
    from koopax.report.build import write_report
    from koopax.report.models import Effort

    console = errors()
    with console.status("reading the runs") as status:
        problems = write_report(
            runs, out, effort=Effort(horizon=horizon, windows=windows, videos=videos), watch=status.update
        )
    for problem in problems:
        console.print(f"{problem.run}: {problem.message}", style="yellow", soft_wrap=True, highlight=False)
    results().print(str(out), soft_wrap=True, highlight=False)


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
    from koopax.report.video import write_video

    path = out or (run / "video.mp4" if run.is_dir() else run.with_suffix(".mp4"))
    with errors().status("rendering"):
        write_video(run, path, window=window, horizon=horizon, source=source)
    results().print(str(path), soft_wrap=True, highlight=False)
