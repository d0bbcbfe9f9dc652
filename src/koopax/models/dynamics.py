"""DynamicsModel: raw states and actions in, raw states and rewards out, whatever core moves the latents.

    x_t = g_θ(s_t)                      encoder, once per rollout, of s_{t−n+1} … s_t with a history of n
    x̂_{t+1} … x̂_{t+T} = core(x_t, a_t … a_{t+T−1})
    ŝ_{t+k} = d_ξ(x̂_{t+k}),  k = 1 … T  decoder
    r̂_{t+k} = r(x̂_{t+k}, a_{t+k}),  k = 0 … T−1, with x̂_t = x_t

or, without a reward head of its own, r̂_{t+k} is one more output of d_ξ(x̂_{t+k+1}): that latent has seen the same state
and action, and the decoder's hidden layer is computed anyway.

The networks see normalised values; the normaliser is part of the model and saved with it.
"""

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import KoopaxError
from koopax._types import Array, Float, PRNGKeyArray
from koopax.data.episodes import Episodes
from koopax.data.normalisation import Normaliser
from koopax.models.buckets import as_array, in_buckets, is_traced
from koopax.models.config import ModelConfig
from koopax.models.dictionaries import Dictionary
from koopax.models.encoding import Encoding, Numbers
from koopax.models.examples import as_states, check_known, check_rollout, check_shape, whole_history
from koopax.models.frames import FrameDecoder, FrameEncoder
from koopax.models.history import DelayedDictionary, HistoryEncoder, Past
from koopax.models.intervals import Calibration, rollout_with_band
from koopax.models.latent import LatentDynamics, Start, advance, check_options, core_class, latent_of
from koopax.models.linear import BilinearReward
from koopax.models.members import MemberDecoders
from koopax.models.networks import MLP, LinearPath
from koopax.models.parts import make_parts
from koopax.models.prediction import OneStep, Prediction
from koopax.models.presets import PRESETS, suited_preset
from koopax.models.returns import unroll
from koopax.models.stochastic import LatentNoise, make_noise

if TYPE_CHECKING:
    from koopax.models.modes import SpectrumAnalysis

# Steps between two returns to the encoder; None is what the model's configuration says.
Reencoding: TypeAlias = int | Literal["never"] | None


class DynamicsModel(Encoding):
    """Normaliser, encoder, latent core, decoder and reward head. Methods take one example: `jax.vmap` for batches."""

    normaliser: Normaliser
    encoder: MLP | LinearPath | Dictionary | HistoryEncoder | FrameEncoder
    core: LatentDynamics
    decoder: MLP | LinearPath | MemberDecoders | FrameDecoder
    reward_head: MLP | BilinearReward | None
    noise: LatentNoise | None
    calibration: Calibration | None
    config: ModelConfig = eqx.field(static=True)

    def __init__(self, config: ModelConfig, normaliser: Normaliser, *, key: PRNGKeyArray):
        """A model with fresh parameters; `DynamicsModel.create` is the convenient way."""
        self.normaliser = normaliser
        self.encoder, self.core, self.decoder, self.reward_head = make_parts(config, key=key)
        self.noise = make_noise(config, self.core, key=jax.random.fold_in(key, 1))
        self.calibration = None
        self.config = config

    @classmethod
    def create(cls, core: str, data: Episodes, *, key: PRNGKeyArray, **options: Any) -> "DynamicsModel":
        """A new model for `data`: sizes and normalisation are taken from it, so pass the training split.

        Args:
            core: "koopman", which is a small one for little data, "mlp", "gru", "transformer" or "dssm", or a
                regression, "dmdc" or "edmd"; it starts from that name's settings in `koopax.models.presets`, where
                "koopman-paper" is the published configuration.
            data: the training episodes.
            key: for the initial parameters.
            **options: what differs from the preset: `latent_size`, `encoder_hidden`, `decoder_hidden`,
                `reward_hidden`, `activation`, `history` (see `ModelConfig`), and options of the core, such as
                `spectrum="paper"`.
        """
        settings: dict[str, Any] = (
            suited_preset(core, data.num_steps, options, data.image_shape) if core in PRESETS else {"core": core}
        ) | options
        own = {f.name for f in fields(ModelConfig)} - {
            "core",
            "state_size",
            "action_size",
            "image_shape",
            "core_options",
        }
        kind = core_class(settings["core"])
        check_options(f"model {core!r}", kind, {n: v for n, v in options.items() if n not in own}, also=own)
        config = ModelConfig(
            core=settings.pop("core"),
            state_size=data.state_size,
            action_size=data.action_size,
            image_shape=data.image_shape,
            core_options={name: value for name, value in settings.items() if name not in own},
            **{name: value for name, value in settings.items() if name in own},
        )
        return cls(config, Normaliser.fit(data), key=key)

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return self.config.name

    # Raw units.

    def reward(self, latent: Float[Array, " latent"], action: Float[Array, " action"]) -> Float[Array, ""]:
        """The raw reward of taking a raw action in a latent."""
        action = self.normaliser.normalise_action(action)
        if self.reward_head is None:
            normalised = self.decoder(latent_of(self.core.step(latent, action)))[-1]
        else:
            normalised = self.reward_head(jnp.concatenate([latent, action]))[0]
        return self.normaliser.denormalise_reward(normalised)

    def rollout(
        self,
        state: Numbers,
        actions: Numbers,
        *,
        past_actions: Numbers | None = None,
        durations: Numbers | None = None,
        reencode_every: Reencoding = None,
        return_latents: bool = False,
        level: float | None = None,
    ) -> Prediction:
        """Predict the states and rewards that a sequence of actions leads to.

        Args:
            state: where it starts, `[state]`; with a history of n, `[n, state]`, oldest first and NaN where unknown.
            actions: one per step, `[time, action]`.
            past_actions: those taken just before the start, oldest first, where they are known; `[n − 1, action]` with
                a history of n. See `encode`.
            durations: `[time]`, length of each step in nominal steps, for irregular sampling; 1 by default.
            reencode_every: decode and encode again after so many steps, which pulls latents back to where the
                encoder puts states, or "never"; by default what the model's configuration says. Actions that a latent
                remembers are kept, as they are known.
            return_latents: also return the latents; the last one continues the rollout with `rollout_from`.
            level: such as 0.9, also to return intervals that hold what happens with that chance at every step, see
                `koopax.models.intervals`; as far ahead as the model was calibrated, which training does.
        """
        if level is not None:
            asked = {"state": state, "actions": actions, "past_actions": past_actions, "durations": durations}
            options = {"reencode_every": reencode_every, "return_latents": return_latents}
            return rollout_with_band(self, self.rollout, asked | options, level)
        # Lists become arrays before anything is compiled: a list's numbers would be constants of the program.
        others = (past_actions, actions, durations)
        given: list[Any] = [as_states(self.config, state), *(None if o is None else as_array(o) for o in others)]
        if is_traced(self, given):
            return self._rollout_states(*given, reencode_every, return_latents)
        check_rollout(self.config, *given)
        check_known(self.config, given[0], 0)
        given[0] = whole_history(self.config, given[0], 0)
        return in_buckets(DynamicsModel._predict, self, *given, reencode_every, return_latents)

    def rollouts(
        self,
        states: Numbers,
        actions: Numbers,
        *,
        past_actions: Numbers | None = None,
        durations: Numbers | None = None,
        reencode_every: Reencoding = None,
        return_latents: bool = False,
        level: float | None = None,
    ) -> Prediction:
        """As `rollout`, of a batch: states `[batch, state]`, actions `[batch, time, action]`, and so on.

        Batches and horizons of any size go through a bounded number of compiled programs (see
        `koopax.models.buckets`); `jax.vmap(model.rollout)` compiles one for each.
        """
        if level is not None:
            asked = {"states": states, "actions": actions, "past_actions": past_actions, "durations": durations}
            options = {"reencode_every": reencode_every, "return_latents": return_latents}
            return rollout_with_band(self, self.rollouts, asked | options, level)
        others = (past_actions, actions, durations)
        given: list[Any] = [as_states(self.config, states), *(None if o is None else as_array(o) for o in others)]
        sizes = {each.shape[:1] for each in given if each is not None}
        if len(sizes) > 1 or (0,) in sizes or () in sizes:
            raise KoopaxError(f"a batch of rollouts has first axes of {sorted(sizes)}: give one of each per rollout.")
        check_rollout(self.config, *(None if o is None else jax.ShapeDtypeStruct(o.shape[1:], o.dtype) for o in given))
        if is_traced(self, given):
            return _predict_batch(self, *given, reencode_every, return_latents)
        check_known(self.config, given[0], 1)
        given[0] = whole_history(self.config, given[0], 1)
        return in_buckets(_predict_batch, self, *given, reencode_every, return_latents)

    def step(
        self,
        state: Numbers,
        action: Numbers,
        *,
        past_actions: Numbers | None = None,
        duration: float | Array | None = None,
    ) -> OneStep:
        """Predict the state and the reward that one action leads to, in raw units: `rollout` of a single step."""
        durations = None if duration is None else jnp.asarray(duration, float)[None]
        found = self.rollout(state, jnp.asarray(action)[None], past_actions=past_actions, durations=durations)
        return OneStep(found.states[0], found.rewards[0])

    @eqx.filter_jit
    def rollout_from(
        self,
        latent: Start,
        actions: Float[Array, "time action"],
        *,
        durations: Float[Array, " time"] | None = None,
        reencode_every: Reencoding = None,
        return_latents: bool = False,
    ) -> Prediction:
        """As `rollout`, from where an earlier one ended: its last latent, or what `advance` returned.

        The Transformer and the DSSM remember more than their latent, so only `advance` continues their rollouts. A
        model with a history begins a new one, of which it knows what it predicts.
        """
        check_shape("latent", latent_of(latent), (self.core.latent_size,))
        check_shape("actions", actions, (None, self.config.action_size))
        if durations is not None:
            check_shape("durations", durations, (actions.shape[0],))
        return self._predict_from(latent, None, actions, durations, reencode_every, return_latents)

    def _predict_from(
        self,
        latent: Start,
        past: Past | None,
        actions: Array,
        durations: Array | None,
        reencode_every: Reencoding,
        return_latents: bool,
    ) -> Prediction:
        normalised = self.normaliser.normalise_action(actions)
        before, latents = self.unroll(latent, normalised, durations, reencode_every=reencode_every, past=past)
        states, rewards = jax.vmap(self.read)(before, latents, normalised)
        return Prediction(
            self.normaliser.denormalise_state(states),
            self.normaliser.denormalise_reward(rewards),
            latents if return_latents else None,
        )

    @eqx.filter_jit
    def advance(
        self,
        start: Start,
        actions: Float[Array, "time action"],
        durations: Float[Array, " time"] | None = None,
    ) -> Start:
        """Where raw actions lead from a latent: a start for `rollout_from` that any core can continue from."""
        return advance(self.core, start, self.normaliser.normalise_action(actions), durations)

    # Normalised units, for losses.

    def unroll(
        self,
        start: Start,
        actions: Float[Array, "time action"],
        durations: Float[Array, " time"] | None = None,
        *,
        reencode_every: Reencoding = None,
        past: Past | None = None,
    ) -> tuple[Float[Array, "time latent"], Float[Array, "time latent"]]:
        """The latents before and after each of the normalised actions, with returns to the encoder on the way.

        `past` is what the start was encoded from, of which a return to the encoder sees the rest.
        """
        past = self.known_past(latent_of(start)) if past is None else past
        return unroll(self, start, past, actions, durations, self.steps_between_returns(reencode_every))

    def steps_between_returns(self, reencode_every: Reencoding = None) -> int | None:
        """After how many steps a rollout that is asked for like this returns to the encoder; None for never."""
        every = self.config.reencode_every if reencode_every is None else reencode_every
        if every is None or every == "never":
            return None
        if not isinstance(every, int) or every < 1:
            raise KoopaxError(f"reencode_every is {every!r}: use 1 or more steps, or 'never'.")
        return every

    def with_reencoding(self, every: int | None) -> "DynamicsModel":
        """The same model, returning to its encoder after so many steps; None for never."""
        if self.noise is not None and every is not None:
            raise KoopaxError(f"reencode_every is {every}, but a stochastic model never returns: leave it out.")
        return self.with_config(replace(self.config, reencode_every=every))

    def with_config(self, config: ModelConfig) -> "DynamicsModel":
        """The same arrays under another configuration, which has to describe them as well."""
        other = object.__new__(type(self))  # the same arrays: nothing is initialised again
        for part in fields(self):
            object.__setattr__(other, part.name, getattr(self, part.name))
        if config != self.config:
            object.__setattr__(other, "calibration", None)  # its errors are others
        object.__setattr__(other, "config", config)
        return other

    def with_calibration(self, calibration: Calibration | None) -> "DynamicsModel":
        """The same model with these intervals, or with none; `koopax.calibrate` finds them."""
        return eqx.tree_at(lambda own: own.calibration, self, calibration, is_leaf=lambda part: part is None)

    def read(
        self, before: Float[Array, " latent"] | None, after: Float[Array, " latent"], action: Float[Array, " action"]
    ) -> tuple[Float[Array, " state"], Float[Array, ""]]:
        """The normalised state and reward that a step led to: ŝ_{t+k+1} and r̂_{t+k} of x̂_{t+k}, x̂_{t+k+1}, a_{t+k}.

        Only a reward head looks at the latent before, which is None for a model without one.
        """
        decoded = self.decoder(after)
        if self.reward_head is None:
            return decoded[:-1], decoded[-1]
        assert before is not None
        return decoded, self.reward_head(jnp.concatenate([before, action]))[0]

    def read_each(
        self, before: Float[Array, " latent"] | None, after: Float[Array, " latent"], action: Float[Array, " action"]
    ) -> tuple[Float[Array, "member state"], Float[Array, " member"]]:
        """As `read`, of every member: what each is trained to predict by itself."""
        each = self.decoder.each(after) if isinstance(self.decoder, MemberDecoders) else self.decoder(after)[None]
        if self.reward_head is None:
            return each[:, :-1], each[:, -1]
        assert before is not None
        reward = self.reward_head(jnp.concatenate([before, action]))[0]
        return each, jnp.broadcast_to(reward, len(each))

    def trainable(self) -> "DynamicsModel":
        """A model-shaped tree that is True at parameters; normaliser, dictionaries and intervals are never trained."""
        spec = jax.tree.map(eqx.is_inexact_array, self)
        given = isinstance(self.encoder, Dictionary | DelayedDictionary)
        fixed = [self.normaliser, *([self.encoder] if given else [])]
        frozen = [jax.tree.map(lambda _: False, part) for part in fixed]
        spec = eqx.tree_at(lambda model: [model.normaliser, model.encoder][: len(frozen)], spec, frozen)
        return spec.with_calibration(jax.tree.map(lambda _: False, self.calibration))

    def spectrum(self) -> "SpectrumAnalysis":
        """The modes of a Koopman core: eigenvalues, half-lives, periods. `koopax.analyse_spectrum` also weighs them."""
        from koopax.models.modes import core_spectrum

        return core_spectrum(self.core)

    def num_parameters(self) -> int:
        """How many numbers are trained."""
        return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(self, self.trainable())))

    def save(self, path: str | Path) -> None:
        """Write the model to one file; read it with `koopax.load_model`."""
        from koopax.models.files import save_model

        save_model(self, path)

    @eqx.filter_jit
    def _rollout_states(self, *given: Any) -> Prediction:
        return self._predict(*given)

    def _predict(
        self,
        state: Array,
        past_actions: Array | None,
        actions: Array,
        durations: Array | None,
        reencode_every: Reencoding,
        return_latents: bool,
    ) -> Prediction:
        check_rollout(self.config, state, past_actions, actions, durations)
        past = self.past_of(state, past_actions)
        return self._predict_from(self.encode_past(past), past, actions, durations, reencode_every, return_latents)


def _predict_batch(
    model: DynamicsModel,
    states: Array,
    past_actions: Array | None,
    actions: Array,
    durations: Array | None,
    *options: Any,
) -> Prediction:
    def one(state: Array, past: Array | None, own: Array, lengths: Array | None) -> Prediction:
        return model._predict(state, past, own, lengths, *options)

    return jax.vmap(one)(states, past_actions, actions, durations)
