"""Cells of a sweep as trials of Ray Tune, which ends those early that are behind (asynchronous successive halving)."""

import io
import json
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

from koopax._cluster import RETRIES, fetch, pack, unpack, working_folder
from koopax._errors import DivergedError, KoopaxError
from koopax._provenance import provenance
from koopax.experiments.experiment import Place
from koopax.experiments.grid import (
    Cell,
    Interrupted,
    Job,
    Testing,
    conditions,
    document_of,
    finished,
    load_average,
    made_of,
    path_of,
)
from koopax.training.run import write_json
from koopax.training.settings import resolved
from koopax.training.tasks import run_task, splits

# A cell is compared with the others after so many validations, and again each time that it has three times as many.
FIRST_LOOK = 2
LEFT = "folder"


def run_tuned(cells: Sequence[Cell], testing: Testing, place: Place) -> list[dict[str, Any]]:
    """The result of every cell, in order; of one that was ended early, the curve until then."""
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    assert place.cluster is not None
    jobs = [Job(cell.name, made_of(cell)) for cell in cells]
    found = {number: known for number, job in enumerate(jobs) if (known := finished(job, place)) is not None}
    wanted = [number for number in range(len(cells)) if number not in found]
    if wanted:
        config = resolved(cells[wanted[0]].task.train, "koopman")
        most = config.steps if config.seconds is None else config.seconds
        assert most is not None  # resolved
        along = "step" if config.seconds is None else "seconds"
        look = FIRST_LOOK * config.validate_every if along == "step" else most / 10
        scheduler = ASHAScheduler(
            time_attr=along,
            metric="validation",
            mode="min",
            max_t=int(most) + 1,
            grace_period=max(1, int(min(look, most))),
            reduction_factor=3,
        )
        shared = {cells[n].task.source: cells[n].task for n in wanted}
        data = {source: place.cluster.share(splits(task)) for source, task in shared.items()}
        begun = {number: pack(place.work / cells[number].name) for number in wanted}
        trial = _trial(cells, testing, place.cluster.keeper, data, begun)
        with tempfile.TemporaryDirectory(prefix="koopax-tune-") as storage:
            tuner = tune.Tuner(
                tune.with_resources(trial, {"cpu": 1}),
                param_space={"cell": tune.grid_search(wanted)},
                tune_config=tune.TuneConfig(scheduler=scheduler, reuse_actors=False),
                run_config=tune.RunConfig(
                    storage_path=storage,
                    failure_config=tune.FailureConfig(max_failures=RETRIES),
                    callbacks=[_keeping(cells, jobs, place, found)],
                    verbose=0,
                ),
            )
            with redirect_stdout(io.StringIO()):  # Tune tells of itself there, also with a verbosity of 0
                outcome = tuner.fit()
        for error in outcome.errors:
            raise KoopaxError(f"a cell of the sweep failed on the cluster ({error}).") from error
    if len(found) < len(cells):
        raise Interrupted
    return [found[number] for number in sorted(found)]


def _trial(cells: Sequence[Cell], testing: Testing, keeper: Any, data: dict[str, Any], begun: dict[int, Any]) -> Any:
    """What Tune runs on a machine of the cluster: one cell, from its last checkpoint if it was lost before."""

    def trial(config: dict[str, Any]) -> None:
        from ray import tune

        cell, load = cells[config["cell"]], load_average()
        with working_folder(cell.name, keeper, begun[config["cell"]]) as folder:
            last: dict[str, Any] = {}

            def watch(line: dict[str, Any]) -> None:
                if "validation_state" in line:
                    last.update({name: line[name] for name in ("step", "seconds")}, validation=line["validation_state"])
                    tune.report(dict(last))

            episodes, resume = fetch(data[cell.task.source]), (folder / "config.json").is_file()
            try:
                outcome = run_task(cell.task, folder, episodes=episodes, resume=resume, watch=watch)
            except DivergedError as error:
                outcome = error
            document = document_of(cell, outcome, conditions(load), testing, episodes)
            tune.report({"step": 0, "seconds": 0.0, "validation": float("inf"), **last} | _sent(document, folder))

    return trial


def _sent(document: dict[str, Any], folder: Any) -> dict[str, Any]:
    return {"document": json.dumps(document), LEFT: pack(folder)}


def _keeping(cells: Sequence[Cell], jobs: Sequence[Job], place: Place, found: dict[int, dict[str, Any]]) -> Any:
    """A callback that writes the result of each cell as soon as it ends."""
    from ray import tune

    class Keep(tune.Callback):
        """Called by Tune in the driver's process."""

        curves: dict[int, list[dict[str, Any]]] = {}  # noqa: RUF012  (one instance)

        def __reduce__(self) -> tuple[type[tune.Callback], tuple[()]]:
            """A copy is nothing: Tune keeps one for `Tuner.restore`, and a console or a cluster can't be kept."""
            return tune.Callback, ()

        def on_trial_result(self, iteration, trials, trial, result, **info) -> None:
            """One more point of a curve, of which a cell that was lost may tell some twice."""
            curve = self.curves.setdefault(trial.config["cell"], [])
            if "document" not in result and result["step"] > (curve[-1]["step"] if curve else 0):
                names = {"step": "step", "seconds": "seconds", "validation": "validation_state"}
                curve.append({name: result[told] for told, name in names.items()})

        def on_trial_complete(self, iteration, trials, trial, **info) -> None:
            """A cell is at its end, or was ended."""
            number, result = trial.config["cell"], trial.last_result
            if "document" in result:
                document = json.loads(result["document"])
                unpack(result[LEFT], place.work / cells[number].name)
            else:
                document = _ended_early(cells[number], self.curves.get(number, []))
            write_json(path_of(jobs[number], place), document)
            found[number] = document
            place.report(f"{len(found)}/{len(cells)} {cells[number].name}")

    return Keep()


def _ended_early(cell: Cell, curve: list[dict[str, Any]]) -> dict[str, Any]:
    last = curve[-1] if curve else {"step": 0, "seconds": 0.0}
    return {
        "cell": cell.name,
        "labels": cell.labels,
        "made_of": made_of(cell),
        "diverged": None,
        "ended_early": True,
        "error": None,
        "step": last["step"],
        "seconds": last["seconds"],
        "curve": curve,
        **provenance(),
    }
