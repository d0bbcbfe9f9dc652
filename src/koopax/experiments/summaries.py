"""What an experiment says in the end: Markdown tables and a JSON document, written by the program."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from koopax._atomic import new_file
from koopax._provenance import provenance
from koopax.training.run import write_json


@dataclass(frozen=True)
class Summary:
    """The outcome of an experiment."""

    title: str
    """What the tables show."""
    sections: list[str]
    """Markdown, one table each."""
    document: dict[str, Any]
    """The same numbers for programs."""

    def write(self, folder: Path, *, command: str, budget: dict[str, Any]) -> None:
        """Write `table.md` and `summary.json`."""
        heading = f"# {self.title}\n\nMade by `{command}`. Budget: {_inline(budget)}.\n"
        with new_file(folder / "table.md", overwrite=True) as temporary:
            temporary.write_text("\n\n".join([heading.rstrip(), *self.sections]) + "\n")
        document = {"command": command, "budget": budget, **provenance(), "tables": _finite(self.document)}
        write_json(folder / "summary.json", document)


def interval(values: Sequence[float]) -> dict[str, Any]:
    """Mean and 95 % interval over seeds (Student's t), and as text: of two, whose interval says little, the values."""
    mean = float(np.mean(values))
    if len(values) < 2 or not np.isfinite(mean):
        return {"mean": mean, "half_width": None, "values": list(values), "text": _short(mean)}
    quantile = float(stats.t.ppf(0.975, len(values) - 1))
    half = quantile * statistics.stdev(values) / len(values) ** 0.5
    told = f"± {half:.2g}" if len(values) > 2 else f"({', '.join(map(_short, values))})"
    return {"mean": mean, "half_width": half, "values": list(values), "text": f"{_short(mean)} {told}"}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _short(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "diverged"


def _inline(document: Mapping[str, Any]) -> str:
    """A budget in words: `batch size 16; environments halfcheetah, hopper`."""
    return "; ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in document.items() if _said(value))


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {_plain(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ")
    return f"{value:g}" if isinstance(value, float) else str(value)


def _said(value: Any) -> bool:
    return value is not None and value != {}


def _finite(value: Any) -> Any:
    """JSON has no infinity: those become None."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
