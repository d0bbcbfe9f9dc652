"""Streaming estimation: observations and actions as they come, and at any time the latent, the state, or a prediction.

For a Koopman core it is a Kalman filter in the latent space. The modes z of the latent move linearly, and what the
encoder says of an observation is a measurement of them:

    z_{t+1} = Λ̄ z_t + L̄ u_t + w_t,   w ~ N(0, Q)        the core, and what it does not know
    g_θ(s_t) = z_t + v_t,             v ~ N(0, R)        the encoder, and the noise of the sensors

so that, with P the covariance of z,

    predict   z⁻ = Λ̄ z + L̄ u,        P⁻ = Λ̄ P Λ̄ᴴ + Q
    correct   K = P⁻ (P⁻ + R)⁻¹,      z = z⁻ + K (g_θ(s) − z⁻),   P = (1 − K) P⁻.

No linearisation is made anywhere: Λ̄ is constant and diagonal. With diagonal Q and R, which is what is fitted, P stays
diagonal, every mode is filtered on its own, and a step costs no more than a step of the core. Full matrices are taken
as well, for systems whose noise is known. An observation that is missing is not corrected for; of one with gaps, the
gaps are filled in from the prediction. Actions that the latent remembers and the context are not filtered.

A model is trained to decode what it predicts, not what it has just encoded, so that d(g(s)) misses s by a little. What
is observed is known better than that: where there is an observation, the filtered state is

    d(z) + κ (s − d(g_θ(s))),         κ = σ²⁻ / (σ²⁻ + σ²_R)

in every column, with σ²⁻ and σ²_R what P⁻ and R are behind the decoder; without noise it is the observation itself.

Any other core has no such filter: it encodes every observation that it is given, and predicts where one is missing.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError
from koopax._types import Array, Float
from koopax.evaluation.filter_noise import FilterNoise, check_noise, mode_width, trusting
from koopax.models.dynamics import DynamicsModel
from koopax.models.encoding import Numbers
from koopax.models.history import Past
from koopax.models.koopman import KoopmanCore
from koopax.models.latent import Start, begin, latent_of
from koopax.models.networks import MLP, LinearPath
from koopax.models.prediction import Prediction
from koopax.models.spectrum import discretise
from koopax.models.stochastic import carried_variance


class Estimate(NamedTuple):
    """What is known at one time: a pytree, so it can be scanned, kept and gone on from."""

    start: Start
    """The filtered latent, or the memory of a core that remembers more."""
    covariance: Float[Array, "..."]
    """P of the modes, variances or a matrix; nothing for a core that is not filtered."""
    past: Past
    """What the encoder saw last, of a model with a history."""
    missed: Float[Array, " state"]
    """What the decoder misses of the observation of this time, as far as that is believed; normalised."""


@eqx.filter_jit
def correct(model: DynamicsModel, noise: FilterNoise | None, now: Estimate, state: Float[Array, " state"]) -> Estimate:
    """The estimate with an observation of that time, normalised and NaN where it has gaps."""
    expected = model.decoder(latent_of(now.start))[: model.config.state_size]
    missing = jnp.isnan(state).all()
    filled = jnp.where(jnp.isnan(state), expected, state)
    past = now.past._replace(states=now.past.states.at[-1].set(filled))
    seen, believed = model.encode_past(past), latent_of(now.start)
    missed = filled - model.decoder(seen)[: model.config.state_size]
    if noise is None:
        corrected, covariance = begin(model.core, seen), now.covariance
    else:
        width = mode_width(model)
        missed = missed * _believed(model, believed, now.covariance, noise.observation)
        gain, covariance = _gain(now.covariance, noise.observation)
        moved = _apply(gain, (seen - believed)[:width])
        # What is not a mode is not filtered. In the place of past actions a prediction has them as they were, and an
        # encoder without a history what it has learned to say there, which goes with its own modes: each counts as much
        # as its modes do, and so does a pilot. The context is what the encoder says now.
        share = jnp.mean(gain if gain.ndim == 1 else jnp.diag(gain))
        held = slice(width, model.core.predicted_size)
        corrected = seen.at[:width].set(believed[:width] + moved)
        corrected = corrected.at[held].set(believed[held] + share * (seen - believed)[held])
    unseen = now.past._replace(states=now.past.states.at[-1].set(jnp.nan))
    keep = (now.start, now.covariance, unseen, jnp.zeros_like(missed))
    made = (corrected, covariance, past, missed)
    return Estimate(*jax.tree.map(lambda old, new: jnp.where(missing, old, new), keep, made))


@eqx.filter_jit
def predict(
    model: DynamicsModel,
    noise: FilterNoise | None,
    now: Estimate,
    action: Float[Array, " action"],
    duration: Float[Array, ""] | None = None,
) -> Estimate:
    """The estimate one step later, before anything is observed there; the action is normalised."""
    start = model.core.step(now.start, action, duration)
    gap = jnp.full((1, model.config.state_size), jnp.nan)
    past = now.past.then(gap, action[None])
    if noise is None:
        return Estimate(start, now.covariance, past, jnp.zeros_like(now.missed))
    moved = _moved(model, now.covariance, duration)
    return Estimate(start, moved + noise.process, past, jnp.zeros_like(now.missed))


@eqx.filter_jit
def first_estimate(model: DynamicsModel, noise: FilterNoise | None, state: Float[Array, " state"]) -> Estimate:
    """The estimate at an episode's first observation, normalised: what the encoder says, as sure as it is."""
    raw = model.normaliser.denormalise_state(state)
    past = model.past_of(raw, jnp.full((_remembered(model), model.config.action_size), jnp.nan))
    covariance = jnp.zeros(()) if noise is None else noise.observation
    seen = model.encode_past(past)
    return Estimate(begin(model.core, seen), covariance, past, state - model.decoder(seen)[: model.config.state_size])


@eqx.filter_jit
def filter_episode(
    model: DynamicsModel,
    noise: FilterNoise | None,
    states: Float[Array, "points state"],
    actions: Float[Array, "time action"],
) -> tuple[Float[Array, "points state"], Float[Array, "points latent"], Float[Array, "time latent"]]:
    """A whole episode at once, in raw units: filtered states and latents, and the latents predicted before correction.

    Equal to feeding an `Estimator` step by step.
    """
    observed, taken = model.normaliser.normalise_state(states), model.normaliser.normalise_action(actions)
    begun = first_estimate(model, noise, observed[0])

    def step(now: Estimate, inputs: tuple[Array, Array]) -> tuple[Estimate, tuple[Array, Array, Array]]:
        state, action = inputs
        before = predict(model, noise, now, action)
        after = correct(model, noise, before, state)
        return after, (state_of(model, after), latent_of(after.start), latent_of(before.start))

    _, (filtered, latents, predicted) = jax.lax.scan(step, begun, (observed[1:], taken))
    latents = jnp.concatenate([latent_of(begun.start)[None], latents])
    return jnp.concatenate([state_of(model, begun)[None], filtered]), latents, predicted


@eqx.filter_jit
def state_of(model: DynamicsModel, now: Estimate) -> Float[Array, " state"]:
    """The filtered state of an estimate, in raw units."""
    decoded = model.decoder(latent_of(now.start))[: model.config.state_size]
    return model.normaliser.denormalise_state(decoded + now.missed)


class Estimator:
    """Filters one stream of observations and actions.

    estimator = koopax.Estimator(model, noise)
    estimator.observe(state)                 # NaN, or None, where it is missing
    estimator.act(action)
    estimator.observe(next_state)
    estimator.state                          # filtered
    estimator.predict(actions).states        # from here on
    """

    def __init__(self, model: DynamicsModel, noise: FilterNoise | None = None):
        """Nothing is observed yet.

        Args:
            model: a trained model.
            noise: of `koopax.fit_noise`, on the episodes that the model was trained on. Without it every observation
                is believed as it is: the filter of sensors without noise.
        """
        if noise is None and isinstance(model.core, KoopmanCore):
            noise = trusting(model)
        if noise is not None:
            check_noise(model, noise)
        self.model, self.noise = model, noise
        self._now: Estimate | None = None
        self._observed = False

    def reset(self) -> None:
        """Forget everything: a new episode begins."""
        self._now, self._observed = None, False

    def observe(self, state: Numbers | None) -> "Estimator":
        """Take in the observation of this time, `[state]`; NaN where it has gaps, None where there is none."""
        size = self.model.config.state_size
        raw = np.full(size, np.nan, np.float32) if state is None else np.asarray(state, np.float32)
        if raw.shape != (size,):
            raise KoopaxError(f"the observation has shape {raw.shape}, but this model takes ({size},): pass one state.")
        if self._now is None and not np.isfinite(raw).all():
            raise KoopaxError(
                "the first observation has gaps (NaN): begin with a whole one, later ones may have gaps or be missing."
            )
        if self._observed:
            raise KoopaxError("two observations came without an action between them: call act after each observation.")
        normalised = self.model.normaliser.normalise_state(jnp.asarray(raw))
        if self._now is None:
            self._now = first_estimate(self.model, self.noise, normalised)
        else:
            self._now = correct(self.model, self.noise, self._now, normalised)
        self._observed = True
        return self

    def act(self, action: Numbers | None = None, duration: float | None = None) -> "Estimator":
        """Take in the action that leads to the next time, `[action]`; none for a system that nobody acts on."""
        size = self.model.config.action_size
        raw = np.zeros(0, np.float32) if action is None and size == 0 else np.asarray(action, np.float32)
        if raw.shape != (size,) or not np.isfinite(raw).all():
            raise KoopaxError(f"the action is {action!r}, but this model takes {size} finite numbers: pass them.")
        taken = self.model.normaliser.normalise_action(jnp.asarray(raw))
        elapsed = None if duration is None else jnp.asarray(duration, float)
        self._now = predict(self.model, self.noise, self._known(), taken, elapsed)
        self._observed = False
        return self

    @property
    def latent(self) -> Float[Array, " latent"]:
        """The filtered latent."""
        return latent_of(self._known().start)

    @property
    def state(self) -> Float[Array, " state"]:
        """The filtered state, in raw units."""
        return state_of(self.model, self._known())

    @property
    def covariance(self) -> Float[Array, "..."]:
        """P of the latent's modes: a variance for each, or a matrix where the noise has matrices."""
        if self.noise is None:
            raise KoopaxError(f"{self.model.config.core!r} is not filtered, so it has no covariance: use koopman.")
        return self._known().covariance

    def predict(self, actions: Numbers, durations: Numbers | None = None) -> Prediction:
        """What follows from here under actions `[time, action]`, in raw units."""
        elapsed = None if durations is None else jnp.asarray(durations)
        return self.model.rollout_from(self._known().start, jnp.asarray(actions, float), durations=elapsed)

    def _known(self) -> Estimate:
        if self._now is None:
            raise KoopaxError("nothing was observed yet: call observe with a first observation.")
        return self._now


def _remembered(model: DynamicsModel) -> int:
    return max(model.core.remembered_actions, model.past_steps)


def _gain(covariance: Array, observation: Array) -> tuple[Array, Array]:
    """K and the covariance after a correction; K is 1 where nothing is uncertain and nothing noisy."""
    total = covariance + observation
    if covariance.ndim == 1:
        gain = jnp.where(total > 0, covariance / jnp.where(total > 0, total, 1.0), 1.0)
        return gain, (1 - gain) * covariance
    gain = jnp.linalg.solve(total, covariance).T
    after = covariance - gain @ covariance
    return gain, (after + after.T) / 2


def _believed(model: DynamicsModel, latent: Array, covariance: Array, observation: Array) -> Array:
    """κ of every column of the state."""
    of_state, decoder = slice(model.config.state_size), model.decoder
    if not isinstance(decoder, MLP | LinearPath):  # of frames, whose variances nobody carries
        return jnp.ones(model.config.state_size)

    def behind_the_decoder(noise: Array) -> Array:
        modes = jnp.tile(noise, 2) if noise.ndim == 1 else jnp.diag(noise)
        variance = jnp.zeros_like(latent).at[: modes.size].set(modes)  # actions and context are known
        return carried_variance(decoder, latent, variance)[of_state]

    gain, _ = _gain(behind_the_decoder(covariance), behind_the_decoder(observation))
    return gain


def _apply(gain: Array, innovation: Array) -> Array:
    return jnp.tile(gain, 2) * innovation if gain.ndim == 1 else gain @ innovation


def _moved(model: DynamicsModel, covariance: Array, duration: Array | None) -> Array:
    """Λ̄ P Λ̄ᴴ: |λ̄|² P of variances, and with [[Re λ̄, −Im λ̄], [Im λ̄, Re λ̄]] of a matrix."""
    assert isinstance(model.core, KoopmanCore)
    durations = None if duration is None else jnp.asarray(duration)[None]
    real, imag = (jnp.ravel(part) for part in discretise(model.core.spectrum, durations).transition)
    if covariance.ndim == 1:
        return (real**2 + imag**2) * covariance
    turn = jnp.block([[jnp.diag(real), -jnp.diag(imag)], [jnp.diag(imag), jnp.diag(real)]])
    return turn @ covariance @ turn.T
