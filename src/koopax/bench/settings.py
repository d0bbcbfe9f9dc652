"""What `koopax bench speed` measures. Without heavy imports, because the command line shows the defaults."""

from dataclasses import dataclass

from koopax._errors import KoopaxError, unknown_name
from koopax.models.presets import PRESETS

BASELINES = ("mlp", "gru", "transformer", "dssm")
LISTING = "paper-listing"
EVERY_STEP = ("koopman@1", "mlp@1")
MODELS = ("koopman", *BASELINES, *EVERY_STEP, LISTING)
HORIZONS = (10, 50, 100, 200, 500)


@dataclass(frozen=True)
class SpeedSettings:
    """What `koopax bench speed` measures."""

    models: tuple[str, ...] = MODELS
    """Arms: presets or "paper-listing", each possibly with `@N` for a loss on every N-th step."""
    horizons: tuple[int, ...] = HORIZONS
    """Steps that the models are unrolled for."""
    batch_size: int = 256
    """Windows in a batch."""
    rounds: int = 7
    """Interleaved rounds; slow arms leave after three."""
    loss_stride: int | None = 10
    """Every arm's losses are taken on every n-th step of a window, but on four steps of it at least; 1 is every step,
    10 what the Koopman model is trained with by default, and None each core's own in `koopax.models.presets`. The
    listing's are on every step in any case."""
    reward: bool = False
    """Whether rewards are predicted too, by every arm."""
    remat_steps: int | None = None
    """Steps that the Koopman arms keep for a gradient, the others are computed again; None keeps all of them."""
    memory: bool = True
    """Whether each arm's memory is measured, in a process of its own."""
    source: str = "koopax/halfcheetah/expert-v0"
    """The dataset."""
    data_steps: int = 100_000
    """Its environment steps, where it is one of koopax's own; other sources are taken whole."""

    def __post_init__(self) -> None:
        for name in self.models:
            model, stride = parse_arm(name)
            if model != LISTING and model not in PRESETS:
                raise unknown_name("model", model, [*PRESETS, LISTING])
            if stride is not None and (stride < 1 or model == LISTING):
                raise KoopaxError(f"{name!r} is no arm: use a stride of 1 or more, and none for {LISTING}.")
        for name in ("batch_size", "rounds", "loss_stride", "remat_steps"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise KoopaxError(f"{name} is {getattr(self, name)}: use 1 or more.")
        if not self.models or not self.horizons or min(self.horizons) < 1:
            raise KoopaxError(f"models {self.models} at horizons {self.horizons}: give one or more of each.")


def parse_arm(name: str) -> tuple[str, int | None]:
    """An arm's model and the stride of its loss, if it has one of its own: `koopman@4` looks at every fourth step."""
    model, at, stride = name.partition("@")
    if at and not stride.isdecimal():
        raise KoopaxError(f"arm {name!r} has no stride that is a number: write MODEL@N, such as koopman@4.")
    return model, int(stride) if at else None
