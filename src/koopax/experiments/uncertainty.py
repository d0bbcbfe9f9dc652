"""Do intervals keep their promise, and what are they worth: coverage at every step, mean width and CRPS on nine sets.

On each set three models have the same training time and take turns: `koopman`, whose intervals have one width per step
and column, `koopman-stochastic`, whose are as wide as it is unsure, and an ensemble of MLPs that share the time. All
are calibrated on the validation episodes and tested on the test episodes. Two arms are shown without a calibration, as
Gaussians of their own deviation: the stochastic model's likelihood, and the ensemble's spread.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from koopax._errors import DivergedError, KoopaxError
from koopax._plots import BLUE, GREEN, INK, ORANGE, tidy
from koopax._provenance import provenance
from koopax.collection import load
from koopax.evaluation.calibration import BATCH, calibrate, coverages
from koopax.evaluation.errors import choose_windows
from koopax.experiments.experiment import Experiment, Place
from koopax.experiments.grid import Interrupted, Job, conditions, load_average, run_missing
from koopax.experiments.paper import DATASETS
from koopax.experiments.summaries import Summary, markdown
from koopax.models.ensemble import AnyModel, Ensemble
from koopax.models.intervals import LEVELS, Calibration
from koopax.models.presets import ONE_MEMBER, PLAIN_TRAINING
from koopax.training.config import TrainConfig
from koopax.training.run import Run
from koopax.training.tasks import Splits, TrainTask
from koopax.training.turns import Turn, run_tasks_in_turns

MLP_HORIZON = 10
PROMISED = (0.88, 0.93)
"""Between which the coverage of 90 % intervals is to stay at every step."""
ARMS = {
    "koopman": "koopman, conformal",
    "stochastic": "koopman-stochastic, conformal",
    "ensemble": "MLP ensemble, conformal",
    "stochastic-alone": "koopman-stochastic, likelihood alone",
    "ensemble-alone": "MLP ensemble, spread alone",
}


@dataclass(frozen=True)
class UncertaintyBudget:
    """The size of the experiment."""

    data_steps: int
    """Environment steps of each dataset."""
    seconds: float
    """Training time of each of the three models; the members of the ensemble share it."""
    members: int
    """Of the ensemble."""
    batch_size: int
    """Windows in a batch."""
    horizon: int
    """Steps to train on, the MLPs excepted, and to predict."""
    windows: int
    """Test windows."""
    level: float = 0.9
    """Of the intervals."""
    datasets: int = 9
    """How many of the nine datasets."""


BUDGETS = {
    "smoke": UncertaintyBudget(4_000, seconds=1.0, members=2, batch_size=4, horizon=10, windows=50, datasets=1),
    "cpu": UncertaintyBudget(200_000, seconds=30.0, members=5, batch_size=16, horizon=100, windows=1_000),
    "paper": UncertaintyBudget(1_000_000, seconds=7_200.0, members=5, batch_size=256, horizon=100, windows=10_000),
}


def tasks(dataset: str, budget: UncertaintyBudget) -> list[TrainTask]:
    """The Koopman model, the stochastic one, and the members of the ensemble."""

    def task(model: str, seed: int, horizon: int, seconds: float) -> TrainTask:
        train = TrainConfig(
            horizon=horizon,
            reencode_every="never",
            seconds=seconds,
            batch_size=budget.batch_size,
            seed=seed,
            **PLAIN_TRAINING,
        )
        options = {} if model == "mlp" else ONE_MEMBER
        data = {"source": dataset, "source_options": {"steps": budget.data_steps}}
        return TrainTask(**data, model=model, model_options=options, train=train)

    single = [task(model, 0, budget.horizon, budget.seconds) for model in ("koopman", "koopman-stochastic")]
    short = min(MLP_HORIZON, budget.horizon)
    return single + [task("mlp", seed, short, budget.seconds / budget.members) for seed in range(budget.members)]


def run(budget: UncertaintyBudget, place: Place) -> list[dict[str, Any]]:
    """Run what is not finished yet and return every dataset's document."""
    datasets = DATASETS[: budget.datasets]
    names = [name.removeprefix("koopax/").removesuffix("-v0") for name in datasets]
    made_of = {name: value for name, value in asdict(budget).items() if name != "datasets"}
    jobs = [Job(name.replace("/", "-"), {"dataset": name, **made_of}) for name in names]

    def run_cells(numbers: Sequence[int], place: Place) -> Iterator[tuple[int, dict[str, Any]]]:
        for number in numbers:
            found = _run_cell(datasets[number], budget, place, jobs[number].name)
            yield (
                number,
                {"cell": jobs[number].name, "dataset": names[number], "made_of": jobs[number].made_of, **found},
            )

    return run_missing(jobs, run_cells, place)


def _run_cell(dataset: str, budget: UncertaintyBudget, place: Place, name: str) -> dict[str, Any]:
    load, asked = load_average(), tasks(dataset, budget)
    episodes = _split(asked[0])
    folders = [place.work / name / f"{task.model}-{task.train.seed}" for task in asked]
    with place.watcher(name, None, 3 * budget.seconds) as watch:
        # The members of an ensemble need no intervals of their own, which would cost more than their training.
        turns = run_tasks_in_turns(asked, folders, episodes, validate=False, watch=watch)
    koopman, stochastic, *members = (_trained(turn) for turn in turns)
    single = {"koopman": koopman.model, "stochastic": stochastic.model}
    alone = {name: calibrate(own, episodes.validation, horizon=budget.horizon) for name, own in single.items()}
    gaussian = _gaussian(budget.horizon, episodes.train.state_size + 1)
    together = calibrate(Ensemble([member.model for member in members]), episodes.validation, horizon=budget.horizon)
    arms = _tested(alone["koopman"], {"koopman": alone["koopman"].calibration}, episodes, budget)
    own = {"stochastic": alone["stochastic"].calibration, "stochastic-alone": gaussian}
    arms |= _tested(alone["stochastic"], own, episodes, budget)
    own = {"ensemble": together.calibration, "ensemble-alone": gaussian}
    arms |= _tested(together, own, episodes, budget, {"ensemble": np.asarray(together.floor, np.float64)})
    steps = {"koopman": [koopman.step], "stochastic": [stochastic.step], "ensemble": [m.step for m in members]}
    return {
        "arms": arms,
        "gradient_steps": steps,
        "episodes": dict(zip(Splits._fields, (part.num_episodes for part in episodes), strict=True)),
        "conditions": conditions(load, slices=max(turn.slices for turn in turns), turns_with=[f.name for f in folders]),
        **provenance(),
    }


def _split(task: TrainTask) -> Splits:
    """Half of the episodes to train on; a quarter to calibrate on and one to test on, as what these differ by counts.

    How far the coverage of one calibration is from what is promised, and how far the measured one is from that, is a
    matter of how many episodes there are.
    """
    rest, test = load(task.source, **task.source_options).split(0.75, seed=task.split_seed)
    return Splits(*rest.split(2 / 3, seed=task.split_seed), test)


def _trained(turn: Turn) -> Run:
    if isinstance(turn.outcome, DivergedError):
        raise KoopaxError(f"a model of the comparison has diverged: {turn.outcome}")
    if turn.outcome.stopped == "interrupted":
        raise Interrupted
    return turn.outcome


def _gaussian(horizon: int, columns: int) -> Calibration:
    """Intervals of a Gaussian with the model's own deviation."""
    quantiles = stats.norm.ppf((1 + np.minimum(LEVELS, 0.9999)) / 2)
    table = np.broadcast_to(quantiles[:, None, None], (len(LEVELS), horizon, columns))
    return Calibration(jnp.asarray(table, jnp.float32), jnp.asarray(jnp.inf))


def _tested(
    model: AnyModel,
    calibrations: Mapping[str, Calibration | None],
    episodes: Splits,
    budget: UncertaintyBudget,
    floors: Mapping[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """What is found of a model with each of the calibrations, by their names."""
    known = {name: of for name, of in calibrations.items() if of is not None}
    chosen = choose_windows(episodes.test, budget.horizon, count=budget.windows, batch_size=BATCH, models=[model])
    return {
        name: {"error": found.state.error, "parameters": model.num_parameters(), "coverage": found.to_json()}
        for name, found in coverages(model, known, chosen, level=budget.level, floors=floors).items()
    }


def summarise(found: list[dict[str, Any]]) -> Summary:
    """Coverage, width and CRPS by dataset and arm."""
    sections, document = [], {}
    low, high = PROMISED
    rows, kept = [], dict.fromkeys(ARMS, 0)
    for cell in found:
        line = [cell["dataset"]]
        for arm in ARMS:
            per_step = np.array(cell["arms"][arm]["coverage"]["per_step"], float)
            inside = bool(((per_step >= low) & (per_step <= high)).all())
            kept[arm] += inside
            text = f"{100 * per_step.mean():.1f} ({100 * per_step.min():.1f}–{100 * per_step.max():.1f})"
            line.append(f"**{text}**" if inside else text)
            document.setdefault(cell["dataset"], {})[arm] = {
                "coverage": per_step.mean(),
                "lowest": per_step.min(),
                "highest": per_step.max(),
                **{name: cell["arms"][arm]["coverage"][name] for name in ("mean_width", "crps", "calibration_windows")},
                "error": cell["arms"][arm]["error"],
            }
        rows.append(line)
    header = ["dataset", *ARMS.values()]
    counted = ", ".join(f"{ARMS[arm]} on {count}" for arm, count in kept.items())
    sections.append(
        f"## Coverage in percent: mean over the steps (lowest – highest step)\n\n{markdown(header, rows)}\n\n"
        f"Bold: within {100 * low:g} and {100 * high:g} % at every step: {counted} of {len(found)} sets."
    )
    titles = {"mean_width": "Mean width, in standard deviations of the data", "crps": "CRPS, normalised"}
    for name, title in titles.items():
        lines = [[c["dataset"], *(_short(c["arms"][arm]["coverage"][name]) for arm in ARMS)] for c in found]
        ratios = [_ratio(found, arm, name) for arm in ARMS]
        lines.append(["geometric mean, relative to koopman", *ratios])
        sections.append(f"## {title}\n\n{markdown(header, lines)}")
    lines = [[c["dataset"], *(_short(c["arms"][arm]["error"]) for arm in ARMS), _steps(c)] for c in found]
    sections.append(f"## State error over the horizon, normalised\n\n{markdown([*header, 'gradient steps'], lines)}")
    return Summary("Intervals on nine sets: coverage, width and CRPS", sections, document)


def _steps(cell: dict[str, Any]) -> str:
    taken = cell["gradient_steps"]
    members = " + ".join(str(count) for count in taken["ensemble"])
    return f"koopman {taken['koopman'][0]}, stochastic {taken['stochastic'][0]}, MLPs {members}"


def _short(value: float | None) -> str:
    return "∞" if value is None or not np.isfinite(value) else f"{value:.3g}"


def _ratio(found: list[dict[str, Any]], arm: str, name: str) -> str:
    pairs = [(c["arms"][arm]["coverage"][name], c["arms"]["koopman"]["coverage"][name]) for c in found]
    if any(value is None for pair in pairs for value in pair):
        return "–"
    return f"{np.exp(np.mean([np.log(mine / reference) for mine, reference in pairs])):.2f}"


def figure(found: list[dict[str, Any]]) -> Figure:
    """Coverage against the step, a panel per dataset."""
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    drawn = Figure(figsize=(4.2 * columns, 2.9 * rows), layout="constrained")
    panels = drawn.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    looks = {
        "koopman": (BLUE, "-"),
        "stochastic": (GREEN, "-"),
        "ensemble": (ORANGE, "-"),
        "stochastic-alone": (GREEN, ":"),
        "ensemble-alone": (ORANGE, ":"),
    }
    for panel, cell in zip(panels, found, strict=False):
        panel.axhspan(*PROMISED, color=INK, alpha=0.1, linewidth=0)
        panel.axhline(0.9, color=INK, linewidth=0.8)
        for arm, (colour, line) in looks.items():
            per_step = cell["arms"][arm]["coverage"]["per_step"]
            panel.plot(np.arange(1, len(per_step) + 1), per_step, color=colour, linestyle=line, label=ARMS[arm])
        panel.set(title=cell["dataset"], xlabel="step", ylim=(0.3, 1.0))
        tidy(panel)
    for panel in panels[len(found) :]:
        panel.set_visible(False)
    for row in range(rows):
        panels[row * columns].set_ylabel("share held by 90 % intervals")
    panels[0].legend(frameon=False, fontsize=7)
    return drawn


EXPERIMENT = Experiment(name="uncertainty", budgets=BUDGETS, run=run, summarise=summarise, figure=figure)
