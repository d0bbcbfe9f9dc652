"""Data from environments: policies, rollouts in parallel processes, and the recipes of our own datasets.

Names are imported when first used, so that `import koopax.collection` costs nothing.
"""

from typing import TYPE_CHECKING

from koopax._lazy import export_lazily

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

__getattr__, __dir__ = export_lazily(__name__, _MODULES)
