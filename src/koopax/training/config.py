"""What a training run does; recorded with the run, never changed after it was read."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from koopax._errors import KoopaxError
from koopax._untrusted import from_json

# Models with fewer are small: they take a step in a millisecond or two, and data that they suit rewards precision.
SMALL_PARAMETERS = 100_000
# What runs that were recorded earlier call a setting.
FORMER_NAMES = {"time_chunk": "remat_steps", "windows_together": "microbatch_size"}
# What they were trained with where they don't name it, because it was not a setting yet.
FORMER_VALUES = {
    "beta2": 0.999,
    "beta2_rise": 0.0,
    "reencode_every": "never",
    "early_weight": 0.0,
    "early_starts": 2,
    "joint_share": 0.0,
    "decay_steps": 0,
}


@dataclass(frozen=True)
class TrainConfig:
    """Settings of `koopax.fit` and `koopax train`."""

    horizon: int | None = None
    """Steps that the model is unrolled for in training; None to choose by short trials on the validation episodes, and
    100 without any."""
    reencode_every: int | Literal["auto", "never"] = "auto"
    """Steps after which the model decodes and encodes again; auto to choose what is best on the validation episodes,
    unless the model says."""
    steps: int | None = None
    """Gradient steps; None for 2000, 10000 of a small model, or as many as fit where `seconds` is given."""
    batch_size: int = 64
    """Windows in a batch."""
    seed: int = 0
    """Decides the windows and the random steps of the losses; with `koopax train` also the initial parameters."""
    learning_rate: float | None = None
    """Peak learning rate; None for the core's own in `koopax.models.presets`."""
    spectrum_learning_rate: float = 1.0
    """Learning rate of a Koopman core's spectrum, as a factor on `learning_rate`."""
    warmup: float = 0.05
    """Fraction of the run over which the learning rate rises from zero."""
    final_learning_rate: float = 0.0
    """Where the cosine decay ends, as a fraction of the peak; 1 keeps it constant."""
    beta2: float | None = None
    """Adam's memory of squared gradients: the decay of their running mean; None for the core's own in
    `koopax.models.presets`."""
    beta2_rise: float | None = None
    """κ, with which that memory grows: the decay is 1 − t^−κ at step t, and at most `beta2`; 0 for `beta2` from the
    first step on, None for the core's own in `koopax.models.presets`."""
    weight_decay: float | None = None
    """Decoupled weight decay (AdamW) on matrices; 0 is Adam, None for the core's own in `koopax.models.presets`."""
    decay_steps: int | None = None
    """Steps over which that decay rises from zero: a model that is still far from its data has little use for it. 0 for
    all of it from the first step on, None for the core's own in `koopax.models.presets`."""
    clip: float = 1.0
    """Largest global gradient norm."""
    state_weight: float = 1.0
    """Weight of the state-prediction loss."""
    reward_weight: float = 1.0
    """Weight of the reward loss."""
    likelihood_weight: float | None = None
    """Weight of the likelihood of a stochastic model, by which its noise is learned and nothing else; None for 0.1, and
    for none without noise."""
    loss_stride: int | None = None
    """n, where states and rewards are decoded and compared on every n-th step of a window, from a random one on; 1 for
    every step, None for the core's own in `koopax.models.presets`, but for four steps of a window at least."""
    early_weight: float | None = None
    """Weight of the state and reward losses of the first ten steps after further starts within each window; None for
    the core's own in `koopax.models.presets`."""
    early_starts: int | None = None
    """How many further starts these are; None for the core's own in `koopax.models.presets`."""
    joint_share: float | None = None
    """Of a model with members, the share of the state and reward losses that their mean's miss makes up, and not what
    each misses by itself: 0 to train each by itself, 1 their mean alone, None for the core's own in
    `koopax.models.presets`."""
    remat_steps: int | None = None
    """Rematerialisation, which bounds the memory of a gradient: besides the latents, only what belongs to that many
    steps of the windows is kept, and the rest is computed again. None keeps everything."""
    microbatch_size: int | None = None
    """Windows whose gradient is computed at a time, a divisor of `batch_size`: the mean over all microbatches is the
    batch's, and only what belongs to one takes memory. None is what is fastest for the core, see
    `koopax.training.microbatch`."""
    consistency_weight: float = 0.001
    """Weight of the consistency loss; 0 leaves it out."""
    consistency_steps: int | None = 4
    """How many of the steps on which the other losses are taken the consistency loss is estimated on, at random and
    without bias; None for all of them."""
    seconds: float | None = None
    """Stop after so many seconds of training, compilation excluded. The learning rate then follows the clock, so such
    a run can't be repeated bit for bit."""
    log_every: int = 50
    """Steps between two lines of metrics."""
    validate_every: int = 200
    """Steps between two validations."""
    validation_windows: int = 512
    """Fixed windows that a validation predicts."""
    validation_horizon: int | None = None
    """Steps that a validation predicts; None for `horizon`."""
    patience: int | None = None
    """Stop after so many validations without a new best; None never does."""
    checkpoint_every: int = 500
    """Steps between two checkpoints."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "log_every", "validate_every", "validation_windows", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise KoopaxError(f"{name} is {getattr(self, name)}: use 1 or more.")
        if self.steps is not None and self.steps < 0:
            raise KoopaxError(f"steps is {self.steps}: use 0 for a regression as it is fitted, or more.")
        every = self.reencode_every
        if every not in ("auto", "never") and (not isinstance(every, int) or every < 1):
            raise KoopaxError(f"reencode_every is {every!r}: use 1 or more steps, never, or auto.")
        for name in (
            "horizon",
            "loss_stride",
            "early_starts",
            "remat_steps",
            "microbatch_size",
            "consistency_steps",
            "validation_horizon",
            "patience",
        ):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise KoopaxError(f"{name} is {getattr(self, name)}: use 1 or more, or None for its default.")
        if self.microbatch_size is not None and self.batch_size % self.microbatch_size:
            raise KoopaxError(
                f"microbatch_size is {self.microbatch_size}, which does not divide the batch of {self.batch_size}: "
                "use a divisor, or None for its default."
            )
        for name in ("learning_rate", "clip"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise KoopaxError(f"{name} is {getattr(self, name)}: use a positive number.")
        if self.joint_share is not None and not 0 <= self.joint_share <= 1:
            raise KoopaxError(f"joint_share is {self.joint_share}: use 0 to 1, or None for its default.")
        for name in ("likelihood_weight", "early_weight", "weight_decay", "decay_steps", "beta2_rise"):
            if getattr(self, name) is not None and not getattr(self, name) >= 0:
                raise KoopaxError(f"{name} is {getattr(self, name)}: use 0 or more, or None for its default.")
        weights = ("state_weight", "reward_weight", "consistency_weight")
        for name in (*weights, "spectrum_learning_rate", "final_learning_rate"):
            if not getattr(self, name) >= 0:
                raise KoopaxError(f"{name} is {getattr(self, name)}: use 0 or more.")
        if not any(getattr(self, name) for name in weights):
            raise KoopaxError(f"{', '.join(weights)} are all 0, so there is nothing to learn: give one a weight.")
        if self.beta2 is not None and not 0 <= self.beta2 < 1:
            raise KoopaxError(f"beta2 is {self.beta2}: use a decay from 0 to below 1, such as 0.999.")
        if not 0 <= self.warmup < 1:
            raise KoopaxError(f"warmup is {self.warmup}: use a fraction of the run, from 0 to below 1.")
        if self.seconds is not None and not self.seconds > 0:
            raise KoopaxError(f"seconds is {self.seconds}: use a positive number, or None for no time limit.")

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "TrainConfig":
        """The settings recorded in a run folder."""
        known, recorded = {f.name for f in fields(cls)}, FORMER_VALUES | current_names(document)
        return from_json(cls, {name: value for name, value in recorded.items() if name in known})


def current_names(document: dict[str, Any]) -> dict[str, Any]:
    """Recorded settings under the names they have now."""
    return {FORMER_NAMES.get(name, name): value for name, value in document.items()}


def stride_within(stride: int, horizon: int) -> int:
    """`stride`, or less where fewer than four steps of a window would be left: no draw should leave out most of it."""
    return min(stride, max(1, horizon // 4))
