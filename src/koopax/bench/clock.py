"""Timing that is fair on a busy machine: all cases take turns, round after round, and medians count."""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

Case = TypeVar("Case", bound=Hashable)
Watch = Callable[[int, int], None]

# A visit lasts about so long, so that short cases are repeated and the clock does not matter.
VISIT_SECONDS = 0.25
MOST_REPEATS = 200
# Cases slower than this leave after the first three rounds.
SLOW_SECONDS = 3.0
LEAST_ROUNDS = 3
MATMUL_SIZE = 2048


def interleave(
    cases: Mapping[Case, Callable[[int], None]],
    *,
    rounds: int,
    visit: float = VISIT_SECONDS,
    watch: Watch = lambda done, total: None,
) -> dict[Case, list[float]]:
    """Seconds per repeat of each case, one number for each round that it took part in.

    Args:
        cases: by name, a function that does its work so many times and returns when it is done. What it compiles it
            has compiled before.
        rounds: visits of each case; those that take more than three seconds at a time have three.
        visit: how long a visit lasts, in seconds; a case that takes longer is repeated once.
        watch: told how many visits are done, and of how many.
    """
    repeats, total = {}, len(cases) * (1 + rounds)
    for number, (name, run) in enumerate(cases.items(), start=1):
        seconds = _seconds(run, 1)
        if seconds <= SLOW_SECONDS:
            seconds = _seconds(run, 1)  # the first time touches new memory
        repeats[name] = 0 if seconds > SLOW_SECONDS else min(MOST_REPEATS, max(1, round(visit / seconds)))
        watch(number, total)
    found: dict[Case, list[float]] = {name: [] for name in cases}
    done = len(cases)
    for round_ in range(rounds):
        for name, run in cases.items():
            if repeats[name] or round_ < LEAST_ROUNDS:
                if repeats[name]:
                    run(1)  # not counted: the case before has taken the caches and given back its memory
                found[name].append(_seconds(run, max(1, repeats[name])))
            watch(done := done + 1, total)
    return found


def _seconds(run: Callable[[int], None], repeats: int) -> float:
    began = time.perf_counter()
    run(repeats)
    return (time.perf_counter() - began) / repeats


def matmul_case() -> Callable[[int], None]:
    """A large product of float32 matrices: what this machine can do at best."""
    size = MATMUL_SIZE
    left, right = (jax.random.normal(jax.random.key(seed), (size, size)) for seed in (0, 1))
    product = jax.jit(jnp.matmul).lower(left, right).compile()

    def run(repeats: int) -> None:
        for _ in range(repeats):
            product(left, right).block_until_ready()

    return run


def matmul_gflops(seconds: float) -> float:
    """Operations per second of `matmul_case`, in 10⁹."""
    return 2e-9 * MATMUL_SIZE**3 / seconds


def rate_with_spread(seconds: list[float]) -> tuple[float, list[float]]:
    """Repeats per second: the median over the rounds, and the slowest and the fastest round."""
    return 1 / statistics.median(seconds), [1 / max(seconds), 1 / min(seconds)]


def rounded(document: Any, digits: int = 4) -> Any:
    """The same document with its floats at so many significant digits, for people to read."""
    if isinstance(document, dict):
        return {name: rounded(value, digits) for name, value in document.items()}
    if isinstance(document, list):
        return [rounded(value, digits) for value in document]
    return float(f"{document:.{digits}g}") if isinstance(document, float) else document
