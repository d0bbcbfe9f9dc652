"""Training speed against the horizon: table 3 of the paper. Tables and figure are made from the document alone."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from koopax._atomic import new_file
from koopax._plots import SKY, VERMILION, tidy
from koopax.bench import speed
from koopax.bench.settings import LISTING, SpeedSettings, parse_arm
from koopax.experiments.experiment import Experiment
from koopax.experiments.measurement import run_measurement
from koopax.experiments.paper import TRAINING_SPEED
from koopax.experiments.styles import STYLES
from koopax.experiments.summaries import Summary, markdown
from koopax.training.run import write_json

LISTING_STYLE = (VERMILION, (0, (1, 1)), "x")
OTHER_STYLE = (SKY, "-", "P")
TITLE = "Training speed against the horizon"


@dataclass(frozen=True)
class SpeedBudget:
    """The size of the measurement."""

    horizons: tuple[int, ...]
    """Steps that models are unrolled for."""
    batch_size: int
    """Windows in a batch; the paper's at every budget but the smallest."""
    rounds: int
    """Interleaved rounds."""
    data_steps: int = 100_000
    """Environment steps of the dataset."""


BUDGETS = {
    "smoke": SpeedBudget(horizons=(2, 5), batch_size=4, rounds=3, data_steps=4_000),
    "cpu": SpeedBudget(horizons=(10, 50, 100, 200, 500), batch_size=256, rounds=5),
    "paper": SpeedBudget(horizons=(10, 50, 100, 200, 500), batch_size=256, rounds=21),
}


def measure(budget: SpeedBudget) -> dict[str, Any]:
    """What `koopax bench speed` measures, at the size that a budget allows."""
    return speed.measure(SpeedSettings(**asdict(budget)))


def summarise(found: dict[str, Any]) -> Summary:
    """Tables of speed, ratios, the fraction of the peak and memory, by model and horizon."""
    settings = found["settings"]
    horizons, models = settings["horizons"], settings["models"]
    rows = {(row["model"], row["horizon"]): row for row in found["results"]}
    head = ["model", *(f"τ = {horizon}" for horizon in horizons)]

    def by_model(text) -> list[list[str]]:
        return [[model, *(text(rows[model, horizon]) for horizon in horizons)] for model in models]

    rates = [
        [*line, _number(found["exponents"].get(line[0]))]
        for line in by_model(lambda row: _number(row["steps_per_second"]))
    ]
    reward = "states and rewards" if settings["reward"] else "states alone"
    low, high = found["matmul"]["spread"]
    sections = [
        f"Training steps per second, batch {settings['batch_size']}, {reward}, {_losses(found)}, {settings['source']}, "
        f"{found['cores']} cores ({found['machine']['processor']}). Median of interleaved rounds, compilation "
        f"excluded; p is that of time ∝ τᵖ over τ ≥ 50.\n\n{markdown([*head, 'p'], rates)}",
        f"## Koopman's speed over that of others\n\n{_ratio_table(found)}",
        f"## Fraction of the peak\n\nOf {found['matmul_gflops']:.0f} GFLOP/s ({low:.0f} to {high:.0f}), a product of "
        f"float32 matrices of size {found['matmul']['size']}, measured in the same rounds; operations by formula.\n\n"
        + markdown(head, by_model(lambda row: _percent(row["fraction_of_peak"]))),
        "## Peak memory of a step (GiB)\n\nGrowth of a process that runs this arm alone.\n\n"
        + markdown(head, by_model(lambda row: _gibibytes(row["peak_memory_bytes"]))),
        "## The paper's own (iterations per second, batch 256, one A100)\n\n"
        + markdown(
            ["model", *(f"τ = {horizon}" for horizon in (10, 50, 100, 200, 500))],
            [[model, *(f"{rate:g}" for rate in rates)] for model, rates in TRAINING_SPEED.items()],
        ),
    ]
    failed = [
        f"- {row['model']} at τ = {row['horizon']}: {row['failure']}." for row in found["results"] if row["failure"]
    ]
    if failed:
        sections.insert(1, "Not run:\n\n" + "\n".join(failed))
    return Summary(TITLE, sections, found)


def _losses(found: dict[str, Any]) -> str:
    """Which arms have their losses on which steps."""
    by_arm: dict[str, dict[int, int]] = {}
    for row in found["results"]:
        by_arm.setdefault(row["model"], {})[row["horizon"]] = row["loss_stride"]
    alike: dict[str, list[str]] = {}
    for arm, strides in by_arm.items():
        most = max(strides.values())
        fewer = [f"{_every(stride)} at τ = {horizon}" for horizon, stride in strides.items() if stride < most]
        alike.setdefault(", ".join([f"loss on {_every(most)}", *fewer]), []).append(arm)
    return "; ".join(f"{text} ({', '.join(arms)})" for text, arms in alike.items())


def _every(stride: int) -> str:
    return "every step" if stride == 1 else f"one step in {stride}"


def _ratio_table(found: dict[str, Any]) -> str:
    others = [model for model in found["settings"]["models"] if model != "koopman"]
    lines = [
        [
            str(row["horizon"]),
            *(_number(row["koopman_over"].get(model)) for model in others),
            "–"
            if row["fastest_baseline"] is None
            else f"{_number(row['koopman_over_fastest_baseline'])} ({row['fastest_baseline']})",
        ]
        for row in found["ratios"]
    ]
    return markdown(["τ", *others, "fastest baseline"], lines)


def figure(found: dict[str, Any]) -> Figure:
    """Steps per second against τ, both on log scales; bars from the slowest to the fastest round."""
    drawn = Figure(figsize=(6.4, 4.4), layout="constrained")
    panel = drawn.subplots()
    for model in found["settings"]["models"]:
        rows = [row for row in found["results"] if row["model"] == model and row["steps_per_second"]]
        if not rows:
            continue
        name, stride = parse_arm(model)
        colour, line, marker = LISTING_STYLE if name == LISTING else STYLES.get(name, OTHER_STYLE)
        rates = [row["steps_per_second"] for row in rows]
        below = [row["steps_per_second"] - row["spread"][0] for row in rows]
        above = [row["spread"][1] - row["steps_per_second"] for row in rows]
        panel.errorbar(
            [row["horizon"] for row in rows],
            rates,
            yerr=[below, above],
            color=colour,
            linestyle=line,
            marker=marker,
            markerfacecolor=colour if stride is None else "white",
            linewidth=1.5 if stride is None else 0.8,
            capsize=2,
            label=model,
        )
    horizons = found["settings"]["horizons"]
    panel.set(xscale="log", yscale="log", xlabel="horizon τ (steps)", ylabel="training steps per second")
    panel.set_xticks(horizons, [str(horizon) for horizon in horizons])
    panel.minorticks_off()
    panel.legend(frameon=False, fontsize=8)
    tidy(panel)
    return drawn


def write(found: dict[str, Any], folder: Path) -> None:
    """Write `speed.json`, `speed.md` and `speed.png`."""
    write_json(folder / "speed.json", found)
    summary = summarise(found)
    with new_file(folder / "speed.md", overwrite=True) as temporary:
        heading = f"# {summary.title}\n\nMade by `{found['command']}` at commit {found['commit']}."
        temporary.write_text("\n\n".join([heading, *summary.sections]) + "\n")
    with new_file(folder / "speed.png", overwrite=True) as temporary:
        figure(found).savefig(temporary, dpi=150, format="png")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _gibibytes(value: int | None) -> str:
    return "–" if value is None else f"{value / 2**30:.2f}"


EXPERIMENT = Experiment(
    name="speed",
    budgets=BUDGETS,
    run=lambda budget, place: run_measurement(measure, budget, place),
    summarise=summarise,
    figure=figure,
)
