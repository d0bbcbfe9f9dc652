"""What an experiment says in the end: Markdown tables and a JSON document, written by the program."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from koopax._atomic import new_file
from koopax._provenance import provenance
from koopax.training.run import write_json

# Two-sided 95 % quantiles of Student's t for 1 … 9 degrees of freedom; few seeds need them.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


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
    """Mean and 95 % interval over seeds (Student's t), and both as text."""
    mean = float(np.mean(values))
    if len(values) < 2 or not np.isfinite(mean):
        return {"mean": mean, "half_width": None, "values": list(values), "text": _short(mean)}
    degrees = len(values) - 1
    quantile = STUDENT[degrees - 1] if degrees <= len(STUDENT) else 1.96
    half = quantile * statistics.stdev(values) / len(values) ** 0.5
    return {"mean": mean, "half_width": half, "values": list(values), "text": f"{_short(mean)} ± {_short(half)}"}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _short(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "diverged"


def _inline(document: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in document.items())


def _finite(value: Any) -> Any:
    """JSON has no infinity: those become None."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
