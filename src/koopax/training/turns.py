"""Trainings that are compared at equal time: they take turns in slices of some seconds, in one process.

One after another, each would meet the machine in another mood over hours. In turns, whatever else it does is shared
evenly: every training has a slice, then every training has the next. Each has its own clock, which counts its own steps
only, and all are compiled before the first slice. On one core the clock counts the processor's time, so that other
programs take none of it; on several, where threads wait for one another, it is the wall's.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from koopax._errors import DivergedError
from koopax._interrupt import StopRequest
from koopax._progress import Watcher
from koopax._provenance import usable_cores
from koopax.data.fingerprint import fingerprint
from koopax.training.fitting import start_training
from koopax.training.growth import choose_growth
from koopax.training.loop import Loop, fresh_state
from koopax.training.programs import Programs
from koopax.training.record import Keeping, Record
from koopax.training.run import Run, recorded_model
from koopax.training.settings import check_training, settings_for, with_horizon
from koopax.training.tasks import Splits, TrainTask, initial_model, recorded_task

SLICE_SECONDS = 3.0


@dataclass(frozen=True)
class Turn:
    """How one of the trainings ended."""

    outcome: Run | DivergedError
    """The run, or why it has none."""
    slices: int
    """How often it had its turn, since it was begun or resumed."""


def run_tasks_in_turns(
    tasks: Sequence[TrainTask],
    folders: Sequence[Path],
    episodes: Splits,
    *,
    slice_seconds: float = SLICE_SECONDS,
    validate: bool = True,
    watch: Watcher | None = None,
) -> list[Turn]:
    """Train the tasks, each in its folder, until every one is at its end; a folder that holds a run is resumed.

    A training that diverges leaves, the others go on. Ctrl-C or SIGTERM ends all with a checkpoint; the runs say so.

    Args:
        tasks: what is trained, all on the same data.
        folders: one for each task.
        episodes: the splits of that data.
        slice_seconds: training time of a turn.
        validate: whether validation episodes are looked at, for their errors and for intervals.
        watch: called after every turn with the steps and seconds of all trainings together.
    """
    began, clock = time.perf_counter(), fair_clock()
    trained_on, validation = fingerprint(episodes.train), episodes.validation if validate else None
    records: list[Record] = []
    loops: list[Loop] = []
    try:
        for task, folder in zip(tasks, folders, strict=True):
            begun = folder if (folder / "config.json").is_file() else None
            model = initial_model(task, task.train.seed, episodes.train, begun)
            config = settings_for(task.train, {}, model, episodes.train, begun)
            model, config = choose_growth(model, episodes.train, config, begun and recorded_model(begun))
            config = with_horizon(config, model, episodes.train, validation)
            keeping = Keeping(begun is not None, data=recorded_task(task), fingerprint=trained_on)
            check_training(model, episodes.train, validation, config, folder, keeping)
            model = start_training(model, episodes.train, validation, config)
            records.append(Record(model, config, folder, keeping))
            state = records[-1].open(fresh_state(model, config))
            programs = Programs(episodes.train, validation, config, past=model.past_steps)
            loops.append(Loop(records[-1], state, programs, began=began, clock=clock))
        with StopRequest() as stop:
            return take_turns(loops, stop, slice_seconds=slice_seconds, watch=watch)
    finally:
        for record in records:
            record.close()


def fair_clock() -> Callable[[], float]:
    """What training time is measured by where trainings are compared: `time.process_time` if there is one core."""
    return time.process_time if usable_cores() == 1 else time.perf_counter


def take_turns(
    loops: Sequence[Loop], stop: StopRequest, *, slice_seconds: float, watch: Watcher | None = None
) -> list[Turn]:
    """Advance every loop by a slice, round after round, until all are at their ends."""
    slices = [0] * len(loops)
    diverged: dict[int, DivergedError] = {}
    for loop in loops:
        loop.prepare(stop)
    going = list(range(len(loops)))
    while going:
        for number in list(going):
            loop = loops[number]
            try:
                ended = loop.advance(stop, until=loop.record.seconds + slice_seconds)
            except DivergedError as error:
                diverged[number], ended = error, True
            slices[number] += 1
            if ended:
                going.remove(number)
            if watch is not None:
                steps, seconds = (sum(each) for each in zip(*((o.step, o.record.seconds) for o in loops), strict=True))
                watch({"step": steps, "seconds": seconds})
    return [Turn(_outcome(loop, stop, diverged.get(number)), slices[number]) for number, loop in enumerate(loops)]


def _outcome(loop: Loop, stop: StopRequest, error: DivergedError | None) -> Run | DivergedError:
    if error is not None:
        return error
    try:
        return loop.finish(stop)
    except DivergedError as late:
        return late
