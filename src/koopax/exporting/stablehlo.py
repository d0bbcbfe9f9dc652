"""A model as StableHLO: portable programs that JAX alone runs, and their text for other compilers."""

from pathlib import Path

import jax
import jax.numpy as jnp

from koopax._atomic import new_file
from koopax.exporting.functions import ModelFunctions

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def write_stablehlo(functions: ModelFunctions, folder: Path) -> list[str]:
    """Write `NAME.stablehlo`, for `jax.export.deserialize`, and `NAME.mlir`, its text; their names."""
    names = []
    for function in functions:
        specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in function.inputs.values()]
        exported = jax.export.export(jax.jit(function.call), platforms=PLATFORMS)(*specs)
        for suffix, content in (
            (".stablehlo", bytes(exported.serialize())),
            (".mlir", exported.mlir_module().encode()),
        ):
            names.append(function.name + suffix)
            with new_file(folder / names[-1], overwrite=True) as temporary:
                temporary.write_bytes(content)
    return names
