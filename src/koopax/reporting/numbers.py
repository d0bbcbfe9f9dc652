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


def percent(share: float) -> str:
    """A share in whole per cent, with a space that no line breaks at."""
    return f"{100 * share:.0f}\u00a0%"


def short(value: Any, digits: int = 3) -> str:
    """A number for people: three significant digits, without an exponent where there is no need for one."""
    value = float(value)
    size = abs(value)
    if 10**digits / 10 <= size < 1e6:
        return f"{value:,.0f}"
    if value == 0 or 1e-3 <= size < 1e6:
        return f"{value:#.{digits}g}".rstrip(".") if value else "0"
    return f"{value:.{digits - 1}e}"
