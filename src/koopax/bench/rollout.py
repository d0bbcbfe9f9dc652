"""How fast the cores predict for a planner: many action sequences from one state, all at the same latent size.

With decoding, states and rewards of every step are computed as well. The cores have their presets' settings except for
the latent's width, so they differ in their number of parameters.
"""

import statistics
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from koopax._errors import KoopaxError
from koopax.bench.clock import Watch, interleave
from koopax.bench.document import document
from koopax.bench.settings import BASELINES
from koopax.data.episodes import Episodes
from koopax.models.dynamics import DynamicsModel
from koopax.models.networks import over_rows
from koopax.planning.learned import LearnedModel

CORES = ("koopman", *BASELINES)
HORIZONS = (20, 100)
SAMPLES = 512
LATENT_SIZE = 512
STATE_SIZE, ACTION_SIZE = 17, 6
REFERENCE = "mlp"


def measure(
    *,
    cores: tuple[str, ...] = CORES,
    horizons: tuple[int, ...] = HORIZONS,
    samples: int = SAMPLES,
    latent_size: int = LATENT_SIZE,
    rounds: int = 9,
    watch: Watch = lambda done, total: None,
) -> dict[str, Any]:
    """The document that `koopax bench rollout --json` prints."""
    if not cores or not horizons or min(samples, rounds, *horizons) < 1:
        raise KoopaxError(f"{samples} sequences of {horizons} steps for {cores}: give one or more of each.")
    data = _data()
    models = {core: DynamicsModel.create(core, data, latent_size=latent_size, key=jax.random.key(0)) for core in cores}
    cases = {
        (core, horizon, decode): _case(model, samples, horizon, decode)
        for horizon in horizons
        for decode in (False, True)
        for core, model in models.items()
    }
    taken = interleave(cases, rounds=rounds, watch=watch)
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    results = []
    for (core, horizon, decode), median in medians.items():
        reference = medians.get((REFERENCE, horizon, decode))
        seconds = taken[core, horizon, decode]
        results.append(
            {
                "core": core,
                "horizon": horizon,
                "samples": samples,
                "decode": decode,
                "ms": 1e3 * median,
                "spread": [1e3 * min(seconds), 1e3 * max(seconds)],
                "predicted_steps_per_second": samples * horizon / median,
                "time_over_mlp": None if reference is None else median / reference,
                "parameters": models[core].num_parameters(),
            }
        )
    settings = {"cores": cores, "horizons": horizons, "samples": samples, "latent_size": latent_size, "rounds": rounds}
    return document("rollout", settings, {"latent_size": latent_size, "results": results})


def _case(model: DynamicsModel, samples: int, horizon: int, decode: bool) -> Callable[[int], None]:
    start_key, action_key = jax.random.split(jax.random.key(1))
    state = jax.random.normal(start_key, (STATE_SIZE,))
    actions = jax.random.uniform(action_key, (horizon, samples, ACTION_SIZE), minval=-1, maxval=1)

    def predict(model: DynamicsModel, state: jax.Array, actions: jax.Array):
        seen = LearnedModel(model)  # as planners see it
        latents = seen.rollout(seen.encode(state, horizon=horizon), actions)
        assert isinstance(latents, jax.Array)  # a model with a history has more
        return (over_rows(model.decoder, latents[1:]), seen.reward(latents, actions)) if decode else latents

    compiled = eqx.filter_jit(predict).lower(model, state, actions).compile()

    def run(repeats: int) -> None:
        for _ in range(repeats):
            jax.block_until_ready(compiled(model, state, actions))

    return run


def _data() -> Episodes:
    """Sizes and units of HalfCheetah's kind; speed does not depend on the numbers."""
    rng = np.random.default_rng(0)
    observations, actions = rng.normal(size=(65, STATE_SIZE)), rng.uniform(-1, 1, size=(64, ACTION_SIZE))
    return Episodes.from_arrays([observations], [actions], [rng.normal(size=64)])
