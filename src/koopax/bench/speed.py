"""Training speed against the horizon: table 3 of the paper, on this machine.

First every arm takes a step in a process of its own, which measures its memory and shows whether it fits. Then all arms
at all horizons, and a large matrix product, take turns in one process. Compilation is not timed, and the clock stops
when the last number of a visit's last step is there.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeAlias

import jax
from jax.experimental.compilation_cache import compilation_cache

from koopax.bench.arms import CompiledStep, arm_flops, build_model, load_data, loss_stride
from koopax.bench.clock import (
    MATMUL_SIZE,
    Watch,
    interleave,
    matmul_case,
    matmul_gflops,
    rate_with_spread,
)
from koopax.bench.document import document
from koopax.bench.flops import Flops
from koopax.bench.memory import lacks_memory, measure_memory
from koopax.bench.scaling import exponents, ratios
from koopax.bench.settings import SpeedSettings
from koopax.data.episodes import Episodes
from koopax.models.dynamics import DynamicsModel
from koopax.training.loop import BLOCK_SECONDS

# What `measure_memory` found, by arm and horizon.
Memory: TypeAlias = dict[str, dict[int, dict[str, Any]]]
MATMUL = ("matmul", 0)
SPREAD = "slowest and fastest round"


class _Training:
    """An arm at a horizon, as a case to be timed."""

    def __init__(self, step: CompiledStep, model: DynamicsModel):
        self.step = step
        self.state = step.state(model)

    def __call__(self, repeats: int) -> None:
        self.state = self.step.run(self.state, repeats)


def measure(settings: SpeedSettings, *, watch: Watch = lambda done, total: None) -> dict[str, Any]:
    """The document that `koopax bench speed --json` prints; `watch` is told how far it is."""
    data = load_data(settings)
    arms = settings.models
    with _kept_compilations() as compilations:
        memory: Memory = {}
        for number, arm in enumerate(arms if settings.memory else (), start=1):
            memory[arm] = measure_memory(arm, settings, compilations=compilations)
            watch(number, len(arms) * (2 + len(settings.horizons)))
        models = {arm: build_model(arm, data, key=jax.random.key(0)) for arm in arms}
        trainings, failures = _prepare(settings, data, models, memory)
        seconds = interleave(
            {MATMUL: matmul_case(), **trainings}, rounds=settings.rounds, visit=BLOCK_SECONDS, watch=watch
        )
    peak = matmul_gflops(min(seconds[MATMUL]))  # a peak is the best that was seen, also where the others were slower
    results = [
        {
            "model": arm,
            "horizon": horizon,
            "batch_size": settings.batch_size,
            "loss_stride": loss_stride(arm, horizon, settings),
            "failure": failures.get((arm, horizon)),
            **_timing(seconds.get((arm, horizon)), arm_flops(arm, models[arm], horizon, settings), peak),
            **_memory_fields(memory.get(arm, {}).get(horizon, {})),
            "parameters": models[arm].num_parameters(),
        }
        for horizon in settings.horizons
        for arm in arms
    ]
    return document(
        "speed",
        asdict(settings),
        {
            "matmul_gflops": peak,
            "matmul": {
                "size": MATMUL_SIZE,
                "spread": [matmul_gflops(max(seconds[MATMUL])), matmul_gflops(min(seconds[MATMUL]))],
            },
            "results": results,
            "exponents": exponents(results),
            "ratios": ratios(results),
            "spread_is": SPREAD,
        },
    )


def _prepare(
    settings: SpeedSettings, data: Episodes, models: dict[str, DynamicsModel], memory: Memory
) -> tuple[dict[tuple[str, int], _Training], dict[tuple[str, int], str]]:
    """What is to be timed, and why the rest is not."""
    trainings, failures = {}, {}
    for arm, model in models.items():
        for horizon in settings.horizons:
            failure = memory.get(arm, {}).get(horizon, {}).get("failure")
            if failure is None:
                step = CompiledStep(arm, horizon, settings, data)
                failure = lacks_memory(step.planned_bytes())
                if failure is None:
                    trainings[arm, horizon] = _Training(step, model)
                    continue
            failures[arm, horizon] = failure
    return trainings, failures


def _timing(seconds: list[float] | None, flops: Flops, peak: float) -> dict[str, Any]:
    counted = {"products": flops.products, "recurrence": flops.recurrence, "total": flops.total}
    if seconds is None:
        return {"steps_per_second": None, "spread": None, "rounds": 0, "flops": counted, "fraction_of_peak": None}
    rate, spread = rate_with_spread(seconds)
    return {
        "steps_per_second": rate,
        "spread": spread,
        "rounds": len(seconds),
        "flops": counted,
        "fraction_of_peak": flops.total * rate / (1e9 * peak),
    }


def _memory_fields(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "peak_memory_bytes": found.get("growth"),
        "process_peak_bytes": found.get("process_peak"),
        "planned_memory_bytes": found.get("planned"),
    }


@contextmanager
def _kept_compilations() -> Iterator[str]:
    """A folder for compiled programs, so that what the memory's processes compile is not compiled again here."""
    known = jax.config.values["jax_compilation_cache_dir"]
    if known is not None:
        yield known
        return
    with tempfile.TemporaryDirectory() as folder:
        _keep_compilations_in(folder)
        try:
            yield folder
        finally:
            _keep_compilations_in(None)


def _keep_compilations_in(folder: str | None) -> None:
    jax.config.update("jax_compilation_cache_dir", folder)
    compilation_cache.reset_cache()  # otherwise only the first compilation of a process looks at the setting
