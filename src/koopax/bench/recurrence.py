"""How fast each way of unrolling the recurrence is on this platform: the measurement behind `recurrence="auto"`.

Timed is what training does: all the states and the gradient with respect to transition, inputs and start, for a
time-major batch. Methods are interleaved in every round, so that a busy machine is unfair to none of them.
"""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from koopax._atomic import new_file
from koopax._errors import KoopaxError
from koopax.bench.clock import Watch, interleave
from koopax.bench.document import document
from koopax.models import recurrence
from koopax.models.recurrence import METHODS, Method, linear_recurrence

HORIZONS = (5, 10, 20, 50, 100, 200, 500, 1000)
BATCH, MODES = 64, 256
VISIT_SECONDS = 0.05
KEPT = Path(recurrence.__file__).with_name("recurrence_timings.json")


def measure(*, rounds: int, watch: Watch = lambda done, total: None) -> dict[str, Any]:
    """Median milliseconds by horizon and method, for the default platform."""
    if rounds < 1:
        raise KoopaxError(f"rounds is {rounds}: use 1 or more.")
    timings: dict[str, dict[str, float]] = {}
    for number, horizon in enumerate(HORIZONS):  # methods take turns, horizons do not: long ones need much memory
        cases = {method: _case(method, horizon) for method in METHODS}
        taken = interleave(cases, rounds=rounds, visit=VISIT_SECONDS)
        timings[str(horizon)] = {name: round(1e3 * statistics.median(times), 3) for name, times in taken.items()}
        watch(number + 1, len(HORIZONS))
    what = f"milliseconds for states and gradients, batch {BATCH}, {MODES} complex modes, median of {rounds}"
    found = {"what": what, "platforms": {jax.default_backend(): timings}}
    return document("recurrence", {"rounds": rounds, "batch": BATCH, "modes": MODES}, found)


def _case(method: Method, horizon: int) -> Callable[[int], None]:
    keys = jax.random.split(jax.random.key(0), 4)
    phase = jnp.linspace(0, jnp.pi, MODES)
    transition = 0.99 * jnp.cos(phase), 0.99 * jnp.sin(phase)
    inputs = tuple(jax.random.normal(key, (horizon, BATCH, MODES)) for key in keys[:2])
    start = tuple(jax.random.normal(key, (BATCH, MODES)) for key in keys[2:])

    def loss(transition, inputs, start):
        run = jax.vmap(lambda c, x: linear_recurrence(transition, c, x, method=method), in_axes=(1, 0), out_axes=1)
        real, imag = run(inputs, start)
        return jnp.sum(real**2 + imag**2)

    compiled = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(transition, inputs, start).compile()

    def run(repeats: int) -> None:
        for _ in range(repeats):
            jax.block_until_ready(compiled(transition, inputs, start))

    return run


def keep(found: dict[str, Any]) -> None:
    """Write the measurement into the package, beside those of other platforms."""
    known = json.loads(KEPT.read_text())["platforms"] if KEPT.is_file() else {}
    with new_file(KEPT, overwrite=True) as temporary:
        temporary.write_text(json.dumps({**found, "platforms": {**known, **found["platforms"]}}, indent=2) + "\n")
