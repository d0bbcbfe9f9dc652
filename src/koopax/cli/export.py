"""koopax export: a model as a file that runs without koopax."""

from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from koopax.cli.output import print_json, results


def export(
    run: Positional[Path],
    *,
    to: Literal["onnx", "stablehlo", "c"],
    out: Path,
    horizon: int = 100,
    name: str = "koopax",
    best: bool = False,
    json: bool = False,
) -> None:
    """Write a trained model as ONNX, StableHLO or one C99 header: encode, step and a rollout, in raw units.

    Args:
        run: a run folder or a .koopax file.
        to: onnx, stablehlo or c.
        out: the folder to write to.
        horizon: steps of the rollout.
        name: what the names in a C header begin with, and the header's own name.
        best: the model with the lowest validation loss instead of the last one.
        json: print what export.json says.
    """
    from koopax.cli.tables import export_table
    from koopax.exporting.export import export_model
    from koopax.training.trained import load_one

    exported = export_model(load_one(run, best=best), to, out, horizon=horizon, name=name)
    if json:
        print_json(exported.document)
    else:
        results().print(export_table(exported))
