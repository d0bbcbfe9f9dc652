"""Seen through sensors: what a history is worth, how far a model without actions sees, and what a filter adds.

Three kinds of cells, all on systems whose equations are known (`koopax.experiments.systems`) but for HalfCheetah:

- `history-SYSTEM-ARM`: one sensor of a driven system. The arms are the whole state, that sensor alone, and that sensor
  with a history, stacked or recurrent, in a Koopman model or in DMDc. All are tested on that sensor: free runs of 100
  steps on windows of test episodes, and one of 10,000 steps.
- `free-SYSTEM-ARM`: a system without input. How long predictions are valid, in Lyapunov times, and what the spectrum
  says of periods and half-lives.
- `filter-SYSTEM`: 30 % of the observations are missing. The estimator against open-loop prediction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from koopax._provenance import provenance
from koopax.collection import load
from koopax.data.episodes import Episodes
from koopax.data.windows import FixedWindows
from koopax.evaluation.errors import choose_windows, predict_windows
from koopax.evaluation.estimator import filter_episode
from koopax.evaluation.filter_fit import fit_noise
from koopax.evaluation.filter_noise import trusting
from koopax.evaluation.prediction import prediction_error
from koopax.evaluation.spectrum import analyse_spectrum
from koopax.evaluation.whole import whole_episodes
from koopax.experiments.experiment import Experiment, Place
from koopax.experiments.grid import Interrupted, Job, conditions, load_average, run_missing
from koopax.experiments.sensors_tables import HISTORY, LENGTH, LYAPUNOV, MISSING, VALID, figure, summarise
from koopax.experiments.systems import SYSTEMS, simulate
from koopax.models.dynamics import DynamicsModel
from koopax.training.config import TrainConfig
from koopax.training.tasks import Splits, TrainTask, run_task

HORIZON = 100
SENSORS = {"two-mass": 0, "duffing": 0, "circuit": 2}


@dataclass(frozen=True)
class SensorsBudget:
    """The size of the grid."""

    rows: int
    """Steps of the training and validation episodes."""
    steps: int
    """Gradient steps of each Koopman model."""
    windows: int
    """Test windows."""
    long_run: int
    """Steps of the long free run."""
    horizon: int | None
    """Steps of the training windows; None for what short trials are best with, as `koopax train` does."""
    cheetah_rows: int
    """Environment steps of HalfCheetah."""
    cheetah_steps: int
    """Gradient steps there."""


BUDGETS = {
    "smoke": SensorsBudget(1_200, 4, 20, 300, 10, 0, 0),
    "cpu": SensorsBudget(4_000, 5_000, 500, 10_000, None, 200_000, 1_000),
    "paper": SensorsBudget(40_000, 20_000, 4_000, 10_000, None, 200_000, 10_000),
}


@dataclass(frozen=True)
class Arm:
    """A model that is compared."""

    model: str
    """Its preset."""
    whole: bool = False
    """Whether it sees the whole state."""
    options: tuple[tuple[str, Any], ...] = ()
    """What differs from the preset."""


STACKED = (("history", HISTORY),)
ARMS = {
    "whole": Arm("koopman", whole=True),
    "sensor": Arm("koopman"),
    "history": Arm("koopman", options=STACKED),
    "recurrent": Arm("koopman", options=(*STACKED, ("history_encoder", "recurrent"))),
    "dmdc": Arm("dmdc", options=STACKED),
    "edmd": Arm("edmd", options=STACKED),
}
FREE_ARMS = {
    "koopman": Arm("koopman", whole=True),
    "edmd": Arm("edmd", whole=True, options=(("encoder_options", {"degree": 5}),)),
}


def jobs_of(budget: SensorsBudget) -> list[tuple[str, str, str]]:
    """Kind, system and arm of every cell."""
    found = [("history", system, arm) for system in SENSORS for arm in ARMS]
    found += [("free", system, arm) for system in ("lorenz", "van-der-pol") for arm in FREE_ARMS]
    return found + [
        ("filter", system, "") for system in ("pendulum", *(["halfcheetah"] if budget.cheetah_rows else []))
    ]


def run(budget: SensorsBudget, place: Place) -> list[dict[str, Any]]:
    """Run what is not finished yet and return every cell's document."""
    cells = jobs_of(budget)
    jobs = [Job("-".join(part for part in cell if part), {"cell": cell, **asdict(budget)}) for cell in cells]

    def run_cells(numbers: Sequence[int], place: Place) -> Iterator[tuple[int, dict[str, Any]]]:
        for number in numbers:
            (kind, system, arm), busy = cells[number], load_average()
            found = RUNS[kind](system, arm, budget, place, jobs[number].name)
            document = {"cell": jobs[number].name, "kind": kind, "system": system, "arm": arm, **found}
            made_of = {"made_of": jobs[number].made_of, "conditions": conditions(busy), **provenance()}
            yield number, document | made_of

    return run_missing([Job(job.name, _plain(job.made_of)) for job in jobs], run_cells, place)


def _plain(made_of: dict[str, Any]) -> dict[str, Any]:
    return made_of | {"cell": list(made_of["cell"])}


def _trained(
    name: str, arm: Arm, episodes: Splits, budget: SensorsBudget, place: Place, *, steps: int | None = None
) -> DynamicsModel:
    """The model of a cell."""
    folder = place.work / name
    regression = arm.model in ("dmdc", "edmd")
    taken = 0 if regression else steps or budget.steps
    task = TrainTask(
        name,
        arm.model,
        TrainConfig(horizon=budget.horizon, steps=taken, validation_horizon=budget.horizon or HORIZON),
        model_options=dict(arm.options),
    )
    begun = (folder / "config.json").is_file()
    with place.watcher(name, taken, None) as watch:
        found = run_task(task, folder, episodes=episodes, resume=begun, watch=watch)
    if found.stopped == "interrupted":
        raise Interrupted
    return found.model


def _split(make: Any, budget: SensorsBudget) -> Splits:
    """Rows to train and validate on, and test episodes of another seed."""
    measured = make(episodes=max(5, budget.rows // LENGTH), steps=LENGTH, seed=0)
    train, validation = measured.split(0.8, seed=0)
    return Splits(train, validation, make(episodes=20, steps=LENGTH, seed=1))


def _history(system: str, arm: str, budget: SensorsBudget, place: Place, name: str) -> dict[str, Any]:
    own, sensor = ARMS[arm], SENSORS[system]
    sensors = None if own.whole else (sensor,)

    def make(**sizes: Any) -> Episodes:
        return simulate(system, sensors=sensors, **sizes)

    episodes = _split(make, budget)
    model = _trained(name, own, episodes, budget, place)
    column = sensor if own.whole else 0
    long = make(episodes=1, steps=budget.long_run, seed=2)
    whole = whole_episodes(model, long)
    fit = list(whole.columns.values())[column].to_json()
    per_step = _per_step(model, episodes.test, column, budget.windows, first=HISTORY - 1)
    return {
        "error": _number(per_step.mean()),
        "error_at_first": _number(_per_step(model, episodes.test, column, budget.windows, first=0, last=0).mean()),
        "per_step": [_number(each) for each in per_step],
        "long_run": {
            "steps": whole.longest,
            "nonfinite": whole.nonfinite,
            **fit,
            "largest": _largest(model, long, column),
        },
        "reencode_every": model.config.reencode_every,
        "parameters": model.num_parameters(),
    }


def _per_step(
    model: DynamicsModel, test: Episodes, column: int, count: int, *, first: int, last: int | None = None
) -> np.ndarray:
    """Normalised errors of a column at each step, over windows that begin at those steps of their episodes."""
    chosen = choose_windows(test, HORIZON, count=10**6, models=(model,))
    begun = chosen.rows - test.starts[np.searchsorted(test.starts, chosen.rows, side="right") - 1]
    rows = chosen.rows[(begun >= first) & (begun <= (begun if last is None else last))][:count]
    batch = FixedWindows(test, rows, HORIZON, len(rows), chosen.past).take(slice(None))
    predicted = np.asarray(predict_windows(model, jax.tree.map(jnp.asarray, batch)).states, np.float64)
    scale = float(np.asarray(model.normaliser.state_std)[column])
    missed = ((predicted - batch.states[1:])[..., column] / scale) ** 2
    return np.where(np.isfinite(missed), missed, np.inf).mean(axis=1)


def _largest(model: DynamicsModel, long: Episodes, column: int) -> float | None:
    """The largest prediction of a free run relative to the largest measurement; None where it is not finite."""
    history, episode = model.config.history, long.episode(0)
    states = episode.observations[:history] if history > 1 else episode.observations[0]
    past = episode.actions[: history - 1] if history > 1 else None
    found = model.rollout(states, episode.actions[history - 1 :], past_actions=past).states[:, column]
    return _number(float(np.abs(found).max() / np.abs(episode.observations[:, column]).max()))


def _free(system: str, arm: str, budget: SensorsBudget, place: Place, name: str) -> dict[str, Any]:
    def make(**sizes: Any) -> Episodes:
        return simulate(system, forced=False, **sizes)

    episodes = _split(make, budget)
    model = _trained(name, FREE_ARMS[arm], episodes, budget, place)
    test = make(episodes=20, steps=1_000, seed=3)
    (batch,) = choose_windows(test, 800, count=20, seed=0, batch_size=20)
    predicted = predict_windows(model, jax.tree.map(jnp.asarray, batch))
    missed = (np.asarray(predicted.states, np.float64) - batch.states[1:]) / np.asarray(model.normaliser.state_std)
    valid = _valid_steps(np.sqrt(np.mean(missed**2, axis=-1)))
    seconds = valid * SYSTEMS[system].step
    error = prediction_error(model, episodes.test, horizon=HORIZON, windows=budget.windows)
    return {
        "error": _number(error.state.normalised),
        "valid_seconds": {
            "median": float(np.median(seconds)),
            "least": float(seconds.min()),
            "of": 800 * SYSTEMS[system].step,
        },
        "valid_lyapunov_times": float(np.median(seconds)) * LYAPUNOV[system] if system in LYAPUNOV else None,
        "spectrum": _spectrum(model, episodes.test, SYSTEMS[system].step),
        "reencode_every": model.config.reencode_every,
    }


def _valid_steps(errors: np.ndarray) -> np.ndarray:
    """How many steps each window is predicted with less than `VALID` error [time, window] → [window]."""
    wrong = ~(errors < VALID)
    return np.where(wrong.any(axis=0), wrong.argmax(axis=0), len(errors))


def _spectrum(model: DynamicsModel, test: Episodes, step: float) -> list[dict[str, float | None]] | None:
    """The modes that matter most: share in the motion, period and half-life in seconds; None without a spectrum."""
    if model.config.core != "koopman":
        return None
    found = analyse_spectrum(model, test)
    assert found.importance is not None
    order = np.argsort(found.importance)[::-1][:5]
    return [
        {
            "importance": float(found.importance[mode]),
            "period": _number(float(2 * np.pi / max(abs(np.angle(found.discrete[mode])), 1e-12) * step)),
            "half_life": _number(float(np.log(2) / max(-np.log(abs(found.discrete[mode])), 1e-12) * step)),
        }
        for mode in order
    ]


def _filter(system: str, arm: str, budget: SensorsBudget, place: Place, name: str) -> dict[str, Any]:
    del arm
    if system == "halfcheetah":
        rest, test = load("koopax/halfcheetah/expert-v0", steps=budget.cheetah_rows).split(0.8, seed=0)
        train, validation = rest.split(0.9, seed=0)
        model = _trained(
            name, Arm("koopman", whole=True), Splits(train, validation, test), budget, place, steps=budget.cheetah_steps
        )
    else:
        splits = _split(lambda **sizes: simulate(system, **sizes), budget)
        model, train, test = (
            _trained(name, Arm("koopman", whole=True), splits, budget, place),
            splits.train,
            splits.test,
        )
    found = {"clean": _filtered(model, train, test, 0.0)}
    noisy = _noisy(train, 0.1)
    return found | {"noisy": _filtered(model, noisy, test, 0.1)}


def _noisy(episodes: Episodes, level: float) -> Episodes:
    rng, scale = np.random.default_rng(0), episodes.statistics().state.std
    return Episodes.from_arrays(
        [e.observations + level * scale * rng.normal(size=e.observations.shape) for e in episodes],
        [e.actions for e in episodes],
    )


def _filtered(model: DynamicsModel, train: Episodes, test: Episodes, level: float) -> dict[str, float]:
    """Normalised errors of what is said of every step of test episodes with missing observations, noisy by `level`."""
    noise, rng = fit_noise(model, train), np.random.default_rng(1)
    scale = np.asarray(model.normaliser.state_std)
    sums: dict[str, list[float]] = {}
    for episode in list(test)[:5]:
        steps = min(LENGTH, len(episode.actions))
        true, actions = np.asarray(episode.observations[: steps + 1]), np.asarray(episode.actions[:steps])
        seen = true + level * scale * rng.normal(size=true.shape)
        held = seen.copy()
        lost = rng.random(len(seen)) < MISSING
        lost[0] = False
        seen[lost] = np.nan
        for number in np.flatnonzero(lost):
            held[number] = held[number - 1]
        inputs = jnp.asarray(seen, jnp.float32), jnp.asarray(actions)
        said = {
            "filter": filter_episode(model, noise, *inputs)[0][1:],
            "trusting": filter_episode(model, trusting(model), *inputs)[0][1:],
            "open_loop": model.rollout(seen[0], actions).states,
            "held": held[1:],
        }
        for arm, states in said.items():
            sums.setdefault(arm, []).append(float(np.mean(((np.asarray(states) - true[1:]) / scale) ** 2)))
    return {arm: float(np.mean(errors)) for arm, errors in sums.items()}


RUNS = {"history": _history, "free": _free, "filter": _filter}


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


EXPERIMENT = Experiment(name="sensors", budgets=BUDGETS, run=run, summarise=summarise, figure=figure)
