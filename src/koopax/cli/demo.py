"""koopax demo: the whole way from data to a comparison, in minutes on two cores."""

from pathlib import Path

from koopax.cli.output import errors, results, training_progress
from koopax.cli.report import write as write_report
from koopax.training.config import TrainConfig

DATASET = "koopax/halfcheetah/expert-v0"


def demo(*, out: Path = Path("demo"), steps: int = 40_000, seconds: float = 60.0, horizon: int = 100) -> None:
    """Collect a small HalfCheetah set, train Koopman and MLP side by side, compare them, and write a report.

    Args:
        out: folder of the two runs; runs that are there already are not trained again.
        steps: environment steps to collect.
        seconds: training time of each model.
        horizon: steps to predict.
    """
    from koopax.cli.tables import error_table
    from koopax.collection import make_dataset
    from koopax.evaluation.prediction import prediction_error
    from koopax.training.tasks import TrainTask, run_task, splits

    console = errors()
    console.rule(f"1 · {steps} steps of {DATASET}")
    make_dataset(DATASET, steps=steps)

    # The MLP is trained on 10 steps, as in the paper: a step on longer windows takes it that much longer.
    horizons = {"koopman": horizon, "mlp": 10}
    tasks = {
        name: TrainTask(
            source=DATASET,
            source_options={"steps": steps},
            model=name,
            # Small batches: many updates in little time.
            train=TrainConfig(
                horizon=length,
                seconds=seconds,
                batch_size=16,
                log_every=20,
                validation_horizon=horizon,
            ),
        )
        for name, length in horizons.items()
    }
    # Named by the settings, so that other settings are another demo.
    place = out / f"{steps}-steps-{seconds:g}-seconds-horizon-{horizon}"
    folders = {name: place / name for name in tasks}
    found = []
    for number, (name, task) in enumerate(tasks.items(), start=2):
        console.rule(f"{number} · {name}: {seconds:.0f} seconds on windows of {horizons[name]} steps")
        folder = folders[name]
        with training_progress(name, task.train.steps, task.train.seconds) as watch:
            run = run_task(task, folder, resume=(folder / "config.json").is_file(), watch=watch)
        if run.stopped == "interrupted":
            console.print("stopped; run the demo again to continue", style="yellow")
            raise SystemExit(130)
        found.append(prediction_error(run.model, splits(task).test, horizon=horizon))
    console.rule(f"{len(tasks) + 2} · what they predict on episodes they have not seen")
    results().print(error_table(found))
    console.rule(f"{len(tasks) + 3} · the report")
    page = place / "report.html"
    write_report(list(folders.values()), page, horizon=horizon)
    results().print(f"open in a browser: {page.resolve()}", soft_wrap=True, highlight=False)
