"""What a Koopman model has learned about time, and how much each of its modes matters in data."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError
from koopax.data.episodes import Episodes
from koopax.data.windows import Windows
from koopax.evaluation.errors import choose_windows, predict_windows
from koopax.models.dynamics import DynamicsModel
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import LatentDynamics
from koopax.models.modes import SpectrumAnalysis, core_spectrum


def analyse_spectrum(model: DynamicsModel | LatentDynamics, episodes: Episodes | None = None) -> SpectrumAnalysis:
    """The spectrum of a model with a Koopman core. Warns where modes are aliased.

    With `episodes`, also how much each mode matters in them, see `mode_importance`.
    """
    found = core_spectrum(model.core if isinstance(model, DynamicsModel) else model)
    if episodes is None:
        return found
    if not isinstance(model, DynamicsModel):
        raise KoopaxError("the importance of modes is that in decoded states: pass a DynamicsModel, not its core.")
    return replace(found, importance=mode_importance(model, episodes))


def mode_importance(model: DynamicsModel, episodes: Episodes, *, horizon: int = 100, windows: int = 64) -> np.ndarray:
    """Each mode's share in the motion that the model predicts, of shape [modes], summing to 1.

    For mode j it is the mean of |J_j (x_j − x̄_j)|² over windows, halfway and at the end, where J_j are the two columns
    of the decoder's Jacobian (in normalised units) that belong to the mode and x̄_j is its mean.
    """
    horizon = min(horizon, int(episodes.lengths.max()))
    batches = choose_windows(episodes, horizon, count=windows, seed=0, batch_size=windows, models=(model,))
    batch = jax.tree.map(jnp.asarray, next(iter(batches)))

    assert isinstance(model.core, KoopmanCore)  # the caller has checked
    width = model.core.modes_size
    # Frames have more numbers than latents, and the Jacobians of many at once would not fit into memory.
    of_frames = model.config.image_shape is not None
    derivative, at_a_time = (jax.jacfwd, 1) if of_frames else (jax.jacrev, windows)

    @eqx.filter_jit
    def contributions(model: DynamicsModel, batch: Windows):
        latents = predict_windows(model, batch, return_latents=True).latents
        assert latents is not None
        latents = jnp.swapaxes(latents, 0, 1)
        moving = (latents - jnp.mean(latents, axis=(0, 1)))[..., :width]

        def of_last(latent, moved):  # [state, 2, modes] · [2, modes]
            # A decoder that also reads the reward has it as its last output, which is no motion.
            jacobian = derivative(model.decoder)(latent)[: model.config.state_size, :width].reshape(-1, 2, width // 2)
            return jnp.sum(jnp.einsum("srm,rm->sm", jacobian, moved.reshape(2, -1)) ** 2, axis=0)

        def over_windows(step: int):
            return jax.lax.map(lambda one: of_last(*one), (latents[:, step], moving[:, step]), batch_size=at_a_time)

        return jnp.mean(over_windows(horizon // 2) + over_windows(-1), axis=0)

    energy = np.asarray(contributions(model, batch), np.float64)
    return energy / energy.sum()
