"""Figures of single models."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from koopax._atomic import new_file
from koopax._errors import unknown_name
from koopax._plots import BLUE, INK, ORANGE, tidy
from koopax.evaluation.spectrum import SpectrumAnalysis


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the path's suffix names."""
    known = figure.canvas.get_supported_filetypes()
    if (suffix := path.suffix.removeprefix(".").lower() or "png") not in known:
        raise unknown_name("format of a figure", suffix, list(known))
    with new_file(path, overwrite=True) as temporary:
        figure.savefig(temporary, dpi=150, format=suffix)


def spectrum_figure(analysis: SpectrumAnalysis) -> Figure:
    """Eigenvalues in the unit disc, and half-life against period; a mode's area is its importance where it is known."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    disc, scales = figure.subplots(1, 2)
    if analysis.importance is None:
        area = np.full(analysis.discrete.size, 18.0)
    else:
        area = 6 + 250 * np.sqrt(analysis.importance / analysis.importance.max())
    turn = np.linspace(0, 2 * np.pi, 400)
    disc.plot(np.cos(turn), np.sin(turn), color=INK, linewidth=0.8)
    style = {"s": area, "alpha": 0.6, "edgecolor": "white", "linewidth": 0.4}
    for chosen, colour, marker, label in (
        (~analysis.aliased, BLUE, "o", "modes"),
        (analysis.aliased, ORANGE, "X", "aliased modes"),
    ):
        if chosen.any():
            points = analysis.discrete[chosen]
            disc.scatter(
                np.real(points),
                np.imag(points),
                color=colour,
                marker=marker,
                label=label,
                **(style | {"s": area[chosen]}),
            )
    disc.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), aspect="equal", xlabel="Re λ̄", ylabel="Im λ̄")
    disc.set_xticks((-1, -0.5, 0, 0.5, 1))
    disc.set_yticks((-1, -0.5, 0, 0.5, 1))
    disc.set_title(f"discrete eigenvalues (stability margin {analysis.stability_margin:.2g})", fontsize=10)
    disc.legend(loc="lower left", frameon=False, fontsize=8)

    shown = np.isfinite(analysis.half_life) & np.isfinite(analysis.period)
    scales.scatter(analysis.period[shown], analysis.half_life[shown], color=BLUE, **(style | {"s": area[shown]}))
    scales.set(xscale="log", yscale="log", xlabel="period (steps)", ylabel="half-life (steps)")
    scales.set_title("how fast modes turn and how long they last", fontsize=10)
    hidden = int((~shown).sum())
    if hidden:
        scales.text(0.02, 0.02, f"{hidden} modes never decay or never turn", transform=scales.transAxes, fontsize=8)
    tidy(disc)
    tidy(scales)
    return figure
