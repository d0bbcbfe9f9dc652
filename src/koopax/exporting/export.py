"""Write a model in a form that runs without koopax."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from koopax._atomic import check_place, new_file
from koopax._errors import KoopaxError, unknown_name
from koopax._provenance import versions
from koopax.exporting.functions import ModelFunctions, model_functions
from koopax.models.dynamics import DynamicsModel

FORMS = ("onnx", "stablehlo", "c")
RECORD = "export.json"


@dataclass(frozen=True)
class Exported:
    """What was written."""

    folder: Path
    """Where the files are."""
    files: list[str]
    """Their names."""
    document: dict[str, Any]
    """What `export.json` says: sizes, names and shapes, and an example to check against."""


def export_model(
    model: DynamicsModel, to: str, out: str | Path, *, horizon: int = 100, name: str = "koopax"
) -> Exported:
    """Write `encode`, `step` and `rollout` of a model, in raw units, and `export.json`, which describes them.

    Args:
        model: any model; the Transformer, whose memory is a ring of keys and values, only as StableHLO.
        to: "onnx", "stablehlo" or "c".
        out: a folder, which is made if it is not there; files of the same names are replaced.
        horizon: steps of `rollout`.
        name: what the names in a C header begin with, and the header's own name.
    """
    if to not in FORMS:
        raise unknown_name("form of an exported model", to, FORMS)
    if horizon < 1:
        raise KoopaxError(f"a rollout of {horizon} steps can't be exported: use a horizon of 1 or more.")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise KoopaxError(f"{name!r} is no name for C: use small letters, digits and underscores, such as cheetah.")
    folder = Path(out)
    check_place(folder / RECORD)
    functions = model_functions(model, horizon)
    folder.mkdir(parents=True, exist_ok=True)
    files, more = _write(functions, to, folder, name)
    document = {
        "form": to,
        "model": model.config.name,
        "parameters": model.num_parameters(),
        "sizes": asdict(functions.sizes),
        "functions": {
            each.name: {"inputs": {n: list(s) for n, s in each.inputs.items()}, "outputs": list(each.outputs)}
            for each in functions
        },
        "files": files,
        "bytes": {file: (folder / file).stat().st_size for file in files},
        **more,
        "example": _example(model, functions),
        "versions": versions(),
    }
    with new_file(folder / RECORD, overwrite=True) as temporary:
        temporary.write_text(json.dumps(document, indent=1) + "\n")
    return Exported(folder, [*files, RECORD], document)


def _write(functions: ModelFunctions, to: str, folder: Path, name: str) -> tuple[list[str], dict[str, Any]]:
    if to == "onnx":
        from koopax.exporting.onnx_file import write_onnx

        return write_onnx(functions, folder), {}
    if to == "stablehlo":
        from koopax.exporting.stablehlo import write_stablehlo

        return write_stablehlo(functions, folder), {}
    from koopax.exporting.c_header import write_c

    files, memory = write_c(functions, folder, prefix=name)
    return files, {"memory": asdict(memory)}


def _example(model: DynamicsModel, functions: ModelFunctions) -> dict[str, Any]:
    """A step from the mean state under the mean action, so that a reader can check what a runtime makes of it."""
    mean = model.normaliser
    state, action = np.asarray(mean.state_mean, np.float32), np.asarray(mean.action_mean, np.float32)
    latent = jax.jit(functions.encode.call)(state)["latent"]
    found = jax.jit(functions.step.call)(latent, action)
    kept = {"state": found["state"], "reward": found["reward"]}
    return {
        "state": state.tolist(),
        "action": action.tolist(),
        "step": {name: np.asarray(value).tolist() for name, value in kept.items()},
    }
