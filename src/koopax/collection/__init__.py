"""Data from environments: policies, rollouts in parallel processes, and the recipes of our own datasets.

Names are imported when first used, so that `import koopax.collection` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koopax.collection.collecting import collect
    from koopax.collection.loading import convert, load
    from koopax.collection.recipes import list_datasets, make_dataset

_MODULES = {
    "collect": "collecting",
    "convert": "loading",
    "list_datasets": "recipes",
    "load": "loading",
    "make_dataset": "recipes",
}

__all__ = ["collect", "convert", "list_datasets", "load", "make_dataset"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"koopax.collection.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'koopax.collection' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
