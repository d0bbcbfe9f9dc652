"""What a step of an exported model costs: microseconds, and bytes, of C and of ONNX beside JAX.

C is built by gcc; ONNX runs in onnxruntime on one thread, and JAX is a compiled call of a single step. The last two are
called from Python, which is a part of what they take.
"""

import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError
from koopax.bench.clock import Watch, interleave
from koopax.bench.document import document
from koopax.data.episodes import Episodes
from koopax.exporting.export import export_model
from koopax.exporting.functions import model_functions
from koopax.models.dynamics import DynamicsModel

STATES, ACTIONS = 17, 6
HORIZON = 50
FLAGS = ("-Wall", "-Werror", "-std=c99", "-O3", "-march=native")


def measure(
    *,
    cores: Sequence[str] = ("koopman", "mlp", "gru", "dmdc"),
    latent_size: int = 128,
    rounds: int = 7,
    watch: Watch = lambda done, total: None,
) -> dict[str, Any]:
    """The document that `koopax bench export --json` prints; models of 17 states and 6 actions, untrained."""
    if rounds < 1 or not cores:
        raise KoopaxError(f"{rounds} rounds of {tuple(cores)}: give one or more of each.")
    random = np.random.default_rng(0)
    data = Episodes.from_arrays(
        [random.normal(size=(101, STATES))], [random.uniform(-1, 1, (100, ACTIONS))], [random.normal(size=100)]
    )
    with tempfile.TemporaryDirectory() as folder:
        cases, facts = {}, {}
        for core in cores:
            options = {} if core in ("dmdc", "edmd") else {"latent_size": latent_size}
            model = DynamicsModel.create(core, data, key=jax.random.key(0), **options)
            place = Path(folder) / core
            compiled, known = _c(model, place / "c")
            cases |= {(core, "c"): compiled, (core, "onnx"): _onnx(model, place / "onnx"), (core, "jax"): _jax(model)}
            facts[core] = {**known, "parameters": model.num_parameters()}
        taken = interleave(cases, rounds=rounds, watch=watch)
    rows = [
        {
            "model": core,
            "form": form,
            "microseconds_per_step": 1e6 * float(np.median(seconds)) / HORIZON,
            "spread": [1e6 * min(seconds) / HORIZON, 1e6 * max(seconds) / HORIZON],
            **(facts[core] if form == "c" else {}),
        }
        for (core, form), seconds in taken.items()
    ]
    settings = {"cores": tuple(cores), "latent_size": latent_size, "rounds": rounds}
    settings |= {"states": STATES, "actions": ACTIONS, "flags": " ".join(FLAGS)}
    return document("export", settings, {"results": rows})


def _c(model: DynamicsModel, folder: Path) -> tuple[Callable[[int], None], dict[str, int]]:
    exported = export_model(model, "c", folder, horizon=HORIZON)
    timer = folder / "timer.c"
    # A process takes a millisecond to start, so one call of it does many rollouts.
    timer.write_text(
        '#include "koopax.h"\n'
        "static float state[KOOPAX_STATE_SIZE], actions[KOOPAX_HORIZON * KOOPAX_ACTION_SIZE];\n"
        "static float states[KOOPAX_HORIZON * KOOPAX_STATE_SIZE], rewards[KOOPAX_HORIZON];\n"
        "float run(int repeats) {\n"
        "    for (int i = 0; i < repeats; i++) {\n"
        "        koopax_rollout(state, actions, states, rewards);\n"
        "        actions[0] = 1e-3f * rewards[KOOPAX_HORIZON - 1];\n"
        "    }\n"
        "    return rewards[0];\n"
        "}\n"
    )
    library = folder / "timer.so"
    build = ["gcc", *FLAGS, "-shared", "-fPIC", str(timer), "-o", str(library), "-lm"]
    try:
        subprocess.run(build, check=True, capture_output=True)
    except FileNotFoundError as error:
        raise KoopaxError("koopax bench export builds C with gcc, which is not installed: install it.") from error
    import ctypes

    function = ctypes.CDLL(str(library)).run
    memory = exported.document["memory"]
    facts = {"constant_bytes": memory["constants"], "stack_bytes": memory["stack"]}
    return lambda repeats: function(repeats), facts


def _onnx(model: DynamicsModel, folder: Path) -> Callable[[int], None]:
    import onnxruntime

    export_model(model, "onnx", folder, horizon=HORIZON)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    encode, step = (onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), options) for name in ("encode", "step"))
    action = np.zeros(ACTIONS, np.float32)
    (start,) = encode.run(["latent"], {"state": np.zeros(STATES, np.float32)})
    names = ["next_latent", "state", "reward"]

    def run(repeats: int) -> None:
        for _ in range(repeats):
            latent = start
            for _ in range(HORIZON):
                latent = step.run(names, {"latent": latent, "action": action})[0]

    return run


def _jax(model: DynamicsModel) -> Callable[[int], None]:
    functions = model_functions(model, HORIZON)
    start = jax.jit(functions.encode.call)(jnp.zeros(STATES))["latent"]
    action = jnp.zeros(ACTIONS)
    step = jax.jit(functions.step.call).lower(start, action).compile()

    def run(repeats: int) -> None:
        for _ in range(repeats):
            latent = start
            for _ in range(HORIZON):
                latent = step(latent, action)["next_latent"]
            latent.block_until_ready()

    return run
