"""Numbers for the page: plain JSON, short, and null where they are not finite."""

from typing import Any

import numpy as np

from koopax.reporting.intervals import Interval


def number(value: Any, digits: int = 4) -> float | None:
    """A number with so many significant digits."""
    value = float(value)
    return float(f"{value:.{digits}g}") if np.isfinite(value) else None


def numbers(values: Any, digits: int = 4) -> Any:
    """Nested lists of `number`, of the shape of the array."""
    values = np.asarray(values)
    if values.ndim == 0:
        return number(values, digits)
    return [numbers(part, digits) for part in values]


def band(found: Interval) -> dict[str, Any]:
    """An interval as {mean, low, high}."""
    return {name: numbers(part) for name, part in found._asdict().items()}


def thinned(count: int, most: int) -> np.ndarray:
    """At most `most` of the indices 0 … count − 1, evenly spread, the last one always among them."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(int))
