"""What little data is worth: regressions, a small Koopman model and `auto`, on systems whose equations are known.

A cell is a system, a number of rows and a noise level. Its models are those that `--model auto` tries, all on the same
rows; each is then tested on clean episodes that nobody saw, in free runs of 100 steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from koopax._errors import DivergedError
from koopax._plots import BLUE, GREEN, INK, ORANGE, SKY, tidy
from koopax._provenance import provenance
from koopax.data.episodes import Episodes
from koopax.evaluation.prediction import prediction_error
from koopax.experiments.experiment import Experiment, Place
from koopax.experiments.grid import Interrupted, Job, conditions, load_average, run_missing
from koopax.experiments.summaries import Summary, markdown
from koopax.experiments.systems import simulate
from koopax.models.files import load_model
from koopax.training.auto import CANDIDATES, REFINED, run_auto
from koopax.training.config import TrainConfig
from koopax.training.tasks import VALIDATION, Splits, TrainTask

HORIZON = 100
TEST_EPISODES = 40
TEST_STEPS = 200


@dataclass(frozen=True)
class SmallDataBudget:
    """The size of the grid."""

    systems: tuple[str, ...]
    """Of `koopax.experiments.systems`, with `linear` at its own rows."""
    rows: tuple[int, ...]
    """Steps to train and validate on."""
    linear_rows: tuple[int, ...]
    """The same for the linear system."""
    steps: int | None
    """Gradient steps of the Koopman model; None for its default."""
    windows: int
    """Test windows."""
    seeds: int
    """Sets of data, and trainings."""


NONLINEAR = ("van-der-pol", "duffing", "pendulum")
BUDGETS = {
    "smoke": SmallDataBudget(("duffing",), (600,), (300,), steps=20, windows=50, seeds=1),
    "cpu": SmallDataBudget(NONLINEAR, (500, 2_000, 10_000), (300,), steps=None, windows=1_000, seeds=1),
    "paper": SmallDataBudget(NONLINEAR, (500, 2_000, 10_000), (300, 10_000), steps=None, windows=4_000, seeds=5),
}
# Decibels of the noise below the signal; None for clean data.
NOISE = {"linear": (None, 20.0)}
OTHER_NOISE = (None, 30.0)


@dataclass(frozen=True)
class Setting:
    """What a cell is about."""

    system: str
    rows: int
    noise_db: float | None
    seed: int

    @property
    def name(self) -> str:
        """Of the cell."""
        noise = "clean" if self.noise_db is None else f"{self.noise_db:g}dB"
        return f"{self.system}-{self.rows}-{noise}-{self.seed}"


def settings(budget: SmallDataBudget) -> list[Setting]:
    """Every system at every number of rows and noise."""
    return [
        Setting(system, rows, noise, seed)
        for seed in range(budget.seeds)
        for system in ("linear", *budget.systems)
        for rows in (budget.linear_rows if system == "linear" else budget.rows)
        for noise in NOISE.get(system, OTHER_NOISE)
    ]


def episodes_of(setting: Setting) -> Splits:
    """Rows to train and validate on, in at least five episodes, and clean episodes to test on."""
    length = min(TEST_STEPS, setting.rows // 5)
    measured = simulate(
        setting.system, setting.rows // length, length, seed=2 * setting.seed, noise_db=setting.noise_db
    )
    train, validation = measured.split(1 - max(VALIDATION, 1.5 / measured.num_episodes), seed=0)
    return Splits(train, validation, simulate(setting.system, TEST_EPISODES, TEST_STEPS, seed=2 * setting.seed + 1))


def run(budget: SmallDataBudget, place: Place) -> list[dict[str, Any]]:
    """Run what is not finished yet and return every cell's document."""
    cells = settings(budget)
    jobs = [Job(cell.name, {**asdict(cell), "steps": budget.steps, "windows": budget.windows}) for cell in cells]

    def run_cells(numbers: Sequence[int], place: Place) -> Iterator[tuple[int, dict[str, Any]]]:
        for number in numbers:
            yield number, {"made_of": jobs[number].made_of, **_run_cell(cells[number], budget, place)}

    return run_missing(jobs, run_cells, place)


def _run_cell(setting: Setting, budget: SmallDataBudget, place: Place) -> dict[str, Any]:
    load, episodes, folder = load_average(), episodes_of(setting), place.work / setting.name
    task = TrainTask(setting.name, "auto", TrainConfig(steps=budget.steps, seed=setting.seed))
    with place.watcher(setting.name, budget.steps, None) as watch:
        found = run_auto(task, folder, episodes=episodes, resume=folder.exists(), watch=lambda *_: watch)
    if found.interrupted:
        raise Interrupted
    models = [
        asdict(each) | {"test_error": _tested(folder / CANDIDATES / each.name / each.model, episodes.test, budget)}
        for each in found.candidates
    ]
    return {
        "cell": setting.name,
        "labels": asdict(setting),
        "models": models,
        "auto": found.kept,
        "trials": [asdict(trial) for trial in found.best.trials],
        "conditions": conditions(load),
        **provenance(),
    }


def _tested(path, test: Episodes, budget: SmallDataBudget) -> float | None:
    """The normalised state error of free runs; None where it is not finite."""
    try:
        error = prediction_error(load_model(path), test, horizon=HORIZON, windows=budget.windows).state.normalised
    except DivergedError:
        return None
    return error if np.isfinite(error) else None


def _arms(cell: dict[str, Any]) -> dict[str, float]:
    """Test errors by arm: DMDc, the best polynomials on the test, the best refined ones, Koopman, and what was kept."""
    errors = {m["name"]: np.inf if m["test_error"] is None else m["test_error"] for m in cell["models"]}
    refined = {name: error for name, error in errors.items() if name.endswith(REFINED)}
    polynomials = [error for name, error in errors.items() if name.startswith("edmd") and name not in refined]
    return {
        "DMDc": errors["dmdc"],
        "EDMD, best degree": min(polynomials, default=np.inf),
        "refined, best": min(refined.values(), default=np.nan),
        "Koopman": errors["koopman"],
        "auto": errors[cell["auto"]],
    }


def summarise(found: list[dict[str, Any]]) -> Summary:
    """A line per system, rows and noise; means over seeds."""
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for cell in found:
        labels = cell["labels"]
        groups.setdefault((labels["system"], labels["rows"], labels["noise_db"]), []).append(cell)
    rows, document = [], []
    for (system, count, noise), cells in groups.items():
        arms = {arm: float(np.mean([_arms(cell)[arm] for cell in cells])) for arm in _arms(cells[0])}
        kept = ", ".join(sorted({cell["auto"] for cell in cells}))
        noisy = "none" if noise is None else f"{noise:g} dB"
        shown = ("–" if np.isnan(error) else f"{error:.2g}" for error in arms.values())
        rows.append([system, f"{count:,}", noisy, *shown, kept])
        arms = {arm: None if np.isnan(error) else error for arm, error in arms.items()}
        document.append({"system": system, "rows": count, "noise_db": noise, "errors": arms, "auto": kept})
    header = ["system", "rows", "noise", *_arms(found[0]), "auto kept"]
    note = (
        "Normalised state error of free runs of 100 steps on clean test episodes. EDMD has the best degree on the "
        "test, which nobody knows beforehand, and so has what is refined; where a regression is exact none is. `auto` "
        "chose on validation episodes with the noise that they have."
    )
    return Summary("Little data: regressions, Koopman and auto", [markdown(header, rows), note], {"rows": document})


def figure(found: list[dict[str, Any]]) -> Figure:
    """Test error against rows, a panel per system, noisy data dashed."""
    systems = [s for s in dict.fromkeys(cell["labels"]["system"] for cell in found) if s != "linear"]
    drawn = Figure(figsize=(3.3 * len(systems), 3.6), layout="constrained")
    panels = np.atleast_1d(drawn.subplots(1, len(systems), sharey=True))
    colours = {"DMDc": INK, "EDMD, best degree": ORANGE, "refined, best": SKY, "Koopman": BLUE, "auto": GREEN}
    for panel, system in zip(panels, systems, strict=True):
        cells = [cell for cell in found if cell["labels"]["system"] == system]
        for noise, line in ((None, "-"), (OTHER_NOISE[1], "--")):
            some = sorted((c for c in cells if c["labels"]["noise_db"] == noise), key=lambda c: c["labels"]["rows"])
            for arm, colour in colours.items():
                style = {"color": colour, "linestyle": line, "marker": "o", "markersize": 5 if arm == "auto" else 3}
                panel.plot([c["labels"]["rows"] for c in some], [_arms(c)[arm] for c in some], **style)
        panel.set(xscale="log", yscale="log", title=system, xlabel="rows")
        tidy(panel)
    panels[0].set_ylabel("test error of 100 steps, normalised")
    for arm, colour in colours.items():
        panels[-1].plot([], [], color=colour, label=arm)
    panels[-1].plot([], [], color=INK, linestyle="--", label="noise at 30 dB")
    panels[-1].legend(frameon=False, fontsize=8)
    return drawn


EXPERIMENT = Experiment(name="small-data", budgets=BUDGETS, run=run, summarise=summarise, figure=figure)
