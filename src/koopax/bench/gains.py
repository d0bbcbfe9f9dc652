"""What each choice gains: a training step of the Koopman model as it is, and with one choice at a time undone."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax

from koopax._errors import KoopaxError, unknown_name
from koopax.bench.clock import Watch, interleave
from koopax.bench.document import document
from koopax.collection import load
from koopax.data.episodes import Episodes
from koopax.models.dynamics import DynamicsModel
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import CORES, LatentDynamics
from koopax.models.networks import Linear
from koopax.models.presets import PRESETS
from koopax.training.config import TrainConfig
from koopax.training.loop import BLOCK_SECONDS, fresh_state
from koopax.training.programs import Programs

SOURCE, DATA_STEPS = "koopax/halfcheetah/expert-v0", 100_000
DEFAULT = TrainConfig(horizon=100, batch_size=256, learning_rate=1e-3, loss_stride=10, beta2=0.999, beta2_rise=0.0)
EVERY_STEP = replace(DEFAULT, loss_stride=1)


class EveryLatent(KoopmanCore):
    """A Koopman core that visits every latent, also those that no loss looks at."""

    rollout_every = LatentDynamics.rollout_every


EVERY_LATENT = "koopman-every-latent"


@contextmanager
def _every_latent_has_a_name() -> Iterator[None]:
    """`EveryLatent` among the cores, for as long as models are built."""
    CORES[EVERY_LATENT] = f"{__name__}:{EveryLatent.__name__}"
    try:
        yield
    finally:
        del CORES[EVERY_LATENT]


@dataclass(frozen=True)
class Arm:
    """A training step with one choice undone, and the arm that has it."""

    what: str = ""
    """The choice."""
    why: str = ""
    """What it saves."""
    config: TrainConfig = DEFAULT
    """Settings of training."""
    options: dict[str, Any] = field(default_factory=dict)
    """What differs from the default model."""
    preset: str = "koopman"
    """The model."""
    against: str = "default"
    """The arm that undoes nothing."""
    from_the_left: bool = False
    """Whether linear layers multiply from the left, as `equinox.nn.Linear` does."""
    one_by_one: bool = False
    """Whether each step is a program of its own."""


ARMS = {
    "default": Arm(),
    "loss on every step": Arm(
        "losses on every tenth step of a window, from a random one on",
        "neighbouring steps say much the same, and decoding costs more than unrolling",
        EVERY_STEP,
    ),
    "every latent visited": Arm(
        "ten steps of the recurrence as one matrix product, λ̄¹⁰ and joint inputs",
        "latents that no loss looks at are never written to memory",
        options={"core": EVERY_LATENT},
    ),
    "columns": Arm(
        "linear layers as `x @ W.T` instead of `W @ x`",
        "under `vmap` the latter makes columns of a batch's rows, so every layer transposes its inputs and outputs",
        from_the_left=True,
    ),
    "a program for each step": Arm(
        "a second's worth of steps in one program, instead of a program for each",
        "intermediate results stay in the same memory; else the system maps and clears it anew, page by page",
        one_by_one=True,
    ),
    "whole batches": Arm(
        "16 windows at a time instead of 256, where losses are on every step",
        "their decoded steps stay in the cache; the gradient is the mean over all of them",
        replace(EVERY_STEP, microbatch_size=EVERY_STEP.batch_size),
        against="loss on every step",
    ),
    "consistency on every step": Arm(
        "consistency loss on 4 random steps instead of all",
        "each step of it encodes a true state, which costs as much as decoding one",
        replace(EVERY_STEP, consistency_steps=None),
        against="loss on every step",
    ),
    "associative scan": Arm(
        "a sequential scan over steps instead of an associative one",
        "two cores gain nothing from log₂ τ passes; where latents fit into the cache, little is lost either",
        EVERY_STEP,
        {"recurrence": "associative"},
        against="loss on every step",
    ),
    "FFT": Arm(
        "a sequential scan instead of the paper's FFT convolution",
        "no padding to twice the length, no complex arrays, no transposed copies",
        EVERY_STEP,
        {"recurrence": "fft"},
        against="loss on every step",
    ),
    "action embedding of 64": Arm(
        "16 complex numbers of action embedding, 64 hidden units, instead of 64 and 128",
        "the action encoder runs at every step, and its parameters serve better in the decoder",
        options={"action_embedding": 64, "action_hidden": (128,)},
    ),
    "paper's widths": Arm(
        "parameters in the decoder, reward read from it, instead of the published widths",
        "what runs at every step is thin; what is wide runs where a loss looks",
        preset="koopman-paper",
    ),
    "chunks of 20": Arm(
        "everything kept for the gradient instead of 20 steps at a time (`--remat-steps 20`)",
        "nothing is computed twice; rematerialisation is for windows that do not fit into memory",
        replace(EVERY_STEP, remat_steps=20),
        against="loss on every step",
    ),
}


def from_the_left(model: DynamicsModel) -> DynamicsModel:
    """The model with equinox's own linear layers."""

    def replaced(node: Any) -> Any:
        if not isinstance(node, Linear):
            return node
        fan_out, fan_in = node.weight.shape
        blank = eqx.nn.Linear(fan_in, fan_out, use_bias=node.bias is not None, key=jax.random.key(0))
        return eqx.tree_at(lambda layer: (layer.weight, layer.bias), blank, (node.weight, node.bias))

    return jax.tree.map(replaced, model, is_leaf=lambda node: isinstance(node, Linear))


def compiled(arm: Arm, data: Episodes) -> Callable[[int], None]:
    """A function that takes so many training steps and waits for the last."""
    options = dict(PRESETS[arm.preset]) | arm.options
    key = jax.random.key(0)
    model = DynamicsModel.create(options.pop("core"), data, key=key, **options)
    if arm.from_the_left:
        model = from_the_left(model)
    programs = Programs(data, None, arm.config)
    state = fresh_state(model, arm.config)
    programs.compile(state, key)

    def run(repeats: int) -> None:
        nonlocal state
        for block in [1] * repeats if arm.one_by_one else [repeats]:
            state = programs.advance(state, [0.5] * block, key)

    return run


def measure(
    *,
    arms: tuple[str, ...] = tuple(ARMS),
    rounds: int = 7,
    source: str = SOURCE,
    data_steps: int = DATA_STEPS,
    watch: Watch = lambda done, total: None,
) -> dict[str, Any]:
    """The document that `koopax bench gains --json` prints.

    Args:
        arms: names in `ARMS`; those that an arm is held against are measured too.
        rounds: interleaved rounds; the median counts.
        source: the dataset.
        data_steps: its environment steps, where it is one of koopax's own.
        watch: told how many visits are done, and of how many.
    """
    for name in arms:
        if name not in ARMS:
            raise unknown_name("arm", name, list(ARMS))
    if rounds < 1 or not arms:
        raise KoopaxError(f"{rounds} rounds of {arms}: give one or more of each.")
    wanted = {*arms, *(ARMS[name].against for name in arms)}
    chosen = {name: arm for name, arm in ARMS.items() if name in wanted | {"default"}}
    data = load(source, steps=data_steps) if source.startswith("koopax/") else load(source)
    with _every_latent_has_a_name():
        cases = {name: compiled(arm, data) for name, arm in chosen.items()}
        seconds = interleave(cases, rounds=rounds, visit=BLOCK_SECONDS, watch=watch)
    median = {name: 1e3 * statistics.median(times) for name, times in seconds.items()}
    found = {
        name: {
            "milliseconds": median[name],
            "spread": [1e3 * min(seconds[name]), 1e3 * max(seconds[name])],
            "what": arm.what,
            "why": arm.why,
            "against": arm.against,
            "slower_by": median[name] / median[arm.against],
        }
        for name, arm in chosen.items()
    }
    settings = {"arms": arms, "rounds": rounds, "source": source, "data_steps": data_steps}
    sizes = {"batch_size": DEFAULT.batch_size, "horizon": DEFAULT.horizon}
    return document("gains", settings, {**sizes, "arms": found})
