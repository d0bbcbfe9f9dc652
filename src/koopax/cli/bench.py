"""koopax bench …"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from koopax.bench.settings import SpeedSettings
from koopax.cli.output import errors, print_json, progress_bar, results

if TYPE_CHECKING:
    from rich.console import RenderableType

app = tyro.extras.SubcommandApp()


def _show(found: dict[str, Any], table: "RenderableType", *, json: bool, out: Path | None) -> None:
    """Write a measurement where it is asked for, and print it."""
    from koopax.bench.document import write

    if out is not None:
        write(out, found)
        errors().print(f"written to {out}", highlight=False)
    if json:
        print_json(found)
    else:
        results().print(table)


@app.command
def recurrence(*, rounds: int = 5, json: bool = False, write: bool = False, out: Path | None = None) -> None:
    """Time the ways to unroll a diagonal recurrence, with its gradient, at several horizons.

    Args:
        rounds: interleaved rounds; the median counts.
        json: print one JSON document.
        write: keep the result in the package, where `recurrence="auto"` reads it.
        out: a JSON file to write.
    """
    from koopax.bench.recurrence import keep, measure
    from koopax.cli.bench_tables import recurrence_table

    with progress_bar("measuring") as watch:
        found = measure(rounds=rounds, watch=watch)
    if write:
        keep(found)
    _show(found, recurrence_table(found), json=json, out=out)


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
        table_3.write(found, out)
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
        out: a JSON file to write, such as results/rollout-speed.json.
    """
    from koopax.bench.rollout import measure
    from koopax.cli.bench_tables import rollout_table

    with progress_bar("measuring") as watch:
        found = measure(
            cores=cores, horizons=horizons, samples=samples, latent_size=latent_size, rounds=rounds, watch=watch
        )
    _show(found, rollout_table(found), json=json, out=out)


@app.command
def plan(
    *,
    json: bool = False,
    cores: tuple[str, ...] = ("koopman", "mlp"),
    horizons: tuple[int, ...] = (5, 20),
    published: bool = False,
    samples: int | None = None,
    rounds: int = 9,
    decisions: int = 300,
    out: Path | None = None,
) -> None:
    """Time a decision of TD-MPC's planner for each core and horizon, and its parts; and one of every planner.

    Args:
        json: print one JSON document.
        cores: which cores to time; all have the same networks around them.
        horizons: steps of a plan.
        published: the sizes of TD-MPC's paper instead of the agent's own.
        samples: candidates per iteration, if not the agent's.
        rounds: interleaved rounds; the median counts.
        decisions: of every planner for one environment, with 64 samples and 20 steps where it has some; 0 for none.
        out: a JSON file to write, such as results/plan-speed.json.
    """
    from koopax.bench.plan import measure
    from koopax.cli.bench_tables import plan_table

    with progress_bar("measuring") as watch:
        found = measure(
            cores=cores,
            horizons=horizons,
            published=published,
            samples=samples,
            rounds=rounds,
            decisions=decisions,
            watch=watch,
        )
    _show(found, plan_table(found), json=json, out=out)


@app.command
def qp(
    *, json: bool = False, horizons: tuple[int, ...] = (20, 40), decisions: int = 200, out: Path | None = None
) -> None:
    """Time the solvers of the convex program that a constrained plan is, on the same problems.

    Args:
        json: print one JSON document.
        horizons: steps of a plan.
        decisions: problems in a row.
        out: a JSON file to write, such as results/qp-solvers.json.
    """
    from koopax.bench.qp import measure
    from koopax.cli.bench_tables import qp_table

    with progress_bar("measuring") as watch:
        found = measure(horizons=horizons, decisions=decisions, watch=watch)
    _show(found, qp_table(found), json=json, out=out)


@app.command
def data(
    *,
    json: bool = False,
    steps: int = 1_000_000,
    batch_size: int = 256,
    horizon: int = 100,
    rounds: int = 5,
    out: Path | None = None,
) -> None:
    """Time loading a D4RL file and drawing a batch of windows from it, beside a training step.

    Args:
        json: print one JSON document.
        steps: environment steps in the file, in episodes of 1000.
        batch_size: windows in a batch.
        horizon: steps of a window.
        rounds: interleaved rounds; the median counts.
        out: a JSON file to write, such as results/data-speed.json.
    """
    from koopax.bench.data import measure
    from koopax.cli.bench_tables import data_table

    with progress_bar("measuring") as watch:
        found = measure(steps=steps, batch_size=batch_size, horizon=horizon, rounds=rounds, watch=watch)
    _show(found, data_table(found), json=json, out=out)


@app.command
def gains(
    *,
    json: bool = False,
    arms: tuple[str, ...] = (),
    rounds: int = 7,
    source: str = "koopax/halfcheetah/expert-v0",
    data_steps: int = 100_000,
    out: Path | None = None,
) -> None:
    """Time a training step of the Koopman model as it is, and with one choice at a time undone.

    Args:
        json: print one JSON document.
        arms: which choices, by their names in the JSON document; all of them by default.
        rounds: interleaved rounds; the median counts.
        source: the dataset.
        data_steps: its environment steps, where it is one of koopax's own.
        out: a JSON file to write, such as results/speed-gains.json.
    """
    from koopax.bench.gains import ARMS, measure
    from koopax.cli.bench_tables import gains_table

    with progress_bar("measuring") as watch:
        found = measure(arms=arms or tuple(ARMS), rounds=rounds, source=source, data_steps=data_steps, watch=watch)
    _show(found, gains_table(found), json=json, out=out)


@app.command
def sac(
    *,
    json: bool = False,
    environments: tuple[str, ...] = ("Hopper-v5", "Walker2d-v5", "HalfCheetah-v5"),
    rounds: int = 9,
    out: Path | None = None,
) -> None:
    """Time SAC's updates with the environments included.

    Args:
        json: print one JSON document.
        environments: Gymnasium ids; plain SAC is measured in the last.
        rounds: interleaved rounds; the median counts.
        out: a JSON file to write, such as results/sac-rate.json.
    """
    from koopax.bench.sac import measure
    from koopax.cli.bench_tables import sac_table

    with progress_bar("measuring") as watch:
        found = measure(environments=environments, rounds=rounds, watch=watch)
    _show(found, sac_table(found), json=json, out=out)


@app.command
def pixels(
    *,
    json: bool = False,
    arms: tuple[str, ...] = (),
    task: str = "cartpole-swingup",
    published: bool = False,
    updates_per_decision: int = 1,
    rounds: int = 7,
    out: Path | None = None,
) -> None:
    """Time a decision of SAC from pixels, and its parts, for plain SAC and with each core that predicts.

    Args:
        json: print one JSON document.
        arms: such as "sac" or "koopman K=20"; all by default.
        task: a DMC task or any environment that draws itself.
        published: the published sizes instead of those for one CPU core.
        updates_per_decision: updates that each decision makes.
        rounds: interleaved rounds; the median counts.
        out: a JSON file to write, such as results/pixel-speed.json.
    """
    from koopax.bench.pixels import ARMS, measure
    from koopax.cli.bench_tables import pixels_table

    settings: dict[str, Any] = {"task": task, "published": published, "updates_per_decision": updates_per_decision}
    with progress_bar("measuring") as watch:
        found = measure(arms or tuple(ARMS), **settings, rounds=rounds, watch=watch)
    _show(found, pixels_table(found), json=json, out=out)


@app.command
def start(*, json: bool = False, out: Path | None = None) -> None:
    """Time how long train, evaluate and plan take to get going, before and after their compiled programs are kept.

    Args:
        json: print one JSON document.
        out: a JSON file to write, such as results/start.json.
    """
    from koopax.bench.start import measure
    from koopax.cli.bench_tables import start_table

    with progress_bar("measuring") as watch:
        found = measure(watch=watch)
    _show(found, start_table(found), json=json, out=out)


@app.command
def simulator(
    *,
    json: bool = False,
    env: str = "HalfCheetah-v5",
    cores: tuple[str, ...] = ("koopman", "mlp"),
    copies: tuple[int, ...] = (1, 64, 1024, 4096),
    latent_size: int = 128,
    models: int = 1,
    rounds: int = 7,
    out: Path | None = None,
) -> None:
    """Time steps of models as environments, one copy and thousands, beside the environment that they stand for.

    Args:
        json: print one JSON document.
        env: the environment.
        cores: which cores to time.
        copies: how many copies are stepped at once.
        latent_size: width of the latent, for every core.
        models: how many models a simulator holds, whose disagreement it tells.
        rounds: interleaved rounds; the median counts.
        out: a JSON file to write, such as results/simulator-speed.json.
    """
    from koopax.bench.simulator import measure
    from koopax.cli.bench_tables import simulator_table

    options = {"cores": cores, "copies": copies, "latent_size": latent_size, "models": models, "rounds": rounds}
    with progress_bar("measuring") as watch:
        found = measure(environment=env, **options, watch=watch)
    _show(found, simulator_table(found), json=json, out=out)


@app.command
def export(
    *,
    json: bool = False,
    cores: tuple[str, ...] = ("koopman", "mlp", "gru", "dmdc"),
    latent_size: int = 128,
    rounds: int = 7,
    out: Path | None = None,
) -> None:
    """Time a step of exported models: C built by gcc, ONNX in onnxruntime, and JAX beside them.

    Args:
        json: print one JSON document.
        cores: which models to time.
        latent_size: width of the latent, for every core.
        rounds: interleaved rounds; the median counts.
        out: a JSON file to write, such as results/export-speed.json.
    """
    from koopax.bench.export import measure
    from koopax.cli.bench_tables import export_speed_table

    with progress_bar("measuring") as watch:
        found = measure(cores=cores, latent_size=latent_size, rounds=rounds, watch=watch)
    _show(found, export_speed_table(found), json=json, out=out)


@app.command
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
    _show(found, disk_table(found), json=json, out=out)


@app.command
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
    _show(found, hosts_table(found), json=json, out=out)
