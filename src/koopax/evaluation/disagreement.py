"""How far the members of an ensemble are apart on test windows, and whether that tells where they are wrong."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from koopax._types import Array
from koopax.data.episodes import Episodes
from koopax.data.windows import Windows
from koopax.evaluation.errors import choose_windows, predict_windows
from koopax.evaluation.protocol import SEED, WINDOWS
from koopax.models.ensemble import Ensemble


def disagreement(
    ensemble: Ensemble, episodes: Episodes, *, horizon: int = 100, windows: int = WINDOWS, seed: int = SEED
) -> dict[str, Any]:
    """Under "ensemble" in what `koopax evaluate --json` prints, of the windows that errors are measured on.

    `members`, `disagreement` [horizon], the root mean square of the spread in units of the training data's deviation,
    and `rank_correlation`, Spearman's between a window's disagreement and its error; None where that is not defined.
    """
    found = [
        jax.device_get(_of_windows(ensemble, jax.tree.map(jnp.asarray, batch)))
        for batch in choose_windows(episodes, horizon, count=windows, seed=seed, models=[ensemble])
    ]
    spread, error = (np.concatenate(part, axis=1, dtype=np.float64) for part in zip(*found, strict=True))
    ranks = stats.rankdata([spread.mean(0), error.mean(0)], axis=1)
    ranked = float(np.corrcoef(ranks)[0, 1]) if spread.shape[1] > 2 else float("nan")
    return {
        "members": len(ensemble.members),
        "disagreement": [float(value) for value in np.sqrt(spread.mean(1))],
        "rank_correlation": ranked if np.isfinite(ranked) else None,
    }


@eqx.filter_jit
def _of_windows(ensemble: Ensemble, windows: Windows) -> tuple[Array, Array]:
    """Squared spread and error of every step and window, [time, batch], means over normalised columns."""
    predicted = predict_windows(ensemble, windows)
    assert predicted.spread is not None
    variance = ensemble.normaliser.state_std**2
    missed = (predicted.states - windows.states[1:]) ** 2
    return jnp.mean(predicted.spread**2 / variance, -1), jnp.mean(missed / variance, -1)
