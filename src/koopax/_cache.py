"""Where koopax keeps the datasets it makes and the programs it compiles."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder named by `KOOPAX_DATA`, or `~/.cache/koopax`."""
    return Path(os.environ.get("KOOPAX_DATA") or Path.home() / ".cache" / "koopax").expanduser()
