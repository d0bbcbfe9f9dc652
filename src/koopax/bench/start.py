"""How long commands take that do next to nothing: imports, data, compilation, and one step.

Each is run twice as a user would, in a process of its own: with no compiled programs kept, and with those that the
first run has kept.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from koopax._errors import KoopaxError
from koopax.bench.clock import Watch
from koopax.bench.document import document
from koopax.collection import collect

ENVIRONMENT = "Pendulum-v1"
STEPS = 4000
COMMANDS = {
    "train": ("train", "data.npz", "--horizon", "100", "--steps", "1", "--out", "run-{run}"),
    "evaluate": ("evaluate", "run-0", "--horizon", "100", "--windows", "100", "--json"),
    "plan": ("plan", "run-0", "--env", ENVIRONMENT, "--episodes", "1", "--samples", "16", "--json"),
}
"""What is timed; `evaluate` and `plan` use what the first `train` has made. Few samples: an episode is soon over."""


def measure(watch: Watch = lambda done, total: None) -> dict[str, Any]:
    """Seconds of every command, by the clock and of the processor, before and after its programs are kept."""
    found = []
    with tempfile.TemporaryDirectory(prefix="koopax-start-") as name:
        folder = Path(name)
        collect(ENVIRONMENT, "random", STEPS, seed=0, workers=0, out=folder / "data.npz", progress=False)
        for number, (command, arguments) in enumerate(COMMANDS.items()):
            runs = [_seconds([part.format(run=run) for part in arguments], folder) for run in range(2)]
            found.append({"command": command, "first": runs[0], "second": runs[1]})
            watch(number + 1, len(COMMANDS))
    what = "seconds of a whole command that takes one training step, predicts 100 windows or plans one episode"
    return document("start", {"environment": ENVIRONMENT, "data_steps": STEPS}, {"what": what, "results": found})


def _seconds(arguments: list[str], folder: Path) -> dict[str, float]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    own |= {"KOOPAX_DATA": str(folder / "cache"), "KOOPAX_COMPILATION_CACHE": "1"}
    command = [sys.executable, "-c", "from koopax.cli import main; main()", *arguments]
    began, used = time.perf_counter(), _processor_seconds()
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True)
    if done.returncode:
        raise KoopaxError(f"`koopax {arguments[0]}` failed, so there is no measurement: {done.stderr.strip()[-300:]}")
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "processor_seconds": round(_processor_seconds() - used, 2),
    }


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
