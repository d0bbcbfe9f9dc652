"""koopax bench …"""

import tyro

from koopax.cli.output import print_json, progress_bar, results

app = tyro.extras.SubcommandApp()


@app.command
def recurrence(*, rounds: int = 5, json: bool = False, write: bool = False) -> None:
    """Time the ways to unroll a diagonal recurrence, with its gradient, at several horizons.

    Args:
        rounds: interleaved rounds; the median counts.
        json: print one JSON document.
        write: keep the result in the package, where `recurrence="auto"` reads it.
    """
    from koopax.experiments.bench_recurrence import keep, measure, table

    with progress_bar("measuring") as watch:
        found = measure(rounds=rounds, watch=watch)
    if write:
        keep(found)
    if json:
        print_json(found)
    else:
        results().print(table(found))
