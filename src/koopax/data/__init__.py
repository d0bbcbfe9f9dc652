"""Episodes, windows and normalisation; readers and writers of logs. Nothing here needs an environment.

Names are imported when first used, so that `import koopax.data` costs nothing.
"""

from typing import TYPE_CHECKING

from koopax._lazy import export_lazily

if TYPE_CHECKING:
    from koopax.data.episode import Episode
    from koopax.data.episodes import Episodes
    from koopax.data.inspection import plot_trajectories, summarise
    from koopax.data.loading import load, save
    from koopax.data.metadata import Metadata
    from koopax.data.normalisation import Normaliser
    from koopax.data.windows import FixedWindows, Windows, WindowSampler, fixed_windows, valid_starts

_MODULES = {
    "Episode": "episode",
    "Episodes": "episodes",
    "FixedWindows": "windows",
    "Metadata": "metadata",
    "Normaliser": "normalisation",
    "WindowSampler": "windows",
    "Windows": "windows",
    "fixed_windows": "windows",
    "load": "loading",
    "plot_trajectories": "inspection",
    "save": "loading",
    "summarise": "inspection",
    "valid_starts": "windows",
}

__all__ = [
    "Episode",
    "Episodes",
    "FixedWindows",
    "Metadata",
    "Normaliser",
    "WindowSampler",
    "Windows",
    "fixed_windows",
    "load",
    "plot_trajectories",
    "save",
    "summarise",
    "valid_starts",
]

__getattr__, __dir__ = export_lazily(__name__, _MODULES)
