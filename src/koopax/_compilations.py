"""Compiled programs are kept on disk, so that a command compiles what it needs only the first time.

In memory they are not kept for ever: each is several pieces of mapped memory, of which Linux allows a process 65,530 by
default. A grid or a loop that trains one model after another would end there, after some thousand programs.
"""

import gc
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
MOST_MAPPED = 0.5
"""Share of the pieces of memory that a process may map, above which it lets go of its compiled programs."""


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


def make_room() -> bool:
    """Let go of compiled programs if a process can hardly map more of them; whether it did.

    What is still called compiles again, or comes from disk.
    """
    jax, (mapped, most) = sys.modules.get("jax"), mapped_pieces()
    if jax is None or mapped < MOST_MAPPED * most:
        return False
    jax.clear_caches()
    gc.collect()
    return True


def mapped_pieces() -> tuple[int, float]:
    """How many pieces of memory this process has mapped, and how many it may; no limit where that is not known."""
    try:
        with open("/proc/sys/vm/max_map_count") as most, open("/proc/self/maps", "rb") as mapped:
            return sum(1 for _ in mapped), float(most.read())
    except (OSError, ValueError):
        return 0, float("inf")


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
