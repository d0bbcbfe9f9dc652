"""koopax bench …"""

from pathlib import Path

import tyro

from koopax.bench.settings import SpeedSettings
from koopax.cli.output import errors, print_json, progress_bar, results

app = tyro.extras.SubcommandApp()


@app.command
def recurrence(*, rounds: int = 5, json: bool = False, write: bool = False) -> None:
    """Time the ways to unroll a diagonal recurrence, with its gradient, at several horizons.

    Args:
        rounds: interleaved rounds; the median counts.
        json: print one JSON document.
        write: keep the result in the package, where `recurrence="auto"` reads it.
    """
    from koopax.bench.recurrence import keep, measure, table

    with progress_bar("measuring") as watch:
        found = measure(rounds=rounds, watch=watch)
    if write:
        keep(found)
    if json:
        print_json(found)
    else:
        results().print(table(found))


@app.command
def speed(
    *,
    json: bool = False,
    out: Path | None = None,
    settings: SpeedSettings = SpeedSettings(),  # noqa: B008  (frozen)
) -> None:
    """Time training steps of every model at several horizons, beside the paper's listing and a matrix product.

    Args:
        json: print one JSON document.
        out: a folder for speed.json, speed.md and speed.png, such as results/speed.
        settings: what is measured.
    """
    from koopax.bench.speed import measure
    from koopax.experiments import speed as table_3

    with progress_bar("measuring") as watch:
        found = measure(settings, watch=watch)
    if out is not None:
        table_3.write(found, out, command="koopax bench speed")
        errors().print(f"written to {out}", highlight=False)
    if json:
        print_json(found)
    else:
        summary = table_3.summarise(found)
        results().print("\n\n".join(summary.sections), markup=False, highlight=False, soft_wrap=True)


@app.command
def rollout(
    *,
    json: bool = False,
    cores: tuple[str, ...] = ("koopman", "mlp", "gru", "transformer", "dssm"),
    horizons: tuple[int, ...] = (20, 100),
    samples: int = 512,
    latent_size: int = 512,
    rounds: int = 9,
    out: Path | None = None,
) -> None:
    """Time predictions for planning: many action sequences from one state, with and without decoding.

    Args:
        json: print one JSON document.
        cores: which cores to time.
        horizons: steps of the action sequences.
        samples: action sequences.
        latent_size: width of the latent, for every core.
        rounds: interleaved rounds; the median counts.
        out: a JSON file to write, such as results/rollout.json.
    """
    from koopax.bench.rollout import measure, table
    from koopax.training.run import write_json

    with progress_bar("measuring") as watch:
        found = measure(
            cores=cores, horizons=horizons, samples=samples, latent_size=latent_size, rounds=rounds, watch=watch
        )
    if out is not None:
        write_json(out, {"command": "koopax bench rollout", **found})
        errors().print(f"written to {out}", highlight=False)
    if json:
        print_json(found)
    else:
        results().print(table(found))


@app.command
def plan(
    *,
    json: bool = False,
    cores: tuple[str, ...] = ("koopman", "mlp"),
    horizons: tuple[int, ...] = (5, 20),
    published: bool = False,
    samples: int | None = None,
    rounds: int = 9,
    out: Path | None = None,
) -> None:
    """Time a decision of TD-MPC's planner for each core and horizon, and its parts.

    Args:
        json: print one JSON document.
        cores: which cores to time; all have the same networks around them.
        horizons: steps of a plan.
        published: the sizes of TD-MPC's paper instead of the agent's own.
        samples: candidates per iteration, if not the agent's.
        rounds: interleaved rounds; the median counts.
        out: a JSON file to write, such as results/planning/speed.json.
    """
    from koopax.bench.plan import measure, table
    from koopax.training.run import write_json

    with progress_bar("measuring") as watch:
        found = measure(
            cores=cores, horizons=horizons, published=published, samples=samples, rounds=rounds, watch=watch
        )
    if out is not None:
        write_json(out, {"command": "koopax bench plan", **found})
        errors().print(f"written to {out}", highlight=False)
    if json:
        print_json(found)
    else:
        results().print(table(found))
