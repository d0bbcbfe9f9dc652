"""Modes that grow: where the data asks for them, and how long windows may be where there are some.

A gradient through k steps is scaled by at most exp(k μ_max) (theorem 3.1), so windows have at most

    k = `koopax.training.choice.MOST_GAIN` / μ_max

steps: what a window's first step adds to the loss then counts at most e⁵ ≈ 150 times as much as its last.

Whether a system is unstable is asked of DMDc. A regression of a stable system may come out with |λ̄| > 1 as well, by
noise or because the system is nonlinear, such as about a limit cycle. So its free runs, over the steps in which its
fastest mode grows e³ ≈ 20 times, are compared with those of the same regression with |λ̄| held at 1: where growth makes
them better, the data asks for it.
"""

import math
import warnings
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError, KoopaxWarning
from koopax.data.episodes import Episodes
from koopax.evaluation.prediction import prediction_error
from koopax.models.config import ModelConfig
from koopax.models.dynamics import DynamicsModel
from koopax.models.koopman import KoopmanCore
from koopax.models.linear import LinearCore
from koopax.models.spectrum import MOST_GROWTH, MultiscaleSpectrum
from koopax.training.choice import MOST_GAIN, WINDOWS, growth_of, longest
from koopax.training.config import TrainConfig
from koopax.training.linear_start import can_start_linear, diagonal_form
from koopax.training.regression import dmdc_reference

# Rates of DMDc below this are taken for none: such a mode takes a thousand steps to grow e-fold.
LEAST_GROWTH = 1e-3
# The bound, in rates of DMDc's fastest mode: training may move it.
ROOM = 1.5
# The free runs that decide go on until the fastest mode has grown by exp of this.
COMPARED_GAIN = 3.0


def leaves_growth_open(model: DynamicsModel) -> bool:
    """Whether training may choose: the model begins at DMDc, and nobody said how far its modes may grow."""
    return (
        can_start_linear(model)
        and model.config.core_options.get("growth") is None
        and growth_of(model) == 0
        and not any(model.config.core_options.get(name) for name in ("bilinear", "adaptive"))
    )


def with_growth(model: DynamicsModel, growth: float) -> DynamicsModel:
    """The same model, whose modes may grow by up to that rate."""
    assert isinstance(model.core, KoopmanCore)
    assert isinstance(model.core.spectrum, MultiscaleSpectrum)
    spectrum = model.core.spectrum.with_growth(growth)
    options = dict(model.config.core_options) | {"growth": growth}
    grown = eqx.tree_at(lambda own: own.core.spectrum, model, spectrum)  # type: ignore[attr-defined]
    return grown.with_config(replace(model.config, core_options=options))


def asked_growth(train: Episodes) -> float:
    """The bound μ_max that training episodes ask for, 0 where they are explained as well without growth."""
    fitted = dmdc_reference(train)
    assert isinstance(fitted.core, LinearCore)
    matrix = np.asarray(fitted.core.matrix, np.float64)
    fastest = float(np.log(np.abs(np.linalg.eigvals(matrix[1:, 1:])).max() + 1e-30))
    held = _held(matrix)
    if fastest < LEAST_GROWTH or held is None:
        return 0.0
    steps = longest(train, math.ceil(COMPARED_GAIN / fastest))
    bounded = eqx.tree_at(lambda own: own.core.matrix, fitted, jnp.asarray(held, jnp.float32))  # type: ignore
    errors = [
        prediction_error(each, train, horizon=steps, windows=WINDOWS, reencode_every="never").state.normalised
        for each in (fitted, bounded)
    ]
    return min(MOST_GROWTH, round(ROOM * fastest, 4)) if errors[0] < errors[1] else 0.0


def _held(matrix: np.ndarray) -> np.ndarray | None:
    """DMDc's matrix with the eigenvalues of its states held at |λ̄| ≤ 1; None where it has no diagonal form."""
    states = matrix[1:, 1:]
    if diagonal_form(states, np.zeros((len(states), 1))) is None:
        return None
    values, vectors = np.linalg.eig(states)
    held = (vectors * (values / np.maximum(np.abs(values), 1.0))) @ np.linalg.inv(vectors)
    return np.block([[matrix[:1]], [matrix[1:, :1], np.real(held)]])


def choose_growth(
    model: DynamicsModel, train: Episodes, config: TrainConfig, begun: ModelConfig | None
) -> tuple[DynamicsModel, TrainConfig]:
    """The model with the growth that its data asks for, where nobody said, and settings with windows that suit it.

    Args:
        model: untrained.
        train: the training episodes.
        config: its settings.
        begun: of the model of a run that is resumed, whose growth stands.
    """
    chosen = leaves_growth_open(model)
    if chosen:
        asked = (begun.core_options.get("growth") or 0.0) if begun is not None else asked_growth(train)
        model = with_growth(model, asked) if asked > 0 else model
    growth = growth_of(model)
    if growth == 0 or config.horizon is None or growth * config.horizon <= MOST_GAIN:
        return model, config
    most = max(1, int(MOST_GAIN / growth))
    gain = f"over windows of {config.horizon} steps gradients could grow e^{growth * config.horizon:.2g} times"
    if not chosen:
        raise KoopaxError(f"growth is {growth:g}, so {gain}: use a horizon of {most} or less, or a smaller growth.")
    warnings.warn(
        f"the data is of an unstable system, so the model's modes may grow by {growth:g} a step and {gain}: windows "
        f"have {most} steps instead. Say growth=0 for a stable model.",
        KoopaxWarning,
        stacklevel=3,
    )
    return model, replace(config, horizon=most)
