"""koopax data …"""

import re
from pathlib import Path

import tyro
from tyro.conf import Positional

from koopax.cli.columns import TableColumns
from koopax.cli.output import errors, print_json, results

app = tyro.extras.SubcommandApp()


@app.command(name="list")
def list_(*, json: bool = False) -> None:
    """List koopax's own datasets and what has been made of them.

    Args:
        json: print one JSON document.
    """
    from koopax.cli.data_tables import list_table
    from koopax.collection import list_datasets

    datasets = list_datasets()
    if json:
        print_json(datasets)
    else:
        results().print(list_table(datasets))


@app.command
def make(
    name: Positional[str],
    *,
    steps: int = 1_000_000,
    seed: int = 0,
    workers: int | None = None,
    from_scratch: bool = False,
    force: bool = False,
) -> None:
    """Make one of koopax's own datasets on the spot, or mend it if it is damaged.

    Args:
        name: such as koopax/halfcheetah/expert-v0; `koopax data list` shows all.
        steps: environment steps.
        seed: the same name, steps and seed give identical bytes.
        workers: processes; as many as there are cores by default.
        from_scratch: for full-replay sets: record a SAC training run instead of a ladder of shipped policies.
        force: make it again although it is there.
    """
    from koopax.collection import make_dataset

    record = None
    if from_scratch:
        from koopax.agents.sac.record import record_training as record
    path = make_dataset(
        name, steps=steps, seed=seed, from_scratch=from_scratch, record=record, workers=workers, force=force
    )
    results().print(str(path), soft_wrap=True, highlight=False)


@app.command
def collect(
    *,
    env: str,
    policy: str = "random",
    steps: int = 10_000,
    seed: int = 0,
    workers: int | None = None,
    noise: float = 0.0,
    image_size: int | None = None,
    out: str | None = None,
    overwrite: bool = False,
    cluster: str | None = None,
) -> None:
    """Collect episodes with a policy. Ctrl-C keeps what there is.

    Args:
        env: a Gymnasium id, a dm_control id or a DMC task such as cheetah-run.
        policy: random, a shipped name such as halfcheetah-expert, an .npz file or module:function.
        steps: environment steps.
        seed: of environments and policy; the number of workers does not matter.
        workers: processes; as many as there are cores by default.
        noise: standard deviation of Gaussian exploration noise, as a fraction of the action range's half-width.
        image_size: keep frames of so many pixels in height and width instead of states; the policy sees states.
        out: an .npz, .parquet or .csv file, a Minari id or folder; by default a Minari id made from env and policy.
        overwrite: replace what is at `out`.
        cluster: address of a Ray cluster (HOST:PORT, ray://HOST:PORT or auto) that collects instead of processes here.
    """
    from koopax.collection import collect as collect_episodes

    destination = out or f"koopax-collected/{_slug(env)}/{_slug(policy)}-v0"
    episodes = collect_episodes(
        env,
        policy,
        steps,
        seed=seed,
        workers=workers,
        noise=noise,
        image_size=image_size,
        out=destination,
        overwrite=overwrite,
        cluster=cluster,
    )
    if episodes.metadata.extra.get("interrupted"):
        errors().print(f"stopped early: {episodes.num_steps} steps are kept", style="yellow")
    results().print(
        f"{episodes.num_episodes} episodes, {episodes.num_steps} steps → {destination}", highlight=False, soft_wrap=True
    )
    if episodes.metadata.extra.get("interrupted"):
        raise SystemExit(130)


@app.command
def inspect(
    source: Positional[str],
    *,
    json: bool = False,
    plot: Path | None = None,
    columns: TableColumns = TableColumns(),  # noqa: B008  (frozen)
) -> None:
    """Show what is in a dataset: episodes, lengths, returns, ranges, constants, NaNs.

    Args:
        source: a Minari id, .hdf5, .npz, .csv, .parquet, a folder or one of koopax's own names.
        json: print one JSON document.
        plot: save a figure of a few trajectories there.
        columns: for CSV and Parquet tables.
    """
    from koopax.collection import load
    from koopax.data import plot_trajectories, summarise

    episodes = load(source, check=False, **columns.options())
    summary = summarise(episodes)
    if json:
        print_json(summary)
    else:
        from koopax.cli.data_tables import summary_table

        results().print(summary_table(summary))
    if plot is not None:
        from koopax.reporting.figures import save

        save(plot_trajectories(episodes), plot)
        errors().print(f"figure: {plot}")


@app.command
def convert(
    source: Positional[str],
    destination: Positional[str],
    *,
    overwrite: bool = False,
    columns: TableColumns = TableColumns(),  # noqa: B008  (frozen)
) -> None:
    """Read a dataset in one format and write it in another.

    Args:
        source: as for `inspect`.
        destination: an .npz, .parquet or .csv file, an .episodes folder (memory-mappable), a Minari id or folder.
        overwrite: replace what is there.
        columns: for CSV and Parquet tables.
    """
    from koopax.collection import convert as convert_source

    path = convert_source(source, destination, overwrite=overwrite, **columns.options())
    results().print(str(path), soft_wrap=True, highlight=False)


def _slug(name: str) -> str:
    """A name that Minari takes as a part of an id."""
    return re.sub("[^a-z0-9]+", "-", Path(name).stem.lower()).strip("-")
