"""Which columns of a table are what: options that every command with a SOURCE takes."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class TableColumns:
    """Columns of a CSV or Parquet table, or of the one beside videos; those left out are guessed from their names."""

    episode: str | None = None
    """The column that tells episodes apart."""
    state: str | None = None
    """The state columns, separated by commas."""
    action: str | None = None
    """The action columns, separated by commas, or `none` for data without actions."""
    reward: str | None = None
    """The reward column, or `none` for data without rewards."""
    time: str | None = None
    """A column of times, for irregular sampling."""
    size: int | None = None
    """Pixels to a side that the frames of videos or pictures in a folder are scaled to; as they are by default."""

    def options(self) -> dict[str, Any]:
        """The options of `koopax.load` that were given."""
        return {name: value for name, value in asdict(self).items() if value is not None}
