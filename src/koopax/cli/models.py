"""koopax train, evaluate, spectrum."""

from contextlib import ExitStack, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tyro.conf import Positional

from koopax._errors import KoopaxError
from koopax.cli.columns import TableColumns
from koopax.cli.options import Options, parse_options
from koopax.cli.output import errors, print_json, progress_bar, results, training_progress
from koopax.evaluation.protocol import SEED, WINDOWS
from koopax.training.config import TrainConfig
from koopax.training.resources import Hosts, Resources

if TYPE_CHECKING:
    from koopax._progress import Watcher
    from koopax.training.tasks import TrainTask

NOT_OPTIONS: dict[str, str] = dict.fromkeys(
    ("core", "data", "key"), "choose the model by --model and the data by SOURCE"
)
"""What `--option` can't set, and what does."""

SPLIT = 0.8
"""Share of the episodes that is trained on; the rest is for testing, in `koopax evaluate`."""


def train(
    source: Positional[str | None] = None,
    *,
    model: str | None = None,
    preset: str | None = None,
    latent_size: int | None = None,
    history: int | None = None,
    option: Options = [],  # noqa: B006  (only read)
    out: Path | None = None,
    resume: Path | None = None,
    seeds: int = 1,
    tensorboard: bool = False,
    wandb: bool = False,
    data_steps: int | None = None,
    columns: TableColumns = TableColumns(),  # noqa: B008  (frozen)
    resources: Resources = Resources(),  # noqa: B008  (frozen)
    hosts: Hosts = Hosts(),  # noqa: B008  (frozen)
    config: TrainConfig = TrainConfig(),  # noqa: B008  (frozen)
) -> None:
    """Train a model on a dataset. Ctrl-C saves a checkpoint; --resume goes on from it.

    Args:
        source: a Minari id, .hdf5, .npz, .csv, .parquet or one of koopax's own names.
        model: koopman, mlp, gru, transformer or dssm; or a regression: dmdc, edmd; or auto, which fits regressions,
            trains a Koopman model and keeps what predicts validation episodes best. By default auto, or koopman where
            sizes, windows, steps or seeds are given.
        preset: `paper` for the Koopman model as published; learning rate and steps were not published, so are ours.
        latent_size: real width of the latent, if not the preset's.
        history: observations that the encoder sees, the newest among them, with the actions between: for data in which
            one does not tell the whole state, such as positions without speeds; 1 by default.
        option: any other setting of the model, such as spectrum=paper or action_embedding=16.
        out: folder of the run; runs/MODEL-N by default.
        resume: folder of a run to continue; everything else is read from it, but --steps or --seconds can extend it.
        seeds: train so many seeds, from --seed on, each in a folder of its own: OUT/seed-0, OUT/seed-1, …
        tensorboard: also write metrics for TensorBoard.
        wandb: also send metrics to Weights & Biases.
        data_steps: for koopax's own names: how many environment steps to make if the set is not there yet.
        columns: for CSV and Parquet tables.
        resources: what to train on.
        hosts: training in several processes.
        config: how to train.
    """
    from koopax.training.auto import read_auto_task
    from koopax.training.hosts import connect, is_first
    from koopax.training.tasks import TrainTask, read_task, read_task_seeds, recorded_by_first, run_task, run_task_seeds

    connect(hosts)
    spread = hosts.distributed or resources.devices is not None
    if resume is not None:
        settings = {f.name: getattr(config, f.name) for f in fields(config) if getattr(config, f.name) != f.default}
        others = (source, preset, latent_size, history, option, out, data_steps, *columns.options().values())
        if any(value not in (None, []) for value in others) or model is not None or seeds != 1:
            raise KoopaxError(f"--resume reads the data and model from {str(resume)!r}: leave out other options.")
        resume = recorded_by_first(resume) if hosts.distributed else resume
        several, folder = read_task_seeds(resume), resume
        task, seeds = several or (read_auto_task(resume) or read_task(resume), 1)
        task = replace(task, train=replace(task.train, **settings))
    elif source is None:
        raise KoopaxError("train needs a dataset: pass a SOURCE, or --resume RUN to continue one.")
    else:
        of_a_model = bool(preset or option or latent_size or seeds != 1)
        if model == "auto" and of_a_model:
            raise KoopaxError("options of a model and several seeds need a model: name it, such as --model koopman.")
        said = of_a_model or config.horizon is not None or config.steps is not None or spread
        model = model or ("koopman" if said else "auto")
        sizes = {"latent_size": latent_size, "history": history}
        task = TrainTask(
            source=source,
            source_options=columns.options() | ({} if data_steps is None else {"steps": data_steps}),
            model=model if preset is None else f"{model}-{preset}",
            model_options=parse_options(option, example="spectrum=paper", refused=NOT_OPTIONS)
            | {name: size for name, size in sizes.items() if size is not None},
            split=SPLIT,
            train=config,
        )
        several, folder = seeds != 1, out or _next_folder(model)
    sinks = ("jsonl", *(["tensorboard"] if tensorboard else []), *(["wandb"] if wandb else []))
    keeping: dict[str, Any] = {"resume": resume is not None, "sinks": sinks}
    if task.model == "auto" and spread:
        raise KoopaxError("--model auto tries several models on one device: name one, such as --model koopman.")
    speaks = not hosts.distributed or is_first()
    if speaks:
        errors().print(f"run folder: {folder}", highlight=False)
    if task.model == "auto":
        _train_auto(task, folder, keeping | {"memory_map": resources.memory_map})
        return
    bar = training_progress(task.model, task.train.steps, task.train.seconds, seeds=seeds) if speaks else nullcontext()
    with bar as watch:
        keeping |= {"watch": watch, "resources": resources}
        runs = run_task_seeds(task, seeds, folder, **keeping) if several else [run_task(task, folder, **keeping)]
    if not speaks:
        raise SystemExit(130 if any(run.stopped == "interrupted" for run in runs) else 0)
    if any(run.stopped == "interrupted" for run in runs):
        reached = ", ".join(str(run.step) for run in runs)
        errors().print(
            f"stopped at step {reached}; continue with: koopax train --resume {folder}", style="yellow", soft_wrap=True
        )
        raise SystemExit(130)
    for run in runs:
        results().print(f"{run.folder}: {run.summary}", highlight=False, soft_wrap=True)


def _train_auto(task: "TrainTask", folder: Path, keeping: dict[str, Any]) -> None:
    """Try several models, one bar after another, and show what was found."""
    from koopax.cli.tables import auto_table
    from koopax.training.auto import run_auto

    with ExitStack() as shown:

        def watch(name: str, config: TrainConfig) -> "Watcher":
            shown.close()
            return shown.enter_context(training_progress(name, config.steps, config.seconds))

        found = run_auto(task, folder, **keeping, watch=watch)
    if found.interrupted:
        errors().print(f"stopped; continue with: koopax train --resume {folder}", style="yellow", soft_wrap=True)
        raise SystemExit(130)
    results().print(auto_table(found))
    results().print(f"{folder}: {found.kept} is the best", highlight=False, soft_wrap=True)


def evaluate(
    run: Positional[Path],
    source: Positional[str | None] = None,
    *,
    horizon: int = 100,
    windows: int = WINDOWS,
    seed: int = SEED,
    best: bool = False,
    reencode_every: int | Literal["never"] | None = None,
    whole_episodes: bool = False,
    level: float | None = None,
    json: bool = False,
    columns: TableColumns = TableColumns(),  # noqa: B008  (frozen)
) -> None:
    """Predict test windows and print the error at every step of the horizon.

    Args:
        run: a run folder or a .koopax file; or the folder of a training with --seeds, whose seeds predict together.
        source: a dataset to test on; of the run's own, which is the default, only the test episodes.
        horizon: steps to predict.
        windows: how many windows, fixed by the seed.
        seed: decides the windows.
        best: the model with the lowest validation loss instead of the last one.
        reencode_every: decode and encode again after so many steps, or never; as the model does by default.
        whole_episodes: instead of windows, predict every episode from its first observations to its end, and print the
            error and the fit in percent of each column.
        level: such as 0.9: how often intervals of that level hold what happened at every step, and how wide they are.
        json: print one JSON document.
        columns: for CSV and Parquet tables.
    """
    from koopax.cli.tables import coverage_table, error_table, whole_table
    from koopax.evaluation.calibration import coverage
    from koopax.evaluation.disagreement import disagreement
    from koopax.evaluation.prediction import prediction_error
    from koopax.models.ensemble import Ensemble
    from koopax.models.intervals import calibration_for, check_level, check_returns
    from koopax.training.trained import model_and_test_episodes, reference_of

    if level is not None:
        check_level(level)
    model, episodes = model_and_test_episodes(run, source, best=best, **columns.options())
    if whole_episodes:
        from koopax.evaluation.whole import whole_episodes as predict_whole

        if level is not None:
            raise KoopaxError("--whole-episodes has no intervals, which reach 100 steps: leave out it or --level.")
        with progress_bar("predicting") as watch:
            whole = predict_whole(model, episodes, reencode_every=reencode_every, watch=watch)
        if json:
            print_json(whole.to_json())
        else:
            results().print(whole_table(whole))
        return
    if level is not None:
        calibration_for(model, level, horizon)
        check_returns(model, reencode_every)
    with progress_bar("predicting") as watch:
        error = prediction_error(
            model,
            episodes,
            horizon=horizon,
            windows=windows,
            seed=seed,
            reencode_every=reencode_every,
            references=reference_of(run, model),
            watch=watch,
        )
    chosen: dict[str, Any] = {"horizon": horizon, "windows": windows, "seed": seed}
    held = None if level is None else coverage(model, episodes, level=level, **chosen)
    if json:
        document = error.to_json()
        if isinstance(model, Ensemble):
            document["ensemble"] = disagreement(model, episodes, **chosen)
        print_json(document | ({} if held is None else {"coverage": held.to_json()}) | _made_by(run, chosen))
        return
    results().print(error_table([error]))
    if held is not None:
        results().print(coverage_table(held))


def _made_by(run: Path, chosen: dict[str, Any]) -> dict[str, Any]:
    """What an evaluation comes from: its windows, how the model was trained where that is on record, and provenance."""
    from koopax._provenance import provenance
    from koopax._untrusted import read_json

    record = run / "config.json"
    trained = {"training": read_json(record)} if record.is_file() else {}
    return {"windows_chosen_by": chosen, **trained, **provenance()}


def spectrum(run: Positional[Path], *, figure: Path | None = None, rows: int = 20, json: bool = False) -> None:
    """Show a Koopman model's eigenvalues: half-lives, periods, stability, aliasing.

    Args:
        run: a run folder or a .koopax file.
        figure: save a figure of the eigenvalues there; spectrum.png in the run folder by default.
        rows: modes in the table.
        json: print one JSON document.
    """
    from koopax.cli.tables import spectrum_table
    from koopax.evaluation.spectrum import analyse_spectrum
    from koopax.training.trained import load_one, model_and_test_episodes

    model, episodes = load_one(run), None
    if run.is_dir():
        try:
            _, episodes = model_and_test_episodes(run, None)
        except KoopaxError as error:
            errors().print(
                f"without the importance of modes, as the run's data is not at hand: {error}", soft_wrap=True
            )
    analysis = analyse_spectrum(model, episodes)
    if json:
        print_json(analysis.to_json())
    else:
        results().print(spectrum_table(analysis, rows=rows))
    path = figure or (run / "spectrum.png" if run.is_dir() else None)
    if path is not None:
        from koopax.reporting.figures import save, spectrum_figure

        save(spectrum_figure(analysis), path)
        errors().print(f"figure: {path}")


def _next_folder(model: str) -> Path:
    number = 0
    while (folder := Path("runs") / f"{model}-{number}").exists():
        number += 1
    return folder
