"""How many updates per second a configuration reaches, and what the environments take of it."""

import time
from typing import Any

import jax
import numpy as np

from koopax.agents.sac.agent import make_state, remember, remember_and_learn
from koopax.agents.sac.config import SACConfig
from koopax.agents.sac.train import collect
from koopax.envs import LockStep


def measure_rate(config: SACConfig, *, seconds: float = 10.0, repeats: int = 3) -> dict[str, Any]:
    """Updates per second with the environments included, without compilation, evaluation and checkpoints.

    Every dispatch is timed in two parts, stepping and learning; `environment_share` is the first part's share.
    The rate is the median of `repeats` stretches of `seconds` / `repeats` each, `spread` their range.
    """
    envs = LockStep(config.env, config.num_envs, seed=config.seed)
    state = make_state(config, envs.observations.shape[1], len(envs.low))
    steps = 0
    while steps < config.random_steps:
        state = remember(state, collect(envs, None, config, steps), config)
        steps += config.steps_per_dispatch
    state, _ = remember_and_learn(state, collect(envs, state, config, steps), config)
    jax.block_until_ready(state)

    rates, parts = [], np.zeros(2)
    for _ in range(repeats):
        updates, started = 0, time.perf_counter()
        while (now := time.perf_counter()) - started < seconds / repeats:
            new = collect(envs, state, config, steps)
            between = time.perf_counter()
            state, _ = remember_and_learn(state, new, config)
            jax.block_until_ready(state.learner)
            parts += between - now, time.perf_counter() - between
            updates += config.updates_per_dispatch
            steps += config.steps_per_dispatch
        rates.append(updates / (time.perf_counter() - started))
    envs.close()
    return {
        "env": config.env,
        "critic_norm": config.critic_norm,
        "batch_size": config.batch_size,
        "hidden_sizes": list(config.hidden_sizes),
        "updates_per_step": config.updates_per_step,
        "updates_per_second": float(np.median(rates)),
        "spread": [min(rates), max(rates)],
        "environment_share": float(parts[0] / parts.sum()),
    }
