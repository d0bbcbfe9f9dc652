"""How fast each way of unrolling the recurrence is on this platform: the measurement behind `recurrence="auto"`.

Timed is what training does: all the states and the gradient with respect to transition, inputs and start, for a
time-major batch. Methods are interleaved in every round, so that a busy machine is unfair to none of them.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.table import Table

from koopax._atomic import new_file
from koopax._provenance import provenance
from koopax.models import recurrence
from koopax.models.recurrence import METHODS, Method, linear_recurrence

HORIZONS = (5, 10, 20, 50, 100, 200, 500, 1000)
BATCH, MODES = 64, 256
KEPT = Path(recurrence.__file__).with_name("recurrence_timings.json")


def measure(*, rounds: int, watch: Callable[[int, int], None] = lambda done, total: None) -> dict[str, Any]:
    """Median milliseconds by horizon and method, for the default platform."""
    timings: dict[str, dict[str, float]] = {}
    done, total = 0, len(HORIZONS) * (rounds + 1) * len(METHODS)
    for horizon in HORIZONS:
        cases = {method: _case(method, horizon) for method in METHODS}
        samples: dict[str, list[float]] = {method: [] for method in METHODS}
        for round_ in range(rounds + 1):
            for method, (function, arguments) in cases.items():
                began = time.perf_counter()
                jax.block_until_ready(function(*arguments))
                if round_ > 0:  # the first round compiles
                    samples[method].append(1000 * (time.perf_counter() - began))
                watch(done := done + 1, total)
        timings[str(horizon)] = {method: round(statistics.median(times), 3) for method, times in samples.items()}
    return {
        "what": f"milliseconds for states and gradients, batch {BATCH}, {MODES} complex modes, median of {rounds}",
        "platforms": {jax.default_backend(): timings},
        **provenance(),
    }


def _case(method: Method, horizon: int) -> tuple[Callable, tuple]:
    keys = jax.random.split(jax.random.key(0), 4)
    phase = jnp.linspace(0, jnp.pi, MODES)
    transition = 0.99 * jnp.cos(phase), 0.99 * jnp.sin(phase)
    inputs = tuple(jax.random.normal(key, (horizon, BATCH, MODES)) for key in keys[:2])
    start = tuple(jax.random.normal(key, (BATCH, MODES)) for key in keys[2:])

    def loss(transition, inputs, start):
        run = jax.vmap(lambda c, x: linear_recurrence(transition, c, x, method=method), in_axes=(1, 0), out_axes=1)
        real, imag = run(inputs, start)
        return jnp.sum(real**2 + imag**2)

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2))), (transition, inputs, start)


def keep(found: dict[str, Any]) -> None:
    """Write the measurement into the package, beside those of other platforms."""
    known = json.loads(KEPT.read_text())["platforms"] if KEPT.is_file() else {}
    with new_file(KEPT, overwrite=True) as temporary:
        temporary.write_text(json.dumps({**found, "platforms": {**known, **found["platforms"]}}, indent=2) + "\n")


def table(found: dict[str, Any]) -> Table:
    """The timings, the fastest method of each horizon in bold."""
    ((platform, timings),) = found["platforms"].items()
    shown = Table("horizon", *(f"{method} (ms)" for method in METHODS), title=f"{found['what']}, {platform}")
    for horizon, by_method in timings.items():
        best = min(by_method.values())
        shown.add_row(horizon, *(f"[bold]{ms}[/]" if ms == best else str(ms) for ms in by_method.values()))
    return shown
