"""Which columns of a table are what: options that every command with a SOURCE takes."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class TableColumns:
    """Columns of a CSV or Parquet table; those left out are guessed from their names."""

    episode: str | None = None
    """The column that tells episodes apart."""
    state: str | None = None
    """The state columns, separated by commas."""
    action: str | None = None
    """The action columns, separated by commas."""
    reward: str | None = None
    """The reward column, or `none` for data without rewards."""
    time: str | None = None
    """A column of times, for irregular sampling."""

    def options(self) -> dict[str, Any]:
        """The options of `koopax.load` that were given."""
        return {name: value for name, value in asdict(self).items() if value is not None}
