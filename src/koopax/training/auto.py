"""`--model auto`: regressions in seconds, then a Koopman model, and the best of them in free runs is kept.

Least squares takes measured states for true ones. Where they are noisy it is off, and gradient steps over windows of
some steps, which see noise in the first state only, bring it nearer: regressions of low degree are tried refined, too.

OUT/candidates/dmdc/, …   the candidates, each an ordinary run
OUT/auto.json             what was tried, how good it was, how long it took, and which is the best
OUT/                      besides, the run of the best one, so that every command that takes a run takes OUT
"""

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from koopax._atomic import check_place, new_file
from koopax._claim import Claim
from koopax._errors import DivergedError, KoopaxError
from koopax._progress import Watcher
from koopax._provenance import provenance
from koopax._untrusted import from_json, read_json, reading
from koopax.data.episodes import Episodes
from koopax.models.files import RUN_MODEL
from koopax.training.choice import free_run_error
from koopax.training.config import TrainConfig
from koopax.training.run import BEST, Run, write_json
from koopax.training.tasks import Splits, TrainTask, recorded_task, run_task, splits

AUTO = "auto.json"
CANDIDATES = "candidates"
DEGREES = (2, 3, 5, 7)
# Polynomials, and products of polynomials and actions, that a regression takes in; and steps for each, at least.
MOST_FUNCTIONS = 600
STEPS_PER_FUNCTION = 4
# Regressions up to this degree are refined, unless one of any degree is as good as this.
REFINED = "-refined"
REFINED_DEGREE = 3
EXACT = 1e-6
REFINED_STEPS, REFINED_HORIZON, REFINED_RATE = 2_000, 20, 3e-3
REFINED_SHARE = 0.1
"""Of a training time, for each."""
# A costlier model has to be better than this, and errors of float32 itself don't count.
CLOSE = 1.05
ROUNDING = 1e-10
# How far, in logarithms, one validation episode may mislead about a network that has all shapes to choose from.
MISLEADING = 1.5
# The same about earlier weights of a training, which have one choice: the step.
MISLEADING_STEP = 0.5
# A model that has stopped improving for so many validations will not overtake another.
PATIENCE = 20


@dataclass(frozen=True)
class Candidate:
    """A model that was tried."""

    name: str
    """Of the model, and of its folder."""
    error: float
    """Of free runs on the validation episodes, see `koopax.training.choice.free_run_error`."""
    seconds: float
    """By the clock on the wall, from the untrained model on."""
    parameters: int
    """Numbers that were fitted or trained."""
    reencode_every: int | None
    """Steps between two returns to its encoder; None for never."""
    model: str
    """Which of its models is meant: of a regression the better one in free runs, of a network see `kept_weights`."""


@dataclass(frozen=True)
class AutoRun:
    """What `--model auto` found."""

    best: Run
    """The run of the best candidate, in the folder itself."""
    candidates: tuple[Candidate, ...]
    """In the order in which they were tried."""
    kept: str | None
    """Name of the best one; None where it was interrupted before."""
    interrupted: bool = False
    """Whether Ctrl-C or SIGTERM ended it; `best` is then of those that were finished, or unfinished itself."""


def candidates(task: TrainTask, train: Episodes) -> dict[str, TrainTask]:
    """The models that suit the data, by name, cheapest first; frames are nothing for a regression."""
    patience = task.train.patience or PATIENCE
    koopman = replace(task, model="koopman", train=replace(task.train, patience=patience))
    if train.image_shape is not None:
        return {"koopman": koopman}
    least_squares = replace(task.train, steps=0, seconds=None)
    found = {"dmdc": replace(task, model="dmdc", train=least_squares)}
    history = task.model_options.get("history", 1)
    seen = history * train.state_size + (history - 1) * train.action_size
    for degree in DEGREES:
        functions = math.comb(seen + degree, degree) * (1 + train.action_size)
        if functions <= MOST_FUNCTIONS and STEPS_PER_FUNCTION * functions <= train.num_steps:
            options = {**task.model_options, "encoder_options": {"degree": degree}}
            found[f"edmd-{degree}"] = replace(task, model="edmd", model_options=options, train=least_squares)
    low = [name for name in found if name == "dmdc" or int(name.removeprefix("edmd-")) <= REFINED_DEGREE]
    horizon = min(REFINED_HORIZON, task.train.horizon or REFINED_HORIZON, int(train.lengths.max()))
    refining = replace(_refining(task.train), horizon=horizon)
    refined = {f"{name}{REFINED}": replace(found[name], train=refining) for name in low}
    return {**found, **refined, "koopman": koopman}


def _refining(config: TrainConfig) -> TrainConfig:
    """The settings of gradient steps that go on from least squares, within those that the user gave."""
    steps = REFINED_STEPS if config.steps is None else min(REFINED_STEPS, config.steps)
    seconds = None if config.seconds is None else REFINED_SHARE * config.seconds
    rate = config.learning_rate or REFINED_RATE
    return replace(config, steps=steps, seconds=seconds, learning_rate=rate, reencode_every=1)


def run_auto(
    task: TrainTask,
    folder: Path,
    *,
    episodes: Splits | None = None,
    resume: bool = False,
    sinks: tuple[str, ...] = ("jsonl",),
    watch: Callable[[str, TrainConfig], Watcher] | None = None,
    memory_map: bool | None = None,
) -> AutoRun:
    """Try the candidates on the task's data, each in a folder of its own, and record which is the best.

    Args:
        task: whose model is "auto".
        folder: for the candidates' folders; finished candidates in it are not trained again.
        episodes: its splits, where they are at hand.
        resume: whether the folder may hold something already.
        sinks: where metrics go.
        watch: asked for a watcher of each candidate, by its name and settings.
        memory_map: whether its data stays on disk, as for `koopax.load`.
    """
    check_place(folder)
    episodes = episodes or splits(task, memory_map=memory_map)
    with Claim(folder):
        return _compare(task, folder, episodes, resume, sinks, watch)


def _compare(
    task: TrainTask,
    folder: Path,
    episodes: Splits,
    resume: bool,
    sinks: tuple[str, ...],
    watch: Callable[[str, TrainConfig], Watcher] | None,
) -> AutoRun:
    if not resume:
        if (folder / "config.json").exists() or (folder / AUTO).exists():
            raise KoopaxError(f"{str(folder)!r} already holds a run: resume it, or choose another folder.")
        write_json(folder / AUTO, {"kind": "auto", "task": _recorded(task), "candidates": [], "best": None})
    tried: list[Candidate] = []
    best: Run | None = None
    for name, candidate in candidates(task, episodes.train).items():
        if name.endswith(REFINED) and min(each.error for each in tried) < EXACT:
            continue
        began = time.perf_counter()
        try:
            run = _run(candidate, folder / CANDIDATES / name, episodes, sinks, watch and watch(name, candidate.train))
        except DivergedError:
            tried.append(Candidate(name, float("inf"), time.perf_counter() - began, 0, None, RUN_MODEL))
            continue
        if run.stopped == "interrupted":
            return AutoRun(best or run, tuple(tried), None, interrupted=True)
        models = {RUN_MODEL: run.model, BEST: run.best_model}
        errors = {of: free_run_error(m, episodes.validation) for of, m in models.items() if m is not None}
        network = candidate.model == "koopman"
        model = (
            kept_weights(errors, episodes.validation.num_episodes) if network else min(errors, key=errors.__getitem__)
        )
        error = errors[model]
        every, size = run.model.config.reencode_every, run.model.num_parameters()
        tried.append(Candidate(name, error, round(run.wall_seconds, 3), size, every, model))
        if best is None or error <= min(each.error for each in tried):
            best = run
    assert best is not None  # a regression always ends
    chosen = chosen_of(tried, episodes.validation.num_episodes)
    best = _put_forward(folder, chosen)
    document = {"kind": "auto", "task": _recorded(task), "candidates": [asdict(each) for each in tried]}
    write_json(folder / AUTO, {**document, "best": chosen.name, **provenance()})
    return AutoRun(best, tuple(tried), chosen.name)


def kept_weights(errors: Mapping[str, float], validation_episodes: int) -> str:
    """Of a network the last weights, with the learning rate at its end, or the best ones on the validation's windows.

    Earlier weights may suit a few episodes by chance: in free runs they have to be better by a factor, which n episodes
    bring down to e^(0.5 / √n).
    """
    earlier = errors.get(BEST, math.inf)
    return BEST if _margin(MISLEADING_STEP, validation_episodes) * earlier < errors[RUN_MODEL] else RUN_MODEL


def _margin(misleading: float, validation_episodes: int) -> float:
    """By what factor a free choice has to be better on so many validation episodes."""
    return max(CLOSE, math.exp(misleading / math.sqrt(validation_episodes)))


def chosen_of(tried: Sequence[Candidate], validation_episodes: int) -> Candidate:
    """The first, which is the cheapest, of the regressions that are about as good as the best of them; or the network.

    A network can follow a few validation episodes by chance where a regression, which has one shape, cannot: it has to
    be better by a factor, which n episodes bring down to e^(1.5 / √n).
    """
    *regressions, network = tried
    if not regressions:
        return network
    best = min(each.error for each in regressions)
    simple = next(each for each in regressions if each.error <= max(CLOSE * best, ROUNDING))
    margin = _margin(MISLEADING, validation_episodes)
    return network if margin * max(network.error, ROUNDING) < simple.error else simple


def _put_forward(folder: Path, chosen: Candidate) -> Run:
    """Make the folder the run of that candidate, with the better of its two models as its model."""
    own = folder / CANDIDATES / chosen.name
    copies = {"config.json": "config.json", "metrics.jsonl": "metrics.jsonl", RUN_MODEL: chosen.model}
    for name, source in copies.items():
        with new_file(folder / name, overwrite=True) as temporary:
            shutil.copyfile(own / source, temporary)
    return Run.load(folder)


def read_auto_task(folder: Path) -> TrainTask | None:
    """The task of an auto folder; None where it is something else."""
    if not (folder / AUTO).is_file():
        return None
    with reading(folder / AUTO, "the record of a comparison", "restore it, or train into a new folder"):
        recorded = read_json(folder / AUTO)["task"]
        return from_json(TrainTask, {**recorded, "train": TrainConfig.from_json(recorded["train"])})


def _recorded(task: TrainTask) -> dict[str, Any]:
    return recorded_task(task) | {"train": asdict(task.train)}


def _run(task: TrainTask, folder: Path, episodes: Splits, sinks: Sequence[str], watch: Watcher | None) -> Run:
    """The candidate's run: as it was finished, resumed, or begun."""
    begun = (folder / "config.json").is_file()
    if begun and (folder / RUN_MODEL).is_file():
        return Run.load(folder)
    return run_task(task, folder, episodes=episodes, resume=begun, sinks=tuple(sinks), watch=watch)
