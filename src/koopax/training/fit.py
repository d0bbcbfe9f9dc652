"""`koopax.fit` and `koopax.fit_seeds`: check what is asked for, and train."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from koopax._errors import DivergedError, KoopaxError
from koopax._interrupt import StopRequest
from koopax.data.episodes import Episodes
from koopax.data.fingerprint import fingerprint
from koopax.models.dynamics import DynamicsModel
from koopax.models.presets import OTHER_TRAINING, TRAINING
from koopax.training.config import TrainConfig, stride_within
from koopax.training.loop import Loop, Programs, fresh_state
from koopax.training.record import Keeping, Record, Watcher
from koopax.training.run import Run
from koopax.training.together import common_step, pays_together

STEPS = 2000
STEPS_WITH_TIME_LIMIT = 10_000_000


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
        watch: called with every line of metrics and its seed, for progress bars.
        config: the settings.
        **settings: single fields of `TrainConfig`, such as `horizon=100, steps=2000, batch_size=64, seed=0`.
    """
    config = _settings(config, settings, model.config.core)
    folder = None if out is None else Path(out)
    keeping = Keeping(resume, tuple(sinks), data, watch=watch)
    (outcome,) = _train([model], train, validation, [config], [folder], keeping, together=False)
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
    together: bool | None = None,
    config: TrainConfig | None = None,
    **settings: Any,
) -> list[Run]:
    """Train several seeds on the same data, compiling once. A seed gives the run that `fit` gives with that seed.

    A loss that becomes non-finite ends its seed only; when the others are done, it is raised.

    Args:
        models: one per seed, alike but for their parameters; model k is trained with seed `seed + k`.
        out: a folder for the runs, each in a folder of its own: `seed-0`, `seed-1`, …
        resume: continue every seed from its newest checkpoint.
        together: all seeds in every step by `jax.vmap`, or one after another; None for what is faster, see
            `koopax.training.together`.
        train, validation, sinks, data, watch, config, **settings: as for `fit`.
    """
    if not models or any(model.config != models[0].config for model in models):
        raise KoopaxError("fit_seeds needs one model or more, all of the same configuration: create them alike.")
    config = _settings(config, settings, models[0].config.core)
    configs = [replace(config, seed=config.seed + index) for index in range(len(models))]
    folders = [None if out is None else Path(out) / f"seed-{each.seed}" for each in configs]
    if together is None:
        together = pays_together(models[0].config.core, train, config, tuple(sinks))
    outcomes = _train(
        models, train, validation, configs, folders, Keeping(resume, tuple(sinks), data, watch=watch), together=together
    )
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
    *,
    together: bool,
) -> list[Run | DivergedError]:
    """Train every model with its settings, in its folder."""
    _check(models[0], train, validation, configs[0], folders[0], keeping)
    if folders[0] is not None:
        keeping = replace(keeping, fingerprint=fingerprint(train))
    programs = Programs(train, validation, configs[0])
    records: list[Record] = []
    outcomes: list[Run | DivergedError] = []
    try:
        for model, config, folder in zip(models, configs, folders, strict=True):
            records.append(Record(model, config, folder, keeping))
        shared = common_step(records) if together and keeping.resume else None
        together = together and (not keeping.resume or shared is not None)
        with StopRequest() as stop:
            for group in [range(len(models))] if together else [[index] for index in range(len(models))]:
                states = [records[i].open(fresh_state(models[i], configs[i]), shared) for i in group]
                outcomes += Loop([records[i] for i in group], states, programs).run(stop)
    finally:
        for record in records:
            record.close()
    return outcomes


def _settings(config: TrainConfig | None, settings: dict[str, Any], core: str) -> TrainConfig:
    known = {f.name for f in fields(TrainConfig)}
    for name in settings:
        if name not in known:
            raise KoopaxError(f"fit has no setting {name!r}: it takes {', '.join(sorted(known))}.")
    # Resolved here, so that what is recorded is what ran.
    return resolved(replace(config or TrainConfig(), **settings), core)


def resolved(config: TrainConfig, core: str) -> TrainConfig:
    """The settings with what the user left open filled in for that core."""
    own = dict(TRAINING.get(core, OTHER_TRAINING))
    own["loss_stride"] = stride_within(own["loss_stride"], config.horizon)
    missing = {name: value for name, value in own.items() if getattr(config, name) is None}
    if config.steps is None:
        missing["steps"] = STEPS if config.seconds is None else STEPS_WITH_TIME_LIMIT
    return replace(config, **missing)


def _check(
    model: DynamicsModel,
    train: Episodes,
    validation: Episodes | None,
    config: TrainConfig,
    folder: Path | None,
    keeping: Keeping,
) -> None:
    sizes = (model.config.state_size, model.config.action_size)
    if sizes != (train.state_size, train.action_size):
        raise KoopaxError(
            f"the model takes states and actions of sizes {sizes}, but the data has "
            f"{(train.state_size, train.action_size)}: create the model from this data."
        )
    if folder is None and keeping.resume:
        raise KoopaxError("resuming needs the run's folder: pass out.")
    if folder is None and keeping.sinks != ("jsonl",):
        raise KoopaxError(f"metrics can't go to {keeping.sinks} without a folder for the run: pass out.")
    if validation is None and config.patience is not None:
        raise KoopaxError(f"patience is {config.patience}, but nothing is validated: pass validation episodes.")
