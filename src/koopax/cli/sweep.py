"""koopax sweep …"""

import shlex
import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from koopax._errors import KoopaxError
from koopax.cli.columns import TableColumns
from koopax.cli.output import errors, results, training_progress
from koopax.training.config import TrainConfig


def sweep(
    source: Positional[str],
    *,
    option: Annotated[list[tuple[str, ...]], UseAppendAction, arg(metavar="NAME=A,B,…")] = [],  # noqa: B006  (only read)
    model: str = "koopman",
    seeds: int = 1,
    out: Path = Path("runs/sweep"),
    cluster: str | None = None,
    early_stopping: bool = True,
    columns: TableColumns = TableColumns(),  # noqa: B008  (frozen)
    config: TrainConfig = TrainConfig(),  # noqa: B008  (frozen)
) -> None:
    """Train a model under every combination of some options, and compare them on the validation episodes.

    Finished combinations are kept, so it can be stopped and started at will. With Ray (`pip install 'koopax[cluster]'`)
    several are trained at a time, and those that are behind are ended early.

    Args:
        source: as for `koopax train`.
        option: settings of training or of the model with the values to try, such as learning_rate=1e-3,3e-3 or
            latent_size=64,128,256; model=koopman,gru tries models.
        model: which model, where no option says.
        seeds: train every combination with so many seeds, from --seed on.
        out: folder for the runs, a result for each, the table and the figure.
        cluster: address of a Ray cluster (HOST:PORT, ray://HOST:PORT or auto); this machine by default.
        early_stopping: end combinations early that are behind, where Ray is installed.
        columns: for CSV and Parquet tables.
        config: how to train.
    """
    from koopax.experiments.grid import Interrupted
    from koopax.experiments.sweep import parse_values
    from koopax.experiments.sweep import sweep as run
    from koopax.training.tasks import TrainTask

    options = {}
    for pair in (pair for flags in option for pair in flags):
        name, equals, text = pair.partition("=")
        if not equals or not text or name in ("core", "data", "key"):
            raise KoopaxError(
                f"--option takes NAME=A,B,…, not {pair!r}: write for example --option latent_size=64,128."
            )
        options[name] = parse_values(text)
    task = TrainTask(source=source, source_options=columns.options(), model=model, train=config)
    console = errors()
    command = shlex.join(["koopax", *sys.argv[1:]])
    try:
        summary = run(
            task,
            options,
            out=out,
            report=lambda text: console.rule(text, align="left"),
            watcher=training_progress,
            seeds=seeds,
            cluster=cluster,
            early_stopping=early_stopping,
            command=command,
        )
    except Interrupted:
        console.print(f"stopped; go on with: {command}", style="yellow", soft_wrap=True)
        raise SystemExit(130) from None
    results().print("\n\n".join(summary.sections), markup=False, highlight=False, soft_wrap=True)
    results().print(f"figure: {out / 'figure.png'}", highlight=False, soft_wrap=True)
