"""koopax bench …: what decisions, agents and models as environments or files take."""

from pathlib import Path
from typing import Any

from koopax.cli.output import progress_bar, show_measurement


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
    show_measurement(found, plan_table(found), json=json, out=out)


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
    show_measurement(found, qp_table(found), json=json, out=out)


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
    show_measurement(found, sac_table(found), json=json, out=out)


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
    show_measurement(found, pixels_table(found), json=json, out=out)


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
    show_measurement(found, simulator_table(found), json=json, out=out)


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
    show_measurement(found, export_speed_table(found), json=json, out=out)
