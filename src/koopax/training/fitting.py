"""`koopax.fit` and `koopax.fit_seeds`: check what is asked for, and train."""

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from koopax._errors import DivergedError, KoopaxError, KoopaxWarning
from koopax._interrupt import StopRequest
from koopax._progress import Watcher, errors, training_progress
from koopax.data.episodes import Episodes
from koopax.data.fingerprint import fingerprint
from koopax.models.dynamics import DynamicsModel
from koopax.training.choice import HORIZON, choose_windows, growth_of, longest
from koopax.training.config import TrainConfig
from koopax.training.devices import Devices
from koopax.training.growth import choose_growth, with_growth
from koopax.training.hosts import broadcast_tree, check_alike, is_first, several, together
from koopax.training.linear_start import can_start_linear, linear_start
from koopax.training.loop import Loop, fresh_state
from koopax.training.programs import Programs
from koopax.training.record import Keeping, Record
from koopax.training.regression import RETURNS, is_regression, regress
from koopax.training.resources import DeviceCount
from koopax.training.run import Run, recorded_model
from koopax.training.settings import check_devices, check_training, settings_for, with_horizon

INTERRUPTED = "training was interrupted"
"""How the warning begins that a model is returned before its training was finished."""

OnInterrupt: TypeAlias = Literal["raise", "return"]


def fit(
    model: DynamicsModel,
    train: Episodes,
    *,
    validation: Episodes | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    sinks: tuple[str, ...] = ("jsonl",),
    data: dict[str, Any] | None = None,
    watch: Watcher | None = None,
    progress: bool | None = None,
    on_interrupt: OnInterrupt = "raise",
    devices: DeviceCount | None = None,
    config: TrainConfig | None = None,
    **settings: Any,
) -> Run:
    """Train a model.

    Args:
        model: where training starts; it is left as it is.
        train: the training episodes.
        validation: episodes for the validation loss, the best model and early stopping.
        out: a folder for metrics, checkpoints and the model; without it nothing is written.
        resume: continue from the newest checkpoint in `out`.
        sinks: where metrics go besides the returned run: "jsonl", "tensorboard", "wandb".
        data: where the episodes came from, recorded in `out`.
        watch: called with every line of metrics and its seed, and before the first with `compile_seconds`, and where
            windows are chosen with what it is `doing`.
        progress: show a bar on standard error; by default where that is a terminal and nothing else watches.
        on_interrupt: what Ctrl-C or SIGTERM does once the steps under way and a checkpoint in `out` are done: "raise"
            KeyboardInterrupt (SystemExit for SIGTERM), or "return" the run as it is then, with a warning.
        devices: how many devices share each batch, or "all"; one by default. The numbers are those of one device, up to
            rounding.
        config: the settings.
        **settings: single fields of `TrainConfig`, such as `horizon=100, steps=2000, batch_size=64, seed=0`.
    """
    folder = None if out is None else Path(out)
    begun = folder if resume else None
    config = settings_for(config, settings, model, train, begun)
    model, config = choose_growth(model, train, config, begun and recorded_model(begun))
    with _shown(model, [config], watch, progress) as watch:
        keeping = Keeping(resume, tuple(sinks), data, watch=watch)
        on = Devices.choose(devices)
        (outcome,) = _train([model], train, validation, [config], [folder], keeping, on_interrupt, on)
    if isinstance(outcome, DivergedError):
        raise outcome
    return outcome


def fit_seeds(
    models: Sequence[DynamicsModel],
    train: Episodes,
    *,
    validation: Episodes | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    sinks: tuple[str, ...] = ("jsonl",),
    data: dict[str, Any] | None = None,
    watch: Watcher | None = None,
    progress: bool | None = None,
    on_interrupt: OnInterrupt = "raise",
    devices: DeviceCount | None = None,
    config: TrainConfig | None = None,
    **settings: Any,
) -> list[Run]:
    """Train several seeds on the same data, one after another on the same compiled programs.

    A seed gives the run that `fit` gives with that seed. One that diverges does not stop the others; when they are
    done, it is raised.

    Args:
        models: one per seed, alike but for their parameters; model k is trained with seed `seed + k`.
        out: a folder for the runs, each in a folder of its own: `seed-0`, `seed-1`, …
        resume: continue every seed from its newest checkpoint; one that was not begun yet is begun.
        train, validation, sinks, data, watch, progress, on_interrupt, devices, config, **settings: as for `fit`.
    """
    if not models or any(model.config != models[0].config for model in models):
        raise KoopaxError("fit_seeds needs one model or more, all of the same configuration: create them alike.")
    seed = settings.get("seed", (config or TrainConfig()).seed)
    begun = Path(out) / f"seed-{seed}" if resume and out is not None else None
    config = settings_for(config, settings, models[0], train, begun)
    first, config = choose_growth(models[0], train, config, begun and recorded_model(begun))
    if (growth := growth_of(first)) != growth_of(models[0]):
        models = [with_growth(model, growth) for model in models]
    configs = [replace(config, seed=config.seed + index) for index in range(len(models))]
    folders = [None if out is None else Path(out) / f"seed-{each.seed}" for each in configs]
    with _shown(models[0], configs, watch, progress) as watch:
        keeping = Keeping(resume, tuple(sinks), data, seeds=(config.seed, len(models)), watch=watch)
        on = Devices.choose(devices)
        outcomes = _train(models, train, validation, configs, folders, keeping, on_interrupt, on)
    diverged = {c.seed: o for c, o in zip(configs, outcomes, strict=True) if isinstance(o, DivergedError)}
    if diverged:
        told = "; ".join(f"seed {seed}: {error}" for seed, error in diverged.items())
        raise DivergedError(f"{len(diverged)} of {len(models)} seeds diverged; {told}")
    return [outcome for outcome in outcomes if isinstance(outcome, Run)]


def _train(
    models: Sequence[DynamicsModel],
    train: Episodes,
    validation: Episodes | None,
    configs: Sequence[TrainConfig],
    folders: Sequence[Path | None],
    keeping: Keeping,
    on_interrupt: OnInterrupt,
    devices: Devices,
) -> list[Run | DivergedError]:
    """Train every model with its settings, in its folder, one after another on the same programs."""
    began = time.perf_counter()
    check_training(models[0], train, validation, configs[0], folders[0], keeping)
    check_devices(configs[0], devices)
    # The trials return to the encoder, which a stochastic model does not, and a regression has nothing to choose.
    chosen = configs[0].horizon is not None or is_regression(models[0]) or models[0].noise is not None
    if validation is not None and not chosen:
        models, configs, keeping = _with_chosen_windows(models, train, validation, configs, keeping, devices)
    models = [_returning(model, configs[0], folders[0] if keeping.resume else None) for model in models]
    configs = [with_horizon(config, models[0], train, validation) for config in configs]
    models = [start_training(model, train, validation, config) for model, config in zip(models, configs, strict=True)]
    if folders[0] is not None or several():
        keeping = replace(keeping, fingerprint=fingerprint(train))
    check_alike({"the training episodes": str(keeping.fingerprint), "the settings": str(configs[0])})
    if not is_first():
        folders, keeping = [None] * len(folders), replace(keeping, resume=False, watch=None)
    programs = Programs(train, validation, configs[0], devices, past=models[0].past_steps)
    records: list[Record] = []
    outcomes: list[Run | DivergedError] = []
    try:
        # All folders are claimed before the first seed is trained, so that a bad one is found at once.
        with together():
            for model, config, folder in zip(models, configs, folders, strict=True):
                records.append(Record(model, config, folder, keeping.of(folder)))
        with StopRequest() as stop:
            for record, model, config in zip(records, models, configs, strict=True):
                with together():
                    state = record.open(fresh_state(model, config))
                state = broadcast_tree(state)
                try:
                    outcomes.append(Loop(record, state, programs, began=began).run(stop))
                except DivergedError as error:
                    outcomes.append(error)
                began = time.perf_counter()
    finally:
        programs.close()
        for record in records:
            record.close()
    _tell_interrupted([run for run in outcomes if isinstance(run, Run)], stop, on_interrupt)
    return outcomes


def _with_chosen_windows(
    models: Sequence[DynamicsModel],
    train: Episodes,
    validation: Episodes,
    configs: Sequence[TrainConfig],
    keeping: Keeping,
    devices: Devices,
) -> tuple[list[DynamicsModel], list[TrainConfig], Keeping]:
    """Models and settings with the windows that short trials of the first one are best with."""

    def run(model: DynamicsModel, config: TrainConfig) -> DynamicsModel:
        (outcome,) = _train([model], train, None, [config], [None], Keeping(), "raise", devices)
        if isinstance(outcome, DivergedError):
            raise outcome
        return outcome.model

    began = time.perf_counter()
    if keeping.watch is not None:
        keeping.watch({"step": 0, "seconds": 0.0, "doing": "choosing windows", "seed": configs[0].seed})
    model, config, trials = choose_windows(models[0], train, validation, configs[0], run)
    left = None if config.seconds is None else max(1.0, config.seconds - (time.perf_counter() - began))
    changes = {"horizon": config.horizon, "validation_horizon": config.validation_horizon, "seconds": left}
    every = model.config.reencode_every
    return (
        [each.with_reencoding(every) for each in models],
        [replace(each, **changes) for each in configs],
        replace(keeping, trials=trials),
    )


def _returning(model: DynamicsModel, config: TrainConfig, begun: Path | None) -> DynamicsModel:
    """The model with the returns to its encoder that it is trained with: as it was begun, or as the settings say."""
    if begun is not None:
        return model.with_reencoding(recorded_model(begun).reencode_every)
    if config.reencode_every == "auto":
        return model
    return model.with_reencoding(None if config.reencode_every == "never" else config.reencode_every)


def start_training(
    model: DynamicsModel, train: Episodes, validation: Episodes | None, config: TrainConfig
) -> DynamicsModel:
    """Where gradient steps begin: at least squares for what is linear, and elsewhere at the model itself."""
    if can_start_linear(model):
        return linear_start(model, train)
    if not is_regression(model):
        return model
    every = config.reencode_every
    returns = RETURNS if every == "auto" else (None if every == "never" else every,)
    horizon = config.validation_horizon or longest(train, config.horizon or HORIZON)
    return regress(model, train, validation, horizon=horizon, returns=returns)[0]


def _tell_interrupted(runs: Sequence[Run], stop: StopRequest, on_interrupt: OnInterrupt) -> None:
    """Raise or warn where a signal has ended a training early."""
    if not any(run.stopped == "interrupted" for run in runs):
        return
    reached = ", ".join(str(run.step) for run in runs)
    kept = "call fit again with resume=True to go on" if runs[0].folder else "pass out= to be able to go on from there"
    message = f"{INTERRUPTED} at step {reached} of {runs[0].config.steps}: {kept}."
    if on_interrupt == "raise":
        stop.interrupt(message)
    warnings.warn(f"{message} The model that is returned is trained no further.", KoopaxWarning, stacklevel=4)


@contextmanager
def _shown(
    model: DynamicsModel, configs: Sequence[TrainConfig], watch: Watcher | None, progress: bool | None
) -> Iterator[Watcher | None]:
    """The caller's watcher, a bar, or both."""
    if progress is None:
        progress = watch is None and sys.stderr.isatty()
    if not progress:
        yield watch
        return
    config, seeds = configs[0], len(configs)
    began = time.perf_counter()
    with training_progress(model.config.core, config.steps, config.seconds, seeds=seeds) as move:
        last: dict[str, Any] = {"step": 0}
        compiling = 0.0

        def both(line: dict[str, Any]) -> None:
            nonlocal last, compiling
            last, compiling = line, compiling + line.get("compile_seconds", 0.0)
            move(line)
            if watch is not None:
                watch(line)

        yield both
    seconds = time.perf_counter() - began
    told = f"{last['step']} steps in {seconds:.1f} s ({compiling:.1f} s of it compilation)"
    errors().print(f"{model.config.core}: {told}", highlight=False)
