"""Tables for people, of what agents achieved."""

from typing import Any

from rich import box
from rich.table import Table


def aggregate_table(document: dict[str, Any]) -> Table:
    """Agents' aggregates over tasks, with their intervals; what a score is stands in the caption."""
    tasks = document["tasks"]
    table = Table(
        title=f"scores over {len(tasks)} task{'s' if len(tasks) > 1 else ''}, with 95 % intervals",
        caption="; ".join(
            f"{task['task']}: a return of {task['score_of_one']:g} scores 1, at {task['steps']:g} steps"
            for task in tasks
        ),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("agent")
    for heading in ("mean", "interquartile mean", "optimality gap", "runs"):
        table.add_column(heading, justify="right")
    for agent in document["agents"]:
        cells = [agent[name] for name in ("mean", "iqm", "optimality_gap")]
        shown = [f"{cell['value']:.3f}\n\\[{cell['low']:.3f}, {cell['high']:.3f}]" for cell in cells]
        table.add_row(agent["agent"], *shown, str(agent["runs"]))
    return table
