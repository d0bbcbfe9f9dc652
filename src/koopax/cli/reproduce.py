"""koopax reproduce …"""

from pathlib import Path

from tyro.conf import Positional

from koopax.cli.output import errors, results, training_progress


def reproduce(
    experiment: Positional[str],
    *,
    budget: str = "cpu",
    out: Path = Path("results"),
    work: Path = Path("runs/reproduce"),
    only: str | None = None,
    cluster: str | None = None,
) -> None:
    """Reproduce a table or figure of the paper.

    Finished cells are kept, so it can be stopped and started at will.

    Args:
        experiment: prediction, speed, init-ablation, latent-ablation, gradients, planning, planning-long,
            representation, small-data, imagination, sensors, uncertainty, balance, constraints, swing-up, or what
            found the defaults: search, first-steps, longer-training, planning-options.
        budget: smoke (seconds), cpu (hours on two cores) or paper (published amounts of data, batch, horizon; the data
            comes from koopax's own policies).
        out: where results go, one file per cell, a table and a figure.
        work: where cells train.
        only: run only the cells whose names this regular expression finds; the table is of all that are finished.
        cluster: address of a Ray cluster (HOST:PORT, ray://HOST:PORT or auto) that runs the cells; koopax must be
            installed on its machines, and no disk is shared.
    """
    from koopax.experiments.grid import Interrupted
    from koopax.experiments.reproduce import reproduce as run

    console = errors()
    try:
        folder = run(
            experiment,
            budget,
            results=out,
            work=work,
            report=lambda text: console.rule(text, align="left"),
            watcher=training_progress,
            only=only,
            cluster=cluster,
        )
    except Interrupted:
        again = f"koopax reproduce {experiment} --budget {budget} --out {out} --work {work}"
        console.print(f"stopped; go on with: {again}", style="yellow", soft_wrap=True)
        raise SystemExit(130) from None
    results().print((folder / "table.md").read_text(), markup=False, highlight=False, soft_wrap=True)
