"""The diagonal Koopman core: linear latent dynamics with control, unrolled over every step at once.

    u_t = f_φ(a_{t−h+1}, …, a_t, y_t)        the action encoder, a small MLP onto ℂˡ; h = 1 and no pilot y in the paper
    x_{t+1} = Λ̄ x_t + L̄ u_t                  Λ̄ = exp(Λ Δt),  L̄ = Λ⁻¹ (Λ̄ − 1) L

Λ is diagonal, so the unrolled dynamics is a recurrence in each mode (`koopax.models.recurrence`). No network is
applied in sequence: every action is encoded at once, and gradients through k steps are scaled by exactly
exp(k Δt μ_j) in mode j (theorem 3.1).

What an action does depends on the state, which a linear system can't express. Three things tell much of it and are
known beforehand, so that the core stays Markovian in its latent and parallel in time when the latent holds them as
well: with h > 1 the last h − 1 actions, as delay coordinates; a pilot, a thin linear system that runs ahead
(`koopax.models.pilot`); and with a context what the encoder says of the start, as coordinates that stand still. A
context serves plans of some steps that begin at an observed state; it grows stale.

Two more go beyond a linear input, K(u) of section 2 of the paper, and remain diagonal and parallel in time:

    λ_t = μ · exp(tanh(W e_t)) + i (ω + 0.3 tanh(W′ e_t) / Δt)

where e_t is the embedded action (`bilinear`: eigenvalues that depend on the action), the context (`adaptive`: those
of where a segment starts), or both. μ keeps its sign and is scaled by 1/e to e, so that theorem 3.1 holds with bounds:
a gradient through k steps is scaled by Π|λ̄_t| in each mode, between exp(k Δt e μ) and exp(k Δt μ / e).
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp

from koopax._errors import KoopaxError
from koopax._types import Array, Float, Int, PRNGKeyArray
from koopax.models.latent import CandidateStart, LatentDynamics, steps_every
from koopax.models.members import MemberActionEncoders, dealt, is_affine
from koopax.models.networks import MLP, Linear, LinearPath, over_rows
from koopax.models.pilot import Pilot
from koopax.models.pushes import halves, push, push_many, pushing
from koopax.models.recurrence import Method, Pair, linear_recurrence, multiply, powers
from koopax.models.spectrum import Discrete, Modulation, Spectrum, discretise, make_spectrum

# How far an action or a start may turn a mode besides its own frequency, in radians per step.
PHASE_REACH = 0.3


class KoopmanCore(LatentDynamics):
    """x_{t+1} = Λ̄ x_t + L̄ u_t with diagonal Λ̄.

    A latent holds the modes' real parts, then the imaginary ones, then the actions it remembers, oldest first, then
    the pilot and the context.
    """

    action_encoder: MLP | LinearPath | MemberActionEncoders
    modulator: Linear | None
    pilot: Pilot | None
    input_real: Float[Array, "modes embedding"]
    input_imag: Float[Array, "modes embedding"]
    spectrum: Spectrum
    modes_size: int = eqx.field(static=True)
    latent_size: int = eqx.field(static=True)
    action_size: int = eqx.field(static=True)
    action_history: int = eqx.field(static=True)
    context_size: int = eqx.field(static=True)
    members: int = eqx.field(static=True)
    bilinear: bool = eqx.field(static=True)
    adaptive: bool = eqx.field(static=True)
    recurrence: Method = eqx.field(static=True)

    def __init__(
        self,
        latent_size: int,
        action_size: int,
        *,
        spectrum: str = "multiscale",
        spectrum_options: dict | None = None,
        growth: float | None = None,
        action_embedding: int = 64,
        action_hidden: tuple[int, ...] = (128,),
        action_history: int = 1,
        pilot_modes: int = 0,
        context_size: int = 0,
        members: int = 1,
        linear_path: bool = False,
        bilinear: bool = False,
        adaptive: bool = False,
        input_std: float | None = None,
        recurrence: Method = "auto",
        key: PRNGKeyArray,
    ):
        """Build the core.

        Args:
            latent_size: twice the number of modes; the latent is wider by the actions that it remembers, the pilot and
                the context.
            action_size: components of an action.
            spectrum: by name, see `koopax.models.spectrum`.
            spectrum_options: keyword arguments of that spectrum.
            growth: the rate per step up to which modes may grow, for unstable systems; None is 0, until training finds
                that the data asks for more (see `koopax.training.growth`).
            action_embedding: complex numbers that an action is encoded into (l), by every member.
            action_hidden: widths of the action encoder's hidden layers.
            action_history: how many of the latest actions the action encoder sees (h).
            pilot_modes: modes of a pilot, which the action encoder sees besides; 0 for none.
            context_size: how many numbers about the start the action encoder sees besides.
            members: groups of modes that know nothing of each other, each with an action encoder and a share of the
                pilot, see `koopax.models.members`; eigenvalues that are bilinear see the actions of all.
            linear_path: whether actions also enter linearly, beside the action encoder's network.
            bilinear: whether eigenvalues depend on the action.
            adaptive: whether eigenvalues depend on the context.
            input_std: standard deviation of L's real and imaginary entries at the start; by default 1/√(2 l), which
                hands on the variance of the embedding. The paper's listing uses 0.1.
            recurrence: how to unroll, see `koopax.models.recurrence`.
            key: for the initial parameters.
        """
        if latent_size < 2 or latent_size % 2:
            raise KoopaxError(
                f"latent_size {latent_size} can't hold complex modes: use an even number of 2 or more, such as 512."
            )
        if action_embedding < 1:
            raise KoopaxError(f"action_embedding is {action_embedding}: use 1 or more complex numbers.")
        if action_history < 1:
            raise KoopaxError(f"action_history is {action_history}: use 1 for the present action alone, or more.")
        if pilot_modes < 0:
            raise KoopaxError(f"pilot_modes is {pilot_modes}: use 0 for none, or more.")
        if members < 1 or latent_size % (2 * members) or pilot_modes % members:
            raise KoopaxError(
                f"members is {members}: use 1 or more, and as many modes ({latent_size // 2}) and pilot modes "
                f"({pilot_modes}) for each."
            )
        if context_size < 0:
            raise KoopaxError(f"context_size is {context_size}: use 0 for none, or more.")
        if adaptive and context_size == 0:
            raise KoopaxError(
                "adaptive eigenvalues depend on a context, and there is none: use a context_size above 0."
            )
        if growth and (bilinear or adaptive):
            raise KoopaxError(
                f"growth is {growth}, but eigenvalues that are bilinear or adaptive are only bounded where they decay: "
                "leave one of them out."
            )
        modes = latent_size // 2
        actions_seen = action_history * action_size
        seen = actions_seen + 2 * pilot_modes + context_size
        encoder_key, real_key, imag_key, spectrum_key = jax.random.split(key, 4)
        network = LinearPath if linear_path else MLP
        sizes = (seen, *action_hidden, 2 * action_embedding)
        if members == 1:
            self.action_encoder = network(sizes, key=encoder_key)
        else:
            widths = {"actions_seen": actions_seen, "pilot_size": 2 * pilot_modes}
            self.action_encoder = MemberActionEncoders(network, members, sizes, **widths, key=encoder_key)
        std = (2 * action_embedding) ** -0.5 if input_std is None else input_std
        self.input_real = std * jax.random.normal(real_key, (modes, action_embedding))
        self.input_imag = std * jax.random.normal(imag_key, (modes, action_embedding))
        options = dict(spectrum_options or {}) | ({"growth": growth} if growth else {})
        self.spectrum = dealt(make_spectrum(spectrum, modes, key=spectrum_key, **options), modes, members)
        told = bilinear * members * 2 * action_embedding + adaptive * context_size
        # Begun at zero: eigenvalues are the spectrum's own until something is learned of them.
        flat = jax.tree.map(jnp.zeros_like, Linear(told, 2 * modes, use_bias=False, key=key)) if told else None
        self.modulator = flat
        pilot_key = jax.random.fold_in(key, 1)  # a core without one begins as it did before there were any
        self.pilot = Pilot(pilot_modes, actions_seen, members=members, key=pilot_key) if pilot_modes else None
        self.modes_size = latent_size
        self.latent_size = latent_size + seen - action_size
        self.action_size = action_size
        self.action_history = action_history
        self.context_size = context_size
        self.members = members
        self.bilinear = bilinear
        self.adaptive = adaptive
        self.recurrence = recurrence

    def rollout(
        self,
        latent: Float[Array, " latent"],
        actions: Float[Array, "time action"],
        durations: Float[Array, " time"] | None = None,
    ) -> Float[Array, "time latent"]:
        """x_1 … x_T, every step at once."""
        seen, remembered = self.delays(latent, actions, durations)
        embedded = jax.vmap(self.action_encoder)(seen)
        discrete = discretise(self.spectrum, durations, self.modulation(embedded, latent))
        real, imag = linear_recurrence(
            discrete.transition, self.inputs(embedded, discrete), self.halves(latent), method=self.recurrence
        )
        return jnp.concatenate([real, imag, remembered], axis=-1)

    def rollout_every(
        self,
        latents: Float[Array, "batch latent"],
        actions: Float[Array, "time batch action"],
        durations: Float[Array, "time batch"] | None = None,
        *,
        stride: int,
        first: Int[Array, ""],
        remat_steps: int | None = None,
    ) -> Float[Array, "steps batch latent"]:
        """Every n-th latent, without those in between: n steps of a diagonal system are one step of another,

            x_{k+n} = λ̄ⁿ x_k + [λ̄ⁿ⁻¹ L̄, …, λ̄ L̄, L̄] [u_k; …; u_{k+n−1}].

        The actions of n steps enter by one matrix product, and only every n-th latent is ever written to memory, which
        leaves nothing for `remat_steps` to save.
        """
        if durations is not None or stride == 1 or self.modulator is not None:
            return super().rollout_every(
                latents, actions, durations, stride=stride, first=first, remat_steps=remat_steps
            )
        horizon = actions.shape[0]
        steps = -(-horizon // stride)
        discrete = discretise(self.spectrum)
        power = powers(discrete.transition, stride)

        # Batch-major, where the inputs of n steps lie side by side. What is before the start does nothing: the first
        # latent has seen first + 1 actions, so the actions are shifted by the missing ones.
        seen, remembered = jax.vmap(self.delays)(latents, jnp.swapaxes(actions, 0, 1))
        embedded = jax.vmap(jax.vmap(self.action_encoder))(seen)
        padded = jnp.pad(embedded, ((0, 0), (stride, steps * stride - horizon), (0, 0)))
        shifted = jax.lax.dynamic_slice_in_dim(padded, first + 1, steps * stride, axis=1)
        pushed = push_many(shifted, self._inputs(discrete), power, members=self.members)
        real, imag = halves(jnp.swapaxes(pushed, 0, 1))

        begun = multiply((power[0][first], power[1][first]), self.halves(latents))
        inputs = real.at[0].add(begun[0]), imag.at[0].add(begun[1])
        rest = jnp.zeros_like(begun[0])
        rolled = jax.vmap(partial(linear_recurrence, method=self.recurrence), in_axes=(None, 1, 0), out_axes=1)(
            (power[0][-1], power[1][-1]), inputs, (rest, rest)
        )
        remembered = jnp.swapaxes(remembered[:, steps_every(horizon, stride, first)], 0, 1)
        return jnp.concatenate([*rolled, remembered], axis=-1)

    def start_candidates(self, latent: Float[Array, " latent"], horizon: int) -> CandidateStart:
        """x_0, and shared its free response λ̄ᵏ x_0 for k = 0 … H, `[horizon+1, latent]`."""
        if self.modulator is not None:
            return super().start_candidates(latent, horizon)
        moved = multiply(powers(discretise(self.spectrum).transition, horizon), self.halves(latent))
        # What a latent holds of actions, and of a pilot that they push, is the candidates' own from the first step on.
        no_actions = jnp.zeros((horizon, self.latent_size - self.modes_size), latent.dtype)
        free = jnp.concatenate([latent[None], jnp.concatenate([*moved, no_actions], axis=-1)])
        return CandidateStart(latent, free)

    def rollout_candidates(
        self, start: CandidateStart, actions: Float[Array, "time candidate action"]
    ) -> Float[Array, "time+1 candidate latent"]:
        """x_0 … x_T of every candidate, which differ only by what their actions add to one free response:

            x_k = λ̄ᵏ x_0 + Σ_{l=1}^{k} λ̄^{k−l} c_{l−1},     k = 0 … T.

        All actions are encoded in one product, and one pass over the steps adds them up and writes every latent once,
        which is where the time goes.
        """
        if self.modulator is not None:
            return super().rollout_candidates(start, actions)
        steps, candidates, _ = actions.shape
        discrete = discretise(self.spectrum)
        seen, remembered = jax.vmap(self.delays, in_axes=(None, 1), out_axes=1)(start.latent, actions)
        # The context is the same for all of them, so it enters once.
        actions_seen, context = jnp.split(seen, [seen.shape[-1] - self.context_size], axis=-1)
        encoder, inputs = self.action_encoder.given(context[0, 0]), self._inputs(discrete)
        joined = pushing(encoder, inputs) if isinstance(encoder, MLP) else None
        embedded = over_rows(encoder if joined is None else joined, actions_seen)

        def step(driven: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            action, free = now
            moved = jnp.concatenate(multiply(discrete.transition, self.halves(driven)), axis=-1)
            pushed = push(action, inputs, members=self.members) if joined is None else action
            return moved + pushed, driven + free

        # Row k adds action k after it is written, so that x_0 is a row like the others; the last one adds nothing.
        at_rest = jnp.zeros((candidates, self.modes_size), embedded.dtype)
        free, known = jnp.split(start.shared[: steps + 1], [self.modes_size], axis=-1)
        modes = jax.lax.scan(step, at_rest, (jnp.pad(embedded, ((0, 1), (0, 0), (0, 0))), free))[1]
        # Behind the scan, where whoever reads the modes alone has nothing to pay for the rest.
        held = jnp.pad(remembered, ((1, 0), (0, 0), (0, 0))) + known[:, None]
        return jnp.concatenate([modes, held], axis=-1)

    @property
    def linear_in_actions(self) -> bool:
        """With a linear action encoder (`action_hidden=()`) and eigenvalues that don't depend on the action."""
        return self.modulator is None and is_affine(self.action_encoder)

    @property
    def remembered_actions(self) -> int:
        """h − 1."""
        return self.action_history - 1

    def known_actions(self, latent: Float[Array, " latent"]) -> Float[Array, "remembered action"]:
        """What follows the modes."""
        end = self.modes_size + self.remembered_actions * self.action_size
        return latent[self.modes_size : end].reshape(self.remembered_actions, self.action_size)

    def with_known(
        self, latent: Float[Array, " latent"], past_actions: Float[Array, "past action"]
    ) -> Float[Array, " latent"]:
        """The latent with the last h − 1 of these actions behind its modes."""
        known = min(self.remembered_actions, past_actions.shape[0])
        if known == 0:
            return latent
        end = self.modes_size + self.remembered_actions * self.action_size
        held, given = latent[end - known * self.action_size : end], past_actions[-known:].ravel()
        return latent.at[end - known * self.action_size : end].set(jnp.where(jnp.isnan(given), held, given))

    def delays(
        self,
        latent: Float[Array, " latent"],
        actions: Float[Array, "time action"],
        durations: Float[Array, " time"] | None = None,
    ) -> tuple[Float[Array, "time seen"], Float[Array, "time remembered"]]:
        """At each step, what the action encoder sees, and what the latent after it holds: actions, pilot, context."""
        horizon, past = actions.shape[0], self.remembered_actions
        pilot, context = jnp.split(latent[self.modes_size + past * self.action_size :], [self.pilot_size])
        line = jnp.concatenate([self.known_actions(latent), actions])
        still = jnp.broadcast_to(context, (horizon, self.context_size))
        seen = jnp.concatenate([line[delay : delay + horizon] for delay in range(past + 1)], axis=-1)
        remembered = [line[delay + 1 : delay + 1 + horizon] for delay in range(past)]
        if self.pilot is None:
            return jnp.concatenate([seen, still], axis=-1), jnp.concatenate([*remembered, still], axis=-1)
        after = self.pilot.rollout(pilot, seen, durations, recurrence=self.recurrence)
        before = jnp.concatenate([pilot[None], after[:-1]])
        return jnp.concatenate([seen, before, still], axis=-1), jnp.concatenate([*remembered, after, still], axis=-1)

    @property
    def pilot_size(self) -> int:
        """Numbers of the pilot in a latent."""
        return 0 if self.pilot is None else 2 * self.pilot.input_real.shape[0]

    @property
    def pilot_place(self) -> slice:
        """Where they stand."""
        begin = self.modes_size + self.remembered_actions * self.action_size
        return slice(begin, begin + self.pilot_size)

    @property
    def predicted_size(self) -> int:
        """All but the context."""
        return self.latent_size - self.context_size

    def halves(self, latents: Float[Array, "*batch latent"]) -> Pair:
        """Real and imaginary parts of the modes."""
        return halves(latents[..., : self.modes_size])

    def _inputs(self, discrete: Discrete) -> Pair:
        """L̄, `[modes, l]`."""
        gain = discrete.gain
        return multiply((gain[0][:, None], gain[1][:, None]), (self.input_real, self.input_imag))

    def step(
        self,
        latent: Float[Array, " latent"],
        action: Float[Array, " action"],
        duration: Float[Array, ""] | None = None,
    ) -> Float[Array, " latent"]:
        """x_1 = λ̄ x_0 + c_0."""
        durations = None if duration is None else jnp.asarray(duration)[None]
        seen, remembered = self.delays(latent, action[None], durations)
        embedded = jax.vmap(self.action_encoder)(seen)
        discrete = discretise(self.spectrum, durations, self.modulation(embedded, latent))
        inputs = self.inputs(embedded, discrete)
        moved = multiply(discrete.transition, self.halves(latent))
        real, imag = moved[0] + inputs[0], moved[1] + inputs[1]
        return jnp.concatenate([jnp.ravel(real), jnp.ravel(imag), jnp.ravel(remembered)])

    def modulation(
        self, embedded: Float[Array, "time embedding"], latent: Float[Array, " latent"]
    ) -> Modulation | None:
        """How the eigenvalues of each step differ from the spectrum's; None where they don't."""
        if self.modulator is None:
            return None
        context = latent[self.latent_size - self.context_size :]
        still = jnp.broadcast_to(context, (embedded.shape[0], self.context_size))
        told = ([embedded] if self.bilinear else []) + ([still] if self.adaptive else [])
        turned = jnp.tanh(jax.vmap(self.modulator)(jnp.concatenate(told, axis=-1)))
        decay, phase = jnp.split(turned, 2, axis=-1)
        return Modulation(jnp.exp(decay), PHASE_REACH * phase)

    def inputs(self, embedded: Float[Array, "time embedding"], discrete: Discrete) -> Pair:
        """c_t = L̄ u_t of the actions embedded at each step, pairs of shape `[time, modes]`."""
        gain = discrete.gain
        if gain[0].ndim == 1:
            # The same gain at every step belongs in the matrix, where it costs nothing per step.
            return halves(push(embedded, self._inputs(discrete), members=self.members))
        return multiply(gain, halves(push(embedded, (self.input_real, self.input_imag), members=self.members)))
