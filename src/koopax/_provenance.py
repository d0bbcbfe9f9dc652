"""What has to be known to trust a number: versions, commit and machine."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("koopax", "jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "mujoco")


def provenance() -> dict[str, Any]:
    """Versions of what matters to a result, the commit of the source tree, and the machine."""
    return {"versions": versions(), "commit": commit(), "machine": machine()}


def versions() -> dict[str, str]:
    """Installed versions of the packages that results depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """The commit that koopax runs from, with `+` where files have changed since; None outside a git checkout."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()

    try:
        tracked = git("ls-files", "--error-unmatch", __file__)
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "") if tracked else None
    except (OSError, subprocess.SubprocessError):
        return None


def machine() -> dict[str, Any]:
    """Processor, cores, those of them that this process may use, and operating system."""
    cores = {"cores": os.cpu_count(), "usable_cores": usable_cores()}
    return {"processor": _processor(), **cores, "system": platform.system()}


def usable_cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
