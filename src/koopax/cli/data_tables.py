"""Tables of datasets for the terminal; apart from those of models, which need JAX."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table

from koopax.cli.output import plain


def list_table(datasets: Sequence[dict[str, Any]]) -> Group:
    """What `koopax.collection.list_datasets` found: a line per dataset at 80 columns, then what the kinds mean."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("name", no_wrap=True)
    table.add_column("environment", no_wrap=True)
    table.add_column("made: steps (seed)")
    for dataset in datasets:
        made = [f"{item['steps']:,} ({item['seed']})" for item in dataset["made"]]
        table.add_row(dataset["name"], dataset["environment"], "\n".join(made) or "–")
    kinds = Table.grid(padding=(0, 2))
    for kind, description in {dataset["kind"]: dataset["description"] for dataset in datasets}.items():
        kinds.add_row(kind, description)
    return Group(table, kinds)


def summary_table(summary: dict[str, Any]) -> Group:
    """What `koopax.data.summarise` found in a set of episodes."""
    head = Table.grid(padding=(0, 2))
    head.add_column(style="bold")
    head.add_column()
    windows, rewarded = summary["windows"], summary["has_rewards"]
    lines = {
        "environment": summary["environment"] or "unknown",
        "episodes": f"{summary['episodes']:,} ({summary['terminated']:,} terminated)",
        "steps": f"{summary['steps']:,}",
        "sizes": f"{_states(summary)}, {summary['action_size']} actions",
        "lengths": _range(summary["lengths"], ",.0f"),
        "returns": _range(summary["returns"], ",.1f") if rewarded else "the data has no rewards",
        f"{windows['horizon']}-step windows": f"{windows['count']:,} "
        f"({windows['episodes_too_short']:,} episodes are too short)",
        "NaN or infinite": f"{summary['nonfinite']:,} values",
    }
    if summary["durations"]:
        lines["durations"] = _range(summary["durations"], ".3g") + " nominal steps"
    for name, source in summary["sources"].items():
        lines[f"source {name}"] = f"{source['episodes']:,} episodes, {source['steps']:,} steps"
        if rewarded:
            mean = "none" if source["mean_return"] is None else f"{source['mean_return']:,.1f}"
            lines[f"source {name}"] += f", mean return {mean}"
    for label, text in lines.items():
        head.add_row(plain(label), plain(text))
    table = Table("column", "unit", "min", "mean", "max", "std", "remarks", box=None, header_style="bold")
    for column in (*summary["state"], *summary["action"], *([summary["reward"]] if rewarded else [])):
        remarks = ["constant"] if column["constant"] else []
        remarks += [f"{column['nonfinite']:,} NaN or infinite"] if column["nonfinite"] else []
        numbers = ("" if column[k] is None else f"{column[k]:.4g}" for k in ("min", "mean", "max", "std"))
        table.add_row(plain(column["name"]), plain(column["unit"] or ""), *numbers, ", ".join(remarks))
    return Group(head, "", table)


def _states(summary: dict[str, Any]) -> str:
    if summary["image_shape"] is None:
        return f"{summary['state_size']} states"
    shape = "×".join(map(str, summary["image_shape"]))
    return f"frames of {shape} ({summary['bytes'] / 2**20:,.0f} MiB, {summary['moving_pixels']:.0%} of the pixels move)"


def _range(spread: dict[str, float | None], form: str) -> str:
    if spread["mean"] is None:
        return "none is finite"
    low, high, mean, median = (format(spread[key], form) for key in ("min", "max", "mean", "median"))
    return f"{low} to {high}, mean {mean}, median {median}"
