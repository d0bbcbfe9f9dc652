"""koopax bench …: what models, data and training take."""

from pathlib import Path

from koopax.bench.settings import SpeedSettings
from koopax.cli.output import errors, print_json, progress_bar, results, show_measurement


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
    show_measurement(found, recurrence_table(found), json=json, out=out)


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
    show_measurement(found, rollout_table(found), json=json, out=out)


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
    show_measurement(found, data_table(found), json=json, out=out)


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
    show_measurement(found, gains_table(found), json=json, out=out)


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
    show_measurement(found, start_table(found), json=json, out=out)
