"""The settings of a training as they are recorded, with what was left open filled in, and what is refused."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from koopax._errors import KoopaxError
from koopax.data.episodes import Episodes
from koopax.models.dynamics import DynamicsModel
from koopax.models.presets import OTHER_TRAINING, PLAIN_TRAINING, TRAINING
from koopax.training.choice import HORIZON, longest, longest_window
from koopax.training.config import SMALL_PARAMETERS, TrainConfig, stride_within
from koopax.training.devices import Devices
from koopax.training.record import Keeping
from koopax.training.run import recorded_settings

STEPS = 2000
STEPS_OF_SMALL = 10_000
STEPS_WITH_TIME_LIMIT = 10_000_000
# No parameter has gradients of the likelihood and of another loss, so that this matters to the gradient's norm alone.
LIKELIHOOD_WEIGHT = 0.1


def settings_for(
    config: TrainConfig | None, settings: dict[str, Any], model: DynamicsModel, train: Episodes, begun: Path | None
) -> TrainConfig:
    """The settings as they are recorded; `begun` is the folder of a run that is resumed."""
    known = {f.name for f in fields(TrainConfig)}
    for name in settings:
        if name not in known:
            raise KoopaxError(f"fit has no setting {name!r}: it takes {', '.join(sorted(known))}.")
    # Resolved here, so that what is recorded is what ran.
    config = replace(config or TrainConfig(), **settings)
    small = model.num_parameters() < SMALL_PARAMETERS
    if small:  # little data is learned from short windows, which have many starts, without a decay and to the end
        plain = {name: value for name, value in PLAIN_TRAINING.items() if getattr(config, name) is None}
        config = replace(config, **plain)
    config = resolved(config, model.config.core, steps=STEPS_OF_SMALL if small else STEPS)
    if begun is not None:
        config = _as_begun(config, recorded_settings(begun))
    elif config.reencode_every == "auto" and model.config.reencode_every is not None:
        config = replace(config, reencode_every=model.config.reencode_every)
    config = _with_likelihood(config, model)
    if train.has_rewards:
        return config
    # Rewards that nobody recorded are nothing to learn; a run that was begun goes on as it was begun.
    weight = 0.0 if begun is None else recorded_settings(begun).reward_weight
    return replace(config, reward_weight=weight)


def _with_likelihood(config: TrainConfig, model: DynamicsModel) -> TrainConfig:
    """The settings with the weight of the likelihood, where the model has noise to learn by it."""
    if model.noise is None:
        if config.likelihood_weight:
            raise KoopaxError(
                f"likelihood_weight is {config.likelihood_weight}, but the model has no noise to learn: leave it out, "
                "or train koopman-stochastic."
            )
        return config
    if config.reencode_every == "auto":
        config = replace(config, reencode_every="never")
    return config if config.likelihood_weight is not None else replace(config, likelihood_weight=LIKELIHOOD_WEIGHT)


def _as_begun(config: TrainConfig, recorded: TrainConfig) -> TrainConfig:
    """The settings with what was chosen when the run was begun in the place of what is left open."""
    chosen = ("horizon", "validation_horizon", "loss_stride")
    same = {name: getattr(recorded, name) for name in chosen if getattr(config, name) is None}
    return replace(config, **same)


def resolved(config: TrainConfig, core: str, *, steps: int = STEPS) -> TrainConfig:
    """The settings with what the user left open filled in for that core; `steps` where nothing limits them."""
    own = {name: value for name, value in TRAINING.get(core, OTHER_TRAINING).items() if name != "loss_stride"}
    missing = {name: value for name, value in own.items() if getattr(config, name) is None}
    if config.steps is None and "steps" not in missing:
        missing["steps"] = steps if config.seconds is None else STEPS_WITH_TIME_LIMIT
    return with_stride(replace(config, **missing), core)


def check_history(history: int, train: Episodes) -> None:
    """Raise where no episode holds a whole history and a step after it."""
    if history > 1 and history > int(train.lengths.max()):
        raise KoopaxError(
            f"a history of {history} observations and a step after them fit in no episode, the longest of which has "
            f"{int(train.lengths.max())} steps: use a shorter history."
        )


def check_devices(config: TrainConfig, devices: Devices) -> None:
    """Raise unless the devices can share the batch."""
    share = devices.share(config.batch_size)
    if config.microbatch_size is not None and share % config.microbatch_size:
        raise KoopaxError(
            f"microbatch_size is {config.microbatch_size}, which does not divide the {share} windows that each of "
            f"{devices.count} devices has of a batch: use a divisor, or None for its default."
        )


def check_training(
    model: DynamicsModel,
    train: Episodes,
    validation: Episodes | None,
    config: TrainConfig,
    folder: Path | None,
    keeping: Keeping,
) -> None:
    """Raise where a training can't be what it is asked to be."""
    sizes = (model.config.state_size, model.config.action_size)
    if sizes != (train.state_size, train.action_size):
        raise KoopaxError(
            f"the model takes states and actions of sizes {sizes}, but the data has "
            f"{(train.state_size, train.action_size)}: create the model from this data."
        )
    check_history(model.config.history, train)
    if folder is None and keeping.resume:
        raise KoopaxError("resuming needs the run's folder: pass out.")
    if folder is None and keeping.sinks != ("jsonl",):
        raise KoopaxError(f"metrics can't go to {keeping.sinks} without a folder for the run: pass out.")
    if validation is None and config.patience is not None:
        raise KoopaxError(f"patience is {config.patience}, but nothing is validated: pass validation episodes.")


def with_horizon(
    config: TrainConfig, model: DynamicsModel, train: Episodes, validation: Episodes | None
) -> TrainConfig:
    """The settings with windows as long as model and episodes allow, where nobody said, and a stride that suits."""
    most = min(longest_window(model, train), HORIZON if validation is None else longest(validation))
    return with_stride(replace(config, horizon=config.horizon or most), model.config.core)


def with_stride(config: TrainConfig, core: str) -> TrainConfig:
    """The settings with the core's stride of the losses, as far as the windows allow, where nobody said."""
    if config.loss_stride is not None or config.horizon is None:
        return config
    own = TRAINING.get(core, OTHER_TRAINING)["loss_stride"]
    return replace(config, loss_stride=stride_within(own, config.horizon))
