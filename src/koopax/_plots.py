"""The look of every figure: matplotlib, readable without colour vision."""

from collections.abc import Iterable

from matplotlib.artist import Artist
from matplotlib.axes import Axes

# Okabe and Ito's palette, which stays distinct under the common colour vision deficiencies.
INK, BLUE, ORANGE, GREEN = "#222222", "#0072B2", "#E69F00", "#009E73"
PURPLE, VERMILION, SKY, GREY = "#CC79A7", "#D55E00", "#56B4E9", "#999999"


def tidy(axis: Axes) -> None:
    """A light frame and grid."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.2)


def legend_of(panels: Iterable[Axes], first: Iterable[str]) -> tuple[list[Artist], list[str]]:
    """Handles and labels of what at least one of the panels shows: those in `first`, in its order, then the others."""
    shown: dict[str, Artist] = {}
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        shown = dict(zip(labels, handles, strict=True)) | shown
    order = [label for label in first if label in shown]
    order += [label for label in shown if label not in order]
    return [shown[label] for label in order], order
