"""What a training run of SAC from pixels needs to know, in one frozen record."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from koopax._errors import KoopaxError, unknown_name
from koopax.agents.config import AgentConfig
from koopax.models.latent import CORES

PLAIN = "none"
"""The arm without self-prediction."""
OF_PREDICTIONS = ("prediction_weight", "latent_size", "decoder_hidden", "core_options")
"""Settings that change nothing in the plain arm."""
GIB = 2**30
COMPARED_STEPS = 2
AT_LEAST_ONE = (
    "steps",
    "num_envs",
    "image_size",
    "oversampling",
    "frame_stack",
    "return_steps",
    "batch_size",
    "horizon",
    "prediction_batch",
    "target_every",
    "updates_per_dispatch",
    "replay_steps",
    "evaluate_every",
    "evaluate_episodes",
    "final_episodes",
)

# The core is all that differs between the arms; other cores take their own defaults.
CORE_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "mlp": {"hidden": 128},
    "koopman": {"action_embedding": 16, "action_hidden": (64,)},
}


@dataclasses.dataclass(frozen=True)
class PixelSACConfig(AgentConfig):
    """Settings of `koopax.agents.train_pixel_sac`; `PUBLISHED` has those of the paper, the defaults suit one core."""

    kind: ClassVar[str] = "sac-pixels"
    changeable: ClassVar[tuple[str, ...]] = (
        "steps",
        "evaluate_every",
        "evaluate_episodes",
        "final_episodes",
        "processes",
        "checkpoint_seconds",
    )
    uncompiled: ClassVar[tuple[str, ...]] = (
        "task",
        "seed",
        "action_repeat",
        "num_envs",
        "oversampling",
        "replay_steps",
        "replay_gib",
        "random_decisions",
        "updates_per_decision",
        "updates_per_dispatch",
    )

    task: str = "cartpole-swingup"
    """Environment, as `koopax.envs.make` takes it."""
    dynamics: str = "koopman"
    """The core that predicts representations: koopman, mlp (SPR), any other that is registered, or none (SAC)."""
    seed: int = 0
    """Seed of everything random: networks, exploration, batches, shifts, resets."""
    steps: int = 100_000
    """Environment steps, over all environments together; a decision takes `action_repeat` of them."""
    action_repeat: int | None = None
    """Environment steps per decision; None: as published for DMC tasks, 1 elsewhere."""
    num_envs: int = 1
    """Environments stepped together."""
    image_size: int = 48
    """Height and width of a frame."""
    oversampling: int = 2
    """Frames are drawn so many times as large and averaged, so that small ones tell more."""
    frame_stack: int = 3
    """Frames that an observation consists of."""
    shift: int = 2
    """Largest random shift of an observation, in pixels; 0 for none."""
    encoder: str = "patches"
    """Image encoder by name, see `koopax.models.images`."""
    representation_size: int = 50
    """Width of z."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the actor and of each critic."""
    batch_size: int = 64
    """Transitions per update."""
    discount: float = 0.99
    """γ."""
    return_steps: int = 3
    """n: rewards in a TD target before it bootstraps."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    initial_temperature: float = 0.1
    """α at the start."""
    target_entropy: float | None = None
    """Entropy that the temperature aims at; None: minus the number of action components."""
    target_rate: float = 0.01
    """τ of the target critics' moving average."""
    target_every: int = 1
    """Updates between two steps of the target critics, and of the actor."""
    horizon: int = 5
    """K: decisions that representations are predicted ahead."""
    prediction_batch: int = 16
    """Windows among an update's transitions that are predicted."""
    prediction_stride: int | None = None
    """Predictions are compared at every so many steps, from a random one on; None: at two steps of a window."""
    prediction_weight: float = 0.1
    """Weight of the self-prediction loss, which is a sum over the components of z. At 1 it outweighs the critics' loss
    at the start, and representations collapse before there is anything to tell apart."""
    latent_size: int = 128
    """Width of x, the latent in which the core moves."""
    decoder_hidden: tuple[int, ...] = (128,)
    """Hidden layers between x and the predicted z."""
    core_options: tuple[tuple[str, Any], ...] = ()
    """Options of the core by name, over those in `CORE_OPTIONS`; pairs stand for mappings, as in `spectrum_options`."""
    random_decisions: int = 500
    """Decisions with uniform actions before the first update; then as many updates as they would have had."""
    updates_per_decision: float = 1.0
    """Updates per decision, over all environments together."""
    updates_per_dispatch: int = 1
    """Updates in one compiled call, between which no decision is made."""
    replay_steps: int = 100_000
    """Frames kept, over all environments together; the oldest are overwritten."""
    replay_gib: float | None = None
    """The same in GiB, which then counts instead."""
    processes: int | None = None
    """Processes that draw; None: one per environment, but no more than there are cores."""
    evaluate_every: int = 10_000
    """Environment steps between evaluations."""
    evaluate_episodes: int = 3
    """Episodes per evaluation, without exploration."""
    final_episodes: int = 10
    """Episodes of the evaluation at the end."""
    checkpoint_seconds: float = 120.0
    """Seconds between checkpoints."""

    def __post_init__(self):
        if self.dynamics != PLAIN and self.dynamics not in CORES:
            raise unknown_name("dynamics", self.dynamics, [PLAIN, *CORES])
        for name in AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise KoopaxError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        for name in ("action_repeat", "prediction_stride", "processes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise KoopaxError(f"{name} is {value}; it must be at least 1.")
        if not 0 <= self.shift < self.image_size:
            raise KoopaxError(f"shift is {self.shift}; it must be at least 0 and less than the image's size.")
        if self.prediction_batch > self.batch_size:
            raise KoopaxError(
                f"prediction_batch is {self.prediction_batch}; windows are among an update's {self.batch_size} "
                "transitions, so it can't be larger than batch_size."
            )
        if self.replay_gib is not None and self.replay_gib <= 0:
            raise KoopaxError(f"replay_gib is {self.replay_gib:g}; it must be above 0.")

    @property
    def environment(self) -> str:
        """Where it acts: `task`."""
        return self.task

    @property
    def predicts(self) -> bool:
        """Whether representations are predicted."""
        return self.dynamics != PLAIN

    @property
    def stride(self) -> int:
        """Steps between two comparisons in a window."""
        return self.prediction_stride or -(-self.horizon // COMPARED_STEPS)

    @property
    def compared_steps(self) -> int:
        """Steps of a window at which predictions are compared."""
        return -(-self.horizon // self.stride)

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame in the replay."""
        return 3 * self.image_size**2

    @property
    def rows_per_env(self) -> int:
        """Rows that the replay has for each environment."""
        rows = self.replay_steps if self.replay_gib is None else int(self.replay_gib * GIB / self.frame_bytes)
        return rows // self.num_envs

    @property
    def all_core_options(self) -> dict[str, Any]:
        """The core's options: the defaults for its kind and those given."""
        given = {name: dict(value) if name.endswith("_options") else value for name, value in self.core_options}
        return {**CORE_OPTIONS.get(self.dynamics, {}), **given}

    def due_updates(self, decisions: int) -> int:
        """Updates that should have been made after that many decisions, in whole dispatches."""
        if decisions < self.random_decisions:
            return 0
        return int(decisions * self.updates_per_decision) // self.updates_per_dispatch * self.updates_per_dispatch


# As published, for machines that can afford it.
PUBLISHED: Mapping[str, Any] = {
    "image_size": 84,
    "oversampling": 1,
    "shift": 4,
    "encoder": "published",
    "hidden": (1024, 1024),
    "batch_size": 512,
    "prediction_batch": 512,
    "prediction_stride": 1,
    "return_steps": 1,
    "target_every": 2,
    "random_decisions": 1_000,
    "latent_size": 512,
    "steps": 500_000,
    "evaluate_episodes": 10,
}


def pixel_arm(dynamics: str, *, published: bool = False, **changes: Any) -> PixelSACConfig:
    """The config of an arm, with these changes; with `published` sizes or those for one CPU core.

    Smaller batches have fewer windows that are predicted: no more than there are transitions.
    """
    settings = {**(PUBLISHED if published else {}), **changes}
    if "prediction_batch" not in changes and "batch_size" in settings:
        own = settings.get("prediction_batch", PixelSACConfig.prediction_batch)
        settings["prediction_batch"] = min(own, settings["batch_size"])
    return PixelSACConfig(**{**settings, "dynamics": dynamics})
