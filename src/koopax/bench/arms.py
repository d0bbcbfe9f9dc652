"""The arms of the speed comparison: which model, which loss, and its compiled training steps.

Every arm is trained for state prediction with the same loss: the squared error of every state of the window and, with
weight 0.001, the consistency of the latents. They differ in two things: `paper-listing` takes the consistency on every
step, as published, the others on a random subset, which is the default of `koopax train`; and batches are cut into
pieces where `koopax.training.microbatch` does so.

Settings and arms of the form `MODEL@N` can take the losses on every N-th step of a window only, from a random one on.
The listing never does. What is timed is the program that `koopax.fit` runs.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._types import PRNGKeyArray
from koopax.bench.flops import Flops, training_flops
from koopax.bench.paper_listing import paper_listing_model
from koopax.bench.settings import LISTING, SpeedSettings, parse_arm
from koopax.collection import load
from koopax.data.episodes import Episodes
from koopax.models.dynamics import DynamicsModel
from koopax.models.presets import OTHER_TRAINING, TRAINING, preset
from koopax.training.config import TrainConfig, stride_within
from koopax.training.loop import fresh_state
from koopax.training.programs import Programs
from koopax.training.state import TrainState, initial_state


def load_data(settings: SpeedSettings) -> Episodes:
    """The episodes that windows are drawn from."""
    if settings.source.startswith("koopax/"):
        return load(settings.source, steps=settings.data_steps)
    return load(settings.source)


def build_model(arm: str, data: Episodes, *, key: PRNGKeyArray) -> DynamicsModel:
    """The arm's model with fresh parameters."""
    name, _ = parse_arm(arm)
    return (
        paper_listing_model(data, key=key)
        if name == LISTING
        else DynamicsModel.create(data=data, key=key, **preset(name))
    )


def train_config(arm: str, horizon: int, settings: SpeedSettings) -> TrainConfig:
    """How the arm is trained: koopax's defaults, except for what the settings say."""
    name, _ = parse_arm(arm)
    published = {"consistency_steps": None, "microbatch_size": settings.batch_size}
    options: dict[str, Any] = published if name == LISTING else {}
    if settings.remat_steps is not None and name.startswith("koopman"):
        options["remat_steps"] = settings.remat_steps
    return TrainConfig(
        horizon=horizon,
        batch_size=settings.batch_size,
        learning_rate=1e-3,
        reward_weight=float(settings.reward),
        loss_stride=loss_stride(arm, horizon, settings),
        early_weight=0.0,
        weight_decay=0.0,
        beta2=OTHER_TRAINING["beta2"],
        beta2_rise=OTHER_TRAINING["beta2_rise"],
        **options,
    )


def loss_stride(arm: str, horizon: int, settings: SpeedSettings) -> int:
    """n, where the arm's losses are taken on every n-th step: its own, that of the settings, or its core's default.

    The last two leave four steps of a window at least, as `koopax train` does where it is given no stride.
    """
    name, stride = parse_arm(arm)
    if stride is not None or name == LISTING:
        return stride or 1
    own = TRAINING.get(preset(name)["core"], OTHER_TRAINING)["loss_stride"]
    return stride_within(settings.loss_stride or own, horizon)


def arm_flops(arm: str, model: DynamicsModel, horizon: int, settings: SpeedSettings) -> Flops:
    """The operations of one training step of the arm."""
    config = train_config(arm, horizon, settings)
    return training_flops(
        model,
        horizon=horizon,
        batch_size=settings.batch_size,
        consistency_steps=config.consistency_steps if config.consistency_weight else 0,
        reward=settings.reward,
        loss_stride=loss_stride(arm, horizon, settings),
    )


class CompiledStep:
    """Training steps of an arm, compiled ahead of time and without any numbers yet."""

    def __init__(self, arm: str, horizon: int, settings: SpeedSettings, data: Episodes):
        """Trace and compile."""
        self._config = config = train_config(arm, horizon, settings)
        self._programs = Programs(data, None, config)
        self._key = jax.random.key(0)

        def first_state(key: PRNGKeyArray) -> TrainState:
            return initial_state(build_model(arm, data, key=key), config)

        self._shapes = eqx.filter_eval_shape(first_state, jax.random.key(0))
        # A compiler needs no values, and zeros need no program to make them.
        self._programs.compile(self.blank_state(), self._key)
        self._memory = self._programs.memory()

    def blank_state(self) -> TrainState:
        """A state of zeros: enough to see how much memory a step takes."""

        def blank(leaf: Any) -> Any:
            return jnp.asarray(np.zeros(leaf.shape, leaf.dtype)) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf

        return jax.tree.map(blank, self._shapes)

    def state(self, model: DynamicsModel) -> TrainState:
        """The state before the first step, with buffers of its own."""
        return fresh_state(model, self._config)

    def run(self, state: TrainState, steps: int) -> TrainState:
        """The state after so many steps, when they are done; the given one is used up."""
        return self._programs.advance(state, [0.5] * steps, self._key)

    def planned_bytes(self) -> int:
        """What XLA plans to hold besides the arguments: intermediate results, and outputs without a donated place."""
        memory = self._memory
        return memory.temp_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
