"""koopax bench …: what disks and several processes take."""

from pathlib import Path

from koopax.cli.output import progress_bar, show_measurement


def disk(
    *,
    json: bool = False,
    gigabytes: float = 20.0,
    memory_gibibytes: float = 2.0,
    batch_size: int = 64,
    horizon: int = 100,
    steps: int = 20,
    rounds: int = 5,
    folder: Path | None = None,
    out: Path | None = None,
) -> None:
    """Time training steps on a dataset that does not fit into memory, beside the same on one that does.

    Args:
        json: print one JSON document.
        gigabytes: size of the dataset, which is written for this and removed after.
        memory_gibibytes: memory that the training process may take.
        batch_size: windows in a batch.
        horizon: steps of a window.
        steps: gradient steps of a visit.
        rounds: visits of each case, in turns; the median counts.
        folder: where the dataset is written; the system's folder for temporary files by default.
        out: a JSON file to write, such as results/scaling/disk.json.
    """
    from koopax.bench.disk import measure
    from koopax.cli.scaling_tables import disk_table

    found = measure(
        gigabytes=gigabytes,
        memory_gibibytes=memory_gibibytes,
        batch_size=batch_size,
        horizon=horizon,
        steps=steps,
        rounds=rounds,
        folder=folder,
    )
    show_measurement(found, disk_table(found), json=json, out=out)


def hosts(
    *,
    json: bool = False,
    batch_size: int = 64,
    horizon: int = 100,
    steps: int = 60,
    rounds: int = 3,
    out: Path | None = None,
) -> None:
    """Time one training process, and two that share a batch twice as large, each on a core of its own.

    Args:
        json: print one JSON document.
        batch_size: windows of each process in a batch.
        horizon: steps of a window.
        steps: gradient steps of a training.
        rounds: trainings of each kind, in turns; the median counts.
        out: a JSON file to write, such as results/scaling/hosts.json.
    """
    from koopax.bench.hosts import measure
    from koopax.cli.scaling_tables import hosts_table

    with progress_bar("measuring") as watch:
        found = measure(batch_size=batch_size, horizon=horizon, steps=steps, rounds=rounds, watch=watch)
    show_measurement(found, hosts_table(found), json=json, out=out)
