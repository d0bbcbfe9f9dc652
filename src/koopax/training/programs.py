"""The compiled programs of a training: many steps in one, with the data on the device or fed from the host."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._compilations import make_room
from koopax.data.episodes import Episodes
from koopax.data.feeding import Feed, can_feed
from koopax.data.windows import WindowSampler
from koopax.evaluation.calibration import HORIZON as CALIBRATED
from koopax.evaluation.calibration import calibrated_if_possible
from koopax.models.dynamics import DynamicsModel
from koopax.training import hosts
from koopax.training.choice import choose_returns
from koopax.training.config import TrainConfig
from koopax.training.devices import AXIS, OF_BLOCKS, ONE, REPLICATED, Devices
from koopax.training.regression import is_regression
from koopax.training.state import FedWindows, TrainState, step_keys, train_steps
from koopax.training.validation import Validation

BLOCK_STEPS = 100
"""Steps that are taken in one go, at most."""
Advance = Callable[[tuple, TrainState], TrainState]


class Programs:
    """What the seeds of a training share: the data, and the compiled steps and validation."""

    def __init__(
        self,
        train: Episodes,
        validation: Episodes | None,
        config: TrainConfig,
        devices: Devices = ONE,
        *,
        past: int = 0,
    ) -> None:
        """Nothing is compiled yet; windows come with so many steps before them."""
        assert config.horizon is not None  # resolved
        self.devices = devices
        sampler = WindowSampler(train, config.horizon, past=past)
        on_host = train.is_memory_mapped or (sampler.on_host is not None and devices.count > 1)
        part = devices.part_of_process(config.batch_size)
        self._feed = Feed(sampler, part.stop - part.start) if on_host and can_feed() else None
        self.sampler = sampler if self._feed is not None else devices.replicate(sampler)
        block = BLOCK_STEPS if train.image_shape is None else 1  # networks of frames are slow inside of a loop
        self.most = min(block, block if self._feed is None else self._feed.most)
        """Steps that are taken in one go, at most."""
        self._validation_episodes = validation
        self.validation = None if validation is None else Validation(validation, config, past=past)
        self._config = config
        self._steps: Any = None
        self._fed_key: bytes | None = None
        self._rows = eqx.filter_jit(_rows_of_steps)

    def compile(self, state: TrainState, key: jax.Array) -> float:
        """Compile the steps for such a state, and the validation; the seconds it took, 0 where that was done before."""
        if self._steps is not None:
            return 0.0
        began = time.perf_counter()
        make_room()
        of_data = REPLICATED if self._feed is None else OF_BLOCKS
        alone = self.devices.mesh is None
        advance = advancing(self._config) if alone else advancing_together(self._config, self.devices, of_data)
        self._read_from(int(self.devices.local(state.step)), key)  # reads ahead while the rest is compiled
        fixed = self._source(0), *self._padded([]), self._placed_key(key)
        self._steps = eqx.filter_jit(advance, donate="all-except-first").lower(fixed, state).compile()
        if self.validation is not None:
            self.validation.compile(self.devices.local(state.model))
        return time.perf_counter() - began

    def settle(self, model: DynamicsModel) -> DynamicsModel:
        """A trained model, calibrated, with the returns to its encoder that serve it best where they are left open."""
        validation = self._validation_episodes
        if self._config.reencode_every == "auto" and validation is not None and not is_regression(model):
            model = choose_returns(model, validation)[0]
        horizon = max(CALIBRATED, self._config.horizon or 0, self._config.validation_horizon or 0)
        return calibrated_if_possible(model, validation, horizon=horizon)

    def memory(self) -> Any:
        """What XLA plans to hold while the steps run."""
        assert self._steps is not None, "compile first"
        return self._steps.compiled.memory_analysis()

    def advance(self, state: TrainState, progress: Sequence[float], key: jax.Array) -> TrainState:
        """One gradient step for each value of `progress`, when it is done; the given state is used up."""
        assert self._steps is not None, "compile first"
        for begin in range(0, len(progress), self.most):
            block = progress[begin : begin + self.most]
            self._read_from(int(self.devices.local(state.step)), key)
            fixed = self._source(len(block)), *self._padded(block), self._placed_key(key)
            with hosts.collective():
                state = jax.block_until_ready(self._steps(fixed, state))
        return state

    def close(self) -> None:
        """End the threads that read ahead, if any."""
        if self._feed is not None:
            self._feed.close()

    def _read_from(self, step: int, key: jax.Array) -> None:
        """Have the host read the windows of that step and the following ones, unless it does already."""
        if self._feed is None:
            return
        of_key = np.asarray(jax.random.key_data(key)).tobytes()
        if self._feed.is_at(step) and self._fed_key == of_key:
            return
        part, rows, size = self.devices.part_of_process(self._config.batch_size), self._rows, self._config.batch_size
        self._feed.begin(lambda steps: np.asarray(rows(self.sampler, key, steps, size))[:, part], step)
        self._fed_key = of_key

    def _source(self, count: int) -> WindowSampler | FedWindows:
        """Where the next steps have their windows from."""
        if self._feed is None:
            return self.sampler
        blocks = self._feed.take(count, self.most)
        if self.devices.mesh is not None:
            return FedWindows(self.devices.scatter(blocks))
        return FedWindows(jax.device_put(blocks))

    def _placed_key(self, key: jax.Array) -> Any:
        return key if self.devices.mesh is None else self.devices.replicate(np.asarray(jax.random.key_data(key)))

    def _padded(self, progress: Sequence[float]) -> tuple[jax.Array, jax.Array]:
        """The progress of some steps in an array that has the same size for any number of them, and that number."""
        padded = [*progress, *[0.0] * (self.most - len(progress))]
        arrays = jnp.asarray(padded, jnp.float32), jnp.asarray(len(progress), jnp.int32)
        return self.devices.replicate(arrays)


def advancing(config: TrainConfig) -> Advance:
    """The steps on one device.

    No method: a compiled function and what it is bound to would hold each other, in a ring through JAX that Python's
    collector cannot see, and every training would leave its program and its data behind.
    """

    def advance(fixed: tuple, state: TrainState) -> TrainState:
        source, progress, count, key = fixed
        return train_steps(state, source, progress, count, config, key)

    return advance


def advancing_together(config: TrainConfig, devices: Devices, of_data: Any) -> Advance:
    """The steps on several devices, with the data spread as `of_data` says."""

    def advance(fixed: tuple, state: TrainState) -> TrainState:
        source, *others = fixed
        source, of_source = eqx.partition(source, eqx.is_array)
        state, of_state = eqx.partition(state, eqx.is_array)

        def on_each(source, progress, count, key, state):
            whole = eqx.combine(state, of_state), eqx.combine(source, of_source)
            key = jax.random.wrap_key_data(key)
            return eqx.filter(train_steps(*whole, progress, count, config, key, AXIS), eqx.is_array)

        run = devices.spread(on_each, (of_data, *[REPLICATED] * 4))
        return eqx.combine(run(source, *others, state), of_state)

    return advance


def _rows_of_steps(sampler: WindowSampler, key: jax.Array, steps: jax.Array | np.ndarray, batch_size: int) -> jax.Array:
    """Where the windows of some steps begin [steps, batch]: the rows that `train_steps` draws."""
    return jax.vmap(lambda step: sampler.rows(step_keys(key, step)[0], batch_size))(steps)
