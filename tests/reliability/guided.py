"""Attacks one loader by coverage: atheris looks for bytes that reach new lines. Optional: `pip install atheris`.

    python tests/reliability/guided.py "model file" -runs=10000

Arguments after the loader's name are those of libFuzzer. It stops at the first thing that must not come out.
"""

import hashlib
import sys
import tempfile
import warnings
from pathlib import Path

import atheris  # pyright: ignore[reportMissingImports]

with atheris.instrument_imports(include=["koopax"]):
    from fuzz import attack, keep
    from targets import TARGETS, copy


def main() -> None:
    """Let libFuzzer choose the bytes of the file, or of the first file of a folder by name."""
    warnings.simplefilter("ignore")
    target = TARGETS[name := sys.argv.pop(1)]
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "made").mkdir()
        made = target.make(Path(place) / "made")
        (Path(place) / "seeds").mkdir()
        first = sorted(made.rglob("*.*"))[0] if made.is_dir() else made
        (Path(place) / "seeds" / "whole").write_bytes(first.read_bytes())

        def one(content: bytes) -> None:
            path = copy(made, Path(place) / "spoilt")
            (path / first.relative_to(made) if made.is_dir() else path).write_bytes(content)
            try:
                attack(target.read, path)
            except Exception:
                keep(Path(place) / "spoilt", name, hashlib.sha256(content).hexdigest()[:8])
                raise

        atheris.Setup([*sys.argv, str(Path(place) / "seeds")], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
