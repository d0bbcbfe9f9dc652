"""What every measurement leaves: the command, its settings, what was found, and where."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from koopax._provenance import provenance, usable_cores
from koopax.bench.clock import rounded
from koopax.training.run import write_json


def document(command: str, settings: Mapping[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The JSON document of `koopax bench COMMAND`: `found` at four digits, settings, usable cores and provenance."""
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
    known = {"command": f"koopax bench {command}", "settings": listed}
    return {**known, **rounded(found), "cores": usable_cores(), **provenance()}


def write(path: Path, found: dict[str, Any]) -> None:
    """Write a document whole or not at all, in a folder that need not exist yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, found)
