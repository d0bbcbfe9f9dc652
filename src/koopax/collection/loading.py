"""`koopax.load`: a log that exists, or one of our own datasets, which is collected if it does not; and `convert`."""

import os
from pathlib import Path
from typing import Any

from koopax.collection.recipes import find_or_make_dataset
from koopax.data import loading
from koopax.data.episodes import Episodes


def load(
    source: "str | os.PathLike[str] | Episodes", *, check: bool = True, memory_map: bool | None = None, **options: Any
) -> Episodes:
    """Episodes from whatever `koopax.data.load` reads, or one of koopax's own names.

    Args:
        source: a path, a Minari id (`mujoco/halfcheetah/expert-v0`; downloaded by Minari if it is not there), or one of
            koopax's names (`koopax/halfcheetah/expert-v0`; collected on the spot if it is not there). Minari and
            MuJoCo come with `pip install 'koopax[mujoco]'`.
        check: raise on NaN and infinite values.
        memory_map: keep the rows on disk; by default if the source is larger than a quarter of the memory.
        options: of the format: columns of a table (see `koopax.data.sources.table.read`); for koopax's own names
            `steps` and `seed` (see `koopax.collection.recipes.find_or_make_dataset`).
    """
    if not isinstance(source, Episodes):
        name = os.fspath(source)
        if name.startswith("koopax/") and not Path(name).exists():
            source, options = find_or_make_dataset(name, **options), {}
    return loading.load(source, check=check, memory_map=memory_map, **options)


def convert(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    check: bool = True,
    **options: Any,
) -> Path:
    """Read `source` (with the options of `load`) and write it to `destination`; return where it went."""
    loading.resolve_destination(destination, overwrite=overwrite)
    return loading.save(load(source, check=check, **options), destination, overwrite=overwrite)
