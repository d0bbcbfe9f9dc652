"""The look of every figure: matplotlib, readable without colour vision."""

from matplotlib.axes import Axes

# Okabe and Ito's palette, which stays distinct under the common colour vision deficiencies.
INK, BLUE, ORANGE, GREEN = "#222222", "#0072B2", "#E69F00", "#009E73"
PURPLE, VERMILION, SKY, GREY = "#CC79A7", "#D55E00", "#56B4E9", "#999999"


def tidy(axis: Axes) -> None:
    """A light frame and grid."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.2)
