"""Compiled programs are kept on disk, so that a command compiles what it needs only the first time."""

import hashlib
import os
import platform
import sys
from pathlib import Path

from koopax._cache import cache_folder

MOST_BYTES = 1 << 30
"""Size that the folder is held to; what was used least recently goes first."""
FEWEST_SECONDS = 0.1
"""Programs that compile faster are not worth a file."""


def keep_compilations() -> Path | None:
    """Have JAX keep compiled programs in `compilations` in the cache folder; returns where, or None if it is not to.

    `KOOPAX_COMPILATION_CACHE=0` switches it off, and a folder that the user has named to JAX
    (`JAX_COMPILATION_CACHE_DIR`) is left alone. JAX itself is not imported: until it is, the environment tells it.
    """
    jax = sys.modules.get("jax")
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR") or (jax and jax.config.jax_compilation_cache_dir)
    if chosen or os.environ.get("KOOPAX_COMPILATION_CACHE") == "0":
        return Path(chosen) if chosen else None
    folder = cache_folder() / "compilations" / _machine()
    _remove_unfinished(folder)
    settings = {
        "jax_persistent_cache_min_compile_time_secs": FEWEST_SECONDS,
        "jax_compilation_cache_max_size": MOST_BYTES,
        "jax_compilation_cache_dir": str(folder),
    }
    for name, value in settings.items():
        if os.environ.get(name.upper()):
            continue
        if jax is None:
            os.environ[name.upper()] = str(value)
        else:
            jax.config.update(name, value)
    return folder


def _machine() -> str:
    """A name for the kind of processor: a home folder may be shared by machines that cannot run each other's code."""
    told = [platform.machine(), platform.processor()]
    try:
        with open("/proc/cpuinfo") as file:
            told += [next((line for line in file if line.startswith(("flags", "Features"))), "")]
    except OSError:
        pass
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]


def _remove_unfinished(folder: Path) -> None:
    """Remove programs that a process was ended in writing: JAX would neither use nor replace them."""
    # JAX writes NAME-cache, then NAME-atime.
    for path in folder.glob("*-cache"):
        if not path.with_name(f"{path.name.removesuffix('-cache')}-atime").exists():
            path.unlink(missing_ok=True)
