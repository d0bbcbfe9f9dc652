"""The loss terms of a dynamics model, one function each, in normalised units.

Batches are time-major: states `[time+1, batch, state]`, actions `[time, batch, action]`, rewards `[time, batch]`.
"""

import jax
import jax.numpy as jnp

from koopax._types import Array, Float, Int, PRNGKeyArray
from koopax.data.windows import Windows
from koopax.models.dynamics import DynamicsModel
from koopax.models.encoding import past_of_windows
from koopax.models.history import Past, seen_later
from koopax.models.latent import in_chunks, steps_every
from koopax.training.config import SMALL_PARAMETERS, TrainConfig
from koopax.training.pasts import forgetting

# The likelihood is estimated in one of so many gradient steps, and there on some of the steps on which the other losses
# are taken, both at random and without bias: carrying variances through the decoder costs a third of all the rest, and
# where time is given the mean would lack it.
LIKELIHOOD_EVERY = 4
LIKELIHOOD_STEPS = 4
# How many steps are the first ones after a start, and every how many-th of them carries their extra weight: an encoder
# learns more from other starts than from more steps after the same one.
EARLY, EARLY_STRIDE = 10, 5
# An estimate of the consistency loss, whose weight is small and whose targets have to be encoded, is made in one of so
# many gradient steps; in each for a small model, which gets so near to its data that the noise would be seen.
CONSISTENCY_EVERY = 4


def loss_weights(config: TrainConfig) -> dict[str, float]:
    """The weight of each term, by the name it is logged under."""
    return {
        "state": config.state_weight,
        "reward": config.reward_weight,
        "consistency": config.consistency_weight,
        "likelihood": config.likelihood_weight or 0.0,
    }


def state_loss(
    predicted: Float[Array, "steps predictions state"],
    true: Float[Array, "steps batch state"],
    weight: Float[Array, " steps"],
    joint: float = 0.0,
) -> Float[Array, ""]:
    """Mean of (d_ξ(x̂_{t+k}) − s_{t+k})² over k = 1 … T, batch and components; `joint` as in `squared_misses`."""
    return jnp.mean(weight * jnp.mean(squared_misses(predicted, true, joint), axis=(1, 2)))


def reward_loss(
    predicted: Float[Array, "steps predictions"],
    true: Float[Array, "steps batch"],
    weight: Float[Array, " steps"],
    joint: float = 0.0,
) -> Float[Array, ""]:
    """Mean of (r̂_{t+k} − r_{t+k})² over k = 0 … T−1 and batch; `joint` as in `squared_misses`."""
    return jnp.mean(weight * jnp.mean(squared_misses(predicted, true, joint), axis=1))


def squared_misses(
    predicted: Float[Array, "steps predictions *rest"], true: Float[Array, "steps batch *rest"], joint: float
) -> Float[Array, "steps batch *rest"]:
    """(1 − joint) · the mean of the members' squared misses + joint · the squared miss of their mean.

    `predicted` are window after window, and of each all members.
    """
    missed = predicted.reshape(*true.shape[:2], -1, *true.shape[2:]) - true[:, :, None]
    own = jnp.mean(missed**2, axis=2)
    return (1 - joint) * own + joint * jnp.mean(missed, axis=2) ** 2 if joint else own


def consistency_loss(
    model: DynamicsModel,
    latents: Float[Array, "steps batch latent"],
    true: Past,
    weight: Float[Array, " steps"],
) -> Float[Array, ""]:
    """Mean of (x̂_{t+k} − g_θ(s_{t+k}))² over k = 1 … T, batch and the latent components that the core predicts.

    `true` are what the encoder sees at these steps, `[steps, batch, …]`.
    """
    targets = jax.vmap(jax.vmap(model.encode_past))(true)
    missed = (latents - targets)[..., : model.core.predicted_size]
    return jnp.mean(weight * jnp.mean(missed**2, axis=(1, 2)))


def likelihood_loss(
    model: DynamicsModel,
    start: Float[Array, "batch latent"],
    latents: Float[Array, "steps batch latent"],
    times: Float[Array, "steps batch"],
    missed: Float[Array, "steps batch column"],
    weight: Float[Array, " steps"],
) -> Float[Array, ""]:
    """Mean of ((d_ξ(x̂) − s)² / σ² + ln σ²) / 2 over steps, batch and columns, for a stochastic model's noise alone.

    `missed` are the differences of states and, where they are learned, of rewards. Core, decoder and latents are taken
    as they are: no gradient reaches them.
    """
    assert model.noise is not None
    core, decoder, start, latents, missed = jax.lax.stop_gradient((model.core, model.decoder, start, latents, missed))

    def one(first: Array, own: Array, at: Array) -> Array:
        assert model.noise is not None
        return model.noise.deviations_at(core, decoder, first, own, at)  # type: ignore[arg-type]

    deviations = jax.vmap(one, in_axes=(0, 1, 1), out_axes=1)(start, latents, times)[..., : missed.shape[-1]]
    terms = 0.5 * (missed / deviations) ** 2 + jnp.log(deviations)
    return jnp.mean(weight * jnp.mean(terms, axis=(1, 2)))


def random_steps(count_of_all: int, count: int | None, *, key: PRNGKeyArray) -> Int[Array, " steps"]:
    """`count` of the steps, evenly spaced from a random offset, or all of them; each is as likely as any other."""
    if count is None or count >= count_of_all:
        return jnp.arange(count_of_all)
    return jnp.floor((jnp.arange(count) + jax.random.uniform(key)) * (count_of_all / count)).astype(int)


def loss_terms(
    model: DynamicsModel,
    windows: Windows,
    config: TrainConfig,
    *,
    key: PRNGKeyArray,
) -> dict[str, Float[Array, ""]]:
    """The terms that carry weight, unweighted, by name; with the first steps' extra.

    They are taken on every `loss_stride`-th step from a random one on. Each step is as likely as any other, so their
    expectation is the mean over all steps; neighbouring steps say much the same, so little is lost.
    """
    first_key, consistency_key = jax.random.split(key)
    stride, horizon = config.loss_stride or 1, windows.actions.shape[0]
    first = jax.random.randint(first_key, (), 0, stride)
    chosen = steps_every(horizon, stride, first)
    # A step behind the end counts nothing; the others count so much more that the expectation stays right.
    inside = first + stride * jnp.arange(len(chosen)) < horizon
    weight = inside * (stride * len(chosen) / horizon)

    states = model.normaliser.normalise_state(windows.states)
    actions = model.normaliser.normalise_action(windows.actions)
    rewards = model.normaliser.normalise_reward(windows.rewards)[chosen]
    past = past_of_windows(model, windows)
    if model.past_steps:
        past = jax.vmap(forgetting)(past, jax.random.split(jax.random.fold_in(key, 1), windows.actions.shape[1]))
    start = jax.vmap(model.encode_past)(past)
    before, latents = _roll(model, start, past, actions, windows.durations, stride, first, config.remat_steps)
    predicted_states, predicted_rewards = _read(model, before, latents, actions[chosen], stride, config.remat_steps)

    wanted = {name for name, weight in loss_weights(config).items() if weight > 0}
    terms, joint = {}, config.joint_share or 0.0
    if "state" in wanted:
        terms["state"] = state_loss(predicted_states, states[1:][chosen], weight, joint)
    if "reward" in wanted:
        terms["reward"] = reward_loss(predicted_rewards, rewards, weight, joint)
    if config.early_weight and horizon > EARLY:
        early = _early_terms(model, past, windows, states, actions, wanted, config, key=jax.random.fold_in(key, 4))
        terms |= {name: terms[name] + config.early_weight * term for name, term in early.items()}
    if "consistency" in wanted:
        terms["consistency"] = _consistency_term(
            model, latents, past, states, actions, chosen, weight, config, key=consistency_key
        )
    if "likelihood" in wanted:
        read = jnp.concatenate([predicted_states, predicted_rewards[..., None]], axis=-1)
        mean = jnp.mean(read.reshape(*rewards.shape, -1, read.shape[-1]), axis=2)
        missed = mean - jnp.concatenate([states[1:][chosen], rewards[..., None]], axis=-1)
        durations = jnp.ones_like(windows.rewards) if windows.durations is None else windows.durations
        learned = missed if "reward" in wanted else missed[..., :-1]
        times = jnp.cumsum(durations, axis=0)[chosen]
        few = random_steps(len(chosen), LIKELIHOOD_STEPS, key=jax.random.fold_in(key, 2))
        seen = (start, latents[few], times[few], learned[few], weight[few])
        terms["likelihood"] = jax.lax.cond(
            jax.random.bernoulli(jax.random.fold_in(key, 3), 1 / LIKELIHOOD_EVERY),
            lambda: LIKELIHOOD_EVERY * likelihood_loss(model, *seen),
            lambda: jnp.zeros_like(start[0, 0]),
        )
    return terms


def _consistency_term(
    model: DynamicsModel,
    latents: Array,
    past: Past,
    states: Array,
    actions: Array,
    chosen: Array,
    weight: Array,
    config: TrainConfig,
    *,
    key: PRNGKeyArray,
) -> Float[Array, ""]:
    """The consistency loss on all of the chosen steps, or an estimate of it on some."""
    some = random_steps(len(chosen), config.consistency_steps, key=key)

    def on_some() -> Array:
        return consistency_loss(model, latents[some], seen_later(past, states, actions, chosen[some]), weight[some])

    every = consistency_every(model.num_parameters())
    if len(some) == len(chosen) or every == 1:
        return on_some()
    drawn = jax.random.bernoulli(jax.random.fold_in(key, 1), 1 / every)
    nothing = jnp.zeros((), jax.eval_shape(on_some).dtype)
    return jax.lax.cond(drawn, lambda: every * on_some(), lambda: nothing)


def consistency_every(parameters: int) -> int:
    """In one of how many gradient steps the consistency loss of a model with so many parameters is estimated."""
    return 1 if parameters < SMALL_PARAMETERS else CONSISTENCY_EVERY


def _early_terms(
    model: DynamicsModel,
    past: Past,
    windows: Windows,
    states: Array,
    actions: Array,
    wanted: set[str],
    config: TrainConfig,
    *,
    key: PRNGKeyArray,
) -> dict[str, Float[Array, ""]]:
    """The state and reward losses of the first steps after random starts within the windows, on some of these steps."""
    starts_key, first_key = jax.random.split(key)
    starts = jax.random.randint(starts_key, (config.early_starts or 1,), 0, actions.shape[0] - EARLY + 1)
    first = jax.random.randint(first_key, (), 0, EARLY_STRIDE)
    chosen = steps_every(EARLY, EARLY_STRIDE, first)

    def after(line: Array, points: int) -> Array:
        """The rows from every start on, `[points, starts × batch, …]`."""
        rows = line[starts + jnp.arange(points)[:, None]]
        return rows.reshape(points, -1, *line.shape[2:])

    seen = seen_later(past, states, actions, starts - 1)
    seen = jax.tree.map(lambda leaf: jnp.concatenate(list(leaf)), seen)
    begun, taken = jax.vmap(model.encode_past)(seen), after(actions, EARLY)
    durations = None if windows.durations is None else after(windows.durations, EARLY)
    before, latents = _roll(model, begun, seen, taken, durations, EARLY_STRIDE, first, config.remat_steps)
    found, paid = _read(model, before, latents, taken[chosen], EARLY_STRIDE, config.remat_steps)
    weight, terms, joint = jnp.ones(len(chosen)), {}, config.joint_share or 0.0
    if "state" in wanted:
        terms["state"] = state_loss(found, after(states, EARLY + 1)[1:][chosen], weight, joint)
    if "reward" in wanted:
        rewards = model.normaliser.normalise_reward(windows.rewards)
        terms["reward"] = reward_loss(paid, after(rewards, EARLY)[chosen], weight, joint)
    return terms


def _roll(
    model: DynamicsModel,
    start: Array,
    past: Past,
    actions: Array,
    durations: Array | None,
    stride: int,
    first: Array,
    remat_steps: int | None,
) -> tuple[Array | None, Array]:
    """The latents before and after the chosen steps; those before only where a reward head reads them."""
    if model.config.reencode_every is not None:
        over_batch = (0, 0, 1, None if durations is None else 1)

        def unroll(start: Array, past: Past, actions: Array, durations: Array | None) -> tuple[Array, Array]:
            return model.unroll(start, actions, durations, past=past)

        before, latents = jax.vmap(unroll, in_axes=over_batch, out_axes=1)(start, past, actions, durations)
        chosen = steps_every(actions.shape[0], stride, first)
        return before[chosen], latents[chosen]
    if model.reward_head is None:
        return None, model.core.rollout_every(
            start, actions, durations, stride=stride, first=first, remat_steps=remat_steps
        )
    latents = model.core.rollout_every(
        start, actions, durations, stride=1, first=jnp.zeros_like(first), remat_steps=remat_steps
    )
    before = jnp.concatenate([start[None], latents[:-1]])
    chosen = steps_every(actions.shape[0], stride, first)
    return (before, latents) if stride == 1 else (before[chosen], latents[chosen])


def _read(
    model: DynamicsModel, before: Array | None, latents: Array, actions: Array, stride: int, remat_steps: int | None
) -> tuple[Array, Array]:
    """States and rewards of the chosen steps, window after window and of each all members; a gradient keeps hidden
    layers for `remat_steps` at a time.
    """

    def read(before: Array | None, latents: Array, actions: Array) -> tuple[Array, Array]:
        found = jax.vmap(jax.vmap(model.read_each))(before, latents, actions)
        states, rewards = (leaf.reshape(len(leaf), -1, *leaf.shape[3:]) for leaf in found)
        return states, rewards

    steps = len(latents)
    at_a_time = steps if remat_steps is None else max(1, remat_steps // stride)
    if at_a_time >= steps:
        return read(before, latents, actions)
    chunks = in_chunks((before, latents, actions), at_a_time)
    states, rewards = jax.lax.map(jax.checkpoint(lambda inputs: read(*inputs)), chunks)
    return (
        states.reshape(-1, *states.shape[2:])[:steps],
        rewards.reshape(-1, *rewards.shape[2:])[:steps],
    )


def total_loss(terms: dict[str, Array], config: TrainConfig) -> Float[Array, ""]:
    """The weighted sum of the terms."""
    weight = loss_weights(config)
    return jnp.asarray(sum(weight[name] * term for name, term in terms.items()))
