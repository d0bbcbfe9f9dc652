"""How many updates per second SAC reaches with the environments included, and what the environments take of it.

Timed are whole dispatches, as training makes them: stepping the environments, and learning from what is remembered.
Compilation, evaluation and checkpoints are left out. The arms take turns; give them the machine to themselves.
"""

import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from koopax._errors import KoopaxError
from koopax.agents.sac.agent import make_state, remember, remember_and_learn
from koopax.agents.sac.config import SACConfig
from koopax.agents.sac.train import collect
from koopax.bench.clock import Watch, interleave, rate_with_spread
from koopax.bench.document import document
from koopax.envs import LockStep

ENVIRONMENTS = ("Hopper-v5", "Walker2d-v5", "HalfCheetah-v5")
# SAC as published, but for LayerNorm: an update for every step.
PLAIN = {"critic_norm": "layer", "policy_delay": 1, "adam_b1": 0.9, "updates_per_step": 1.0}
VISIT_SECONDS = 1.0


def configurations(environments: Sequence[str]) -> list[SACConfig]:
    """The agent's own settings in each environment, and plain SAC in the last."""
    return [*(SACConfig(env=env) for env in environments), SACConfig(env=environments[-1], **PLAIN)]


def measure(
    configs: Sequence[SACConfig] | None = None,
    *,
    environments: tuple[str, ...] = ENVIRONMENTS,
    rounds: int = 9,
    watch: Watch = lambda done, total: None,
) -> dict[str, Any]:
    """The document that `koopax bench sac --json` prints.

    Args:
        configs: what is measured; None for `configurations(environments)`.
        environments: Gymnasium ids.
        rounds: interleaved rounds of about a second; the median counts.
        watch: told how many visits are done, and of how many.
    """
    if rounds < 1 or not environments:
        raise KoopaxError(f"{rounds} rounds of {environments}: give one or more of each.")
    cases = {number: _Dispatches(config) for number, config in enumerate(configs or configurations(environments))}
    try:
        taken = interleave(cases, rounds=rounds, visit=VISIT_SECONDS, watch=watch)
    finally:
        for case in cases.values():
            case.envs.close()
    rows = [_row(case, taken[number]) for number, case in cases.items()]
    return document("sac", {"environments": environments, "rounds": rounds}, {"results": rows})


def _row(case: "_Dispatches", seconds: list[float]) -> dict[str, Any]:
    config, (rate, spread) = case.config, rate_with_spread(seconds)
    return {
        "env": config.env,
        "critic_norm": config.critic_norm,
        "batch_size": config.batch_size,
        "hidden_sizes": list(config.hidden_sizes),
        "updates_per_step": config.updates_per_step,
        "updates_per_second": rate * config.updates_per_dispatch,
        "spread": [one * config.updates_per_dispatch for one in spread],
        "environment_share": float(case.parts[0] / case.parts.sum()),
    }


class _Dispatches:
    """A training that is past its random steps and has compiled, as a case to be timed."""

    def __init__(self, config: SACConfig):
        self.config = config
        self.envs = LockStep(config.env, config.num_envs, seed=config.seed, unit_actions=True)
        self.steps = 0
        self.parts = np.zeros(2)  # seconds of stepping and of learning
        self.state = make_state(config, self.envs.observations.shape[1], len(self.envs.low))
        while self.steps < config.random_steps:
            self.state = remember(self.state, collect(self.envs, None, config, self.steps), config)
            self.steps += config.steps_per_dispatch
        self(1)
        self.parts[:] = 0.0  # that was compilation

    def __call__(self, repeats: int) -> None:
        for _ in range(repeats):
            began = time.perf_counter()
            new = collect(self.envs, self.state, self.config, self.steps)
            between = time.perf_counter()
            self.state, _ = remember_and_learn(self.state, new, self.config)
            jax.block_until_ready(self.state.learner)
            self.parts += between - began, time.perf_counter() - between
            self.steps += self.config.steps_per_dispatch
