"""Steps per second of a learned simulator, of one copy and of thousands, beside the environment that it stands for.

The model is untrained, which costs the same as a trained one. Actions are drawn beforehand. All cases take turns.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from koopax._errors import KoopaxError
from koopax.bench.clock import Watch, interleave, rate_with_spread
from koopax.bench.document import document
from koopax.collection.collecting import collect
from koopax.data.episodes import Episodes
from koopax.envs import make
from koopax.models.dynamics import DynamicsModel
from koopax.simulation.env import SimulatedEnv, SimulatedVectorEnv

DATA_STEPS = 500
STEPS = 50
"""Steps of one repeat."""


def measure(
    *,
    environment: str = "HalfCheetah-v5",
    cores: Sequence[str] = ("koopman", "mlp"),
    copies: Sequence[int] = (1, 64, 1024, 4096),
    latent_size: int = 128,
    models: int = 1,
    rounds: int = 7,
    watch: Watch = lambda done, total: None,
) -> dict[str, Any]:
    """The document that `koopax bench simulator --json` prints.

    Args:
        environment: what is simulated, which is timed as well.
        cores: which cores to time.
        copies: how many copies are stepped at once.
        latent_size: width of the latent, for every core.
        models: how many models a simulator holds, whose disagreement it tells.
        rounds: interleaved rounds; the median counts.
        watch: told how many visits are done, and of how many.
    """
    if rounds < 1 or models < 1 or not copies or min(copies) < 1:
        raise KoopaxError(f"{rounds} rounds of {models} models in {tuple(copies)} copies: give one or more of each.")
    data = collect(environment, "random", DATA_STEPS, seed=0, workers=0, progress=False)
    cases: dict[tuple[str, int], Callable[[int], None]] = {("environment", 1): _environment(environment)}
    for core in cores:
        made = [
            DynamicsModel.create(core, data, key=jax.random.key(seed), latent_size=latent_size)
            for seed in range(models)
        ]
        cases |= {(core, count): _simulated(made, data, count) for count in copies}
    taken = interleave(cases, rounds=rounds, watch=watch)
    alone = STEPS * rate_with_spread(taken["environment", 1])[0]
    rows = []
    for (name, count), seconds in taken.items():
        rate, spread = rate_with_spread(seconds)
        per_second = STEPS * count * rate
        row = {"simulator": environment if name == "environment" else name, "copies": count}
        row |= {"steps_per_second": per_second, "spread": [STEPS * count * one for one in spread]}
        rows.append({**row, "over_environment": per_second / alone})
    settings = {"environment": environment, "cores": tuple(cores), "copies": tuple(copies)}
    settings |= {"latent_size": latent_size, "models": models, "rounds": rounds}
    return document("simulator", settings, {"results": rows})


def _environment(name: str) -> Callable[[int], None]:
    env = make(name, seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(STEPS)]

    def run(repeats: int) -> None:
        for _ in range(repeats):
            env.reset()
            for action in actions:
                env.step(action)

    return run


def _simulated(models: list[DynamicsModel], data: Episodes, copies: int) -> Callable[[int], None]:
    if copies == 1:
        env: Any = SimulatedEnv(models, starts=data, start_at="any")
    else:
        env = SimulatedVectorEnv(models, copies, starts=data, start_at="any")
    space = env.action_space
    space.seed(0)
    actions = np.stack([space.sample() for _ in range(STEPS)])
    env.reset(seed=0)
    env.step(actions[0])

    def run(repeats: int) -> None:
        for _ in range(repeats):
            env.reset(seed=0)
            for action in actions:
                env.step(action)

    return run
