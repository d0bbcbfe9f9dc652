"""What the page shows of a Koopman model's modes: where training moved them, and which of them carry the motion."""

import warnings
from typing import Any

import jax
import numpy as np

from koopax._errors import KoopaxWarning
from koopax.data.episodes import Episodes
from koopax.evaluation.spectrum import SpectrumAnalysis, analyse_spectrum, mode_importance
from koopax.models.dynamics import DynamicsModel
from koopax.reporting.numbers import number, numbers, percent, short

IMPORTANCE_WINDOWS = 16
"""Windows that the importance of modes is measured on; it needs the decoder's Jacobian."""
ROWS = 8
"""Modes in the table."""
DOMINANT = 0.5
"""The share of the motion from which on one mode dominates."""
FEW = 5
"""So many modes that carry half of the motion are few enough to read them one by one."""


def describe(model: DynamicsModel, seed: int, test: Episodes | None) -> dict[str, Any]:
    """Eigenvalues before and after training, the modes that matter most, and what that means in words.

    Args:
        model: one with a Koopman core.
        seed: of its training, which decided its first eigenvalues.
        test: the episodes that a mode's importance is measured on; unknown without.
    """
    importance = None if test is None else mode_importance(model, test, windows=IMPORTANCE_WINDOWS)
    if importance is not None and not np.isfinite(importance).all():
        importance = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KoopaxWarning)  # the page counts the aliased modes
        after = analyse_spectrum(model)
        before = analyse_spectrum(DynamicsModel(model.config, model.normaliser, key=jax.random.key(seed)))
    return _points(before, after, importance) | {
        "modes": table(after, importance),
        "sentence": sentence(after, importance),
    }


def _points(before: SpectrumAnalysis, after: SpectrumAnalysis, importance: np.ndarray | None) -> dict[str, Any]:
    return {
        "before": {"real": numbers(np.real(before.discrete)), "imag": numbers(np.imag(before.discrete))},
        "after": {"real": numbers(np.real(after.discrete)), "imag": numbers(np.imag(after.discrete))},
        "half_life": numbers(after.half_life),
        "period": numbers(after.period),
        "half_life_before": numbers(before.half_life),
        "period_before": numbers(before.period),
        "importance": None if importance is None else numbers(importance, 3),
        "aliased": after.aliased.tolist(),
        "margin": number(after.stability_margin),
    }


def table(spectrum: SpectrumAnalysis, importance: np.ndarray | None) -> list[dict[str, Any]]:
    """The modes that carry most of the motion, or the slowest where that is not known; shares sum to 1 over all."""
    order = np.argsort(-(spectrum.half_life if importance is None else importance), kind="stable")[:ROWS]
    shares = [None] * len(order) if importance is None else numbers(importance[order], 3)
    sums = [None] * len(order) if importance is None else numbers(np.cumsum(importance[order]), 3)
    return [
        {
            "share": share,
            "cumulative": total,
            "period": number(spectrum.period[mode]),
            "half_life": number(spectrum.half_life[mode]),
            "words": words(
                float(spectrum.period[mode]),
                float(spectrum.half_life[mode]),
                aliased=bool(spectrum.aliased[mode]),
                doubling_time=float(spectrum.doubling_time[mode]),
            ),
        }
        for mode, share, total in zip(order, shares, sums, strict=True)
    ]


def words(period: float, half_life: float, *, aliased: bool, doubling_time: float = float("inf")) -> str:
    """What a mode of this period and half-life, in steps, does by itself."""
    if np.isfinite(doubling_time):
        text = f"unstable: doubles in {short(doubling_time)} steps"
    elif not np.isfinite(period):
        text = "fades without turning" if np.isfinite(half_life) else "stays as it is"
    elif not np.isfinite(half_life):
        text = "turns without fading"
    elif (turns := half_life / period) < 0.1:
        text = "fades before it has turned"
    else:
        text = f"turns {short(turns, 2)} times within its half-life"
    return text + (" (aliased: more than half a turn per step)" if aliased else "")


def sentence(spectrum: SpectrumAnalysis, importance: np.ndarray | None) -> str:
    """Which modes carry the motion, or that none stands out."""
    count = spectrum.half_life.size
    if importance is None:
        return f"How much of the motion each of the {count} modes carries is not known; the table lists the slowest."
    order = np.argsort(-importance, kind="stable")
    largest = order[0]
    needed = int(np.searchsorted(np.cumsum(importance[order]), 0.5 - 1e-9)) + 1
    carried = percent(float(importance[largest]))
    clock = _clock(*(float(each[largest]) for each in (spectrum.period, spectrum.half_life, spectrum.doubling_time)))
    if importance[largest] >= DOMINANT:
        return f"One of {count} modes dominates: it carries {carried} of the predicted motion; it {clock}."
    if needed <= FEW:
        return (
            f"No single mode dominates, but few are needed: {needed} of {count} modes together carry half of the "
            f"predicted motion. The largest of them carries {carried}; it {clock}."
        )
    return (
        f"No mode dominates: the largest carries {carried} of the predicted motion, and it takes {needed} of {count} "
        "modes to carry half of it. So the period and half-life of a single mode describe a small part of the motion, "
        "not the system."
    )


def _clock(period: float, half_life: float, doubling_time: float) -> str:
    turn = f"turns once in {short(period)} steps" if np.isfinite(period) else "does not turn"
    fade = f"loses half its size in {short(half_life)} steps" if np.isfinite(half_life) else "does not fade"
    if np.isfinite(doubling_time):
        fade = f"doubles in {short(doubling_time)} steps"
    return f"{turn} and {fade}"
