"""What every latent dynamics core must hold, parametrised over the registry, and each baseline against a NumPy twin."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from koopax import DynamicsModel, Episodes, KoopaxError, load_model
from koopax.models.latent import CORES, Memory, SequenceDynamics, advance, begin, core_class, latent_of, make_core
from koopax.models.linear import LinearCore
from koopax.models.presets import PRESETS, preset

LATENT, ACTIONS, HORIZON = 8, 3, 9
SMALL = {
    "koopman": {"action_embedding": 5, "action_hidden": (7,)},
    "mlp": {"hidden": 12, "action_embedding": 5},
    "gru": {"action_embedding": 5},
    "transformer": {"layers": 2, "heads": 2, "feedforward": 12, "context": 16},
    "dssm": {"layers": 2, "state_size": 6},
    "linear": {},
}
VARIANTS = {name: (name, options) for name, options in SMALL.items()} | {
    "koopman-remembering": ("koopman", SMALL["koopman"] | {"action_history": 3, "context_size": 2}),
    "koopman-piloted": (
        "koopman",
        SMALL["koopman"] | {"action_history": 2, "pilot_modes": 2, "context_size": 2},
    ),
    "koopman-members": (
        "koopman",
        SMALL["koopman"] | {"action_history": 2, "pilot_modes": 2, "context_size": 2, "members": 2},
    ),
    "mlp-plain": ("mlp", {"hidden": 12}),
    "mlp-told": ("mlp", {"hidden": 12, "hidden_layers": 2, "activation": "elu"}),
    "gru-plain": ("gru", {}),
    # Sees fewer steps than the horizon has: the memory is a ring.
    "transformer-ring": ("transformer", SMALL["transformer"] | {"context": 3}),
}

every_core = pytest.mark.parametrize("name", CORES)
every_variant = pytest.mark.parametrize("variant", VARIANTS)


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def test_every_core_is_tested():
    assert set(SMALL) == set(CORES)


@cache
def small(variant):
    name, options = VARIANTS[variant]
    core = make_core(name, LATENT, ACTIONS, key=jax.random.key(0), **options)
    if isinstance(core, LinearCore):  # begins at the identity, where much would hold by itself
        shapes = core.matrix.shape, core.inputs.shape
        drawn = (0.4 * jax.random.normal(jax.random.key(number), shape) for number, shape in enumerate(shapes))
        core = eqx.tree_at(lambda own: (own.matrix, own.inputs), core, tuple(drawn))
    return core


def trajectory(seed=1, horizon=HORIZON, width=LATENT):
    rng = np.random.default_rng(seed)
    latent, actions = rng.normal(size=width), rng.normal(size=(horizon, ACTIONS))
    return jnp.asarray(latent), jnp.asarray(actions), jnp.asarray(rng.uniform(0.2, 3.0, horizon))


@eqx.filter_jit
def rollout(core, start, actions, durations=None):
    return core.rollout(start, actions, durations)


@eqx.filter_jit
def batched_rollout(core, starts, actions):
    """Time-major: actions `[time, batch, action]`, latents `[time, batch, latent]`."""
    return jax.vmap(core.rollout, in_axes=(0, 1), out_axes=1)(starts, actions)


@eqx.filter_jit
def repeated_steps(core, start, actions, durations=None):
    """What `step` returns after each action, stacked."""

    def step(now, inputs):
        now = core.step(now, *inputs)
        return now, now

    return jax.lax.scan(step, begin(core, start), (actions, durations))[1]


@every_variant
def test_candidates_from_one_start_equal_separate_rollouts(variant):
    """The slow twin of what planners ask for, at the whole horizon and at a shorter one from the same start."""
    core = small(variant)
    latent, _, _ = trajectory(width=core.latent_size)
    actions = jnp.stack([trajectory(seed)[1] for seed in range(2, 6)], axis=1)

    @eqx.filter_jit
    def candidates(core, latent, actions):
        start = core.start_candidates(latent, HORIZON)
        return core.rollout_candidates(start, actions), core.rollout_candidates(start, actions[:4])

    whole, shorter = candidates(core, latent, actions)
    slow = np.stack([rollout(core, latent, actions[:, i]) for i in range(actions.shape[1])], axis=1)
    np.testing.assert_array_equal(whole[0], np.tile(latent, (actions.shape[1], 1)))
    np.testing.assert_allclose(whole[1:], slow, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(shorter, whole[:5], rtol=1e-10, atol=1e-12)


@pytest.mark.quick("8-3|2-5")
@pytest.mark.parametrize("variant", [*CORES, "koopman-remembering", "koopman-piloted", "koopman-members"])
@pytest.mark.parametrize(("horizon", "stride"), [(9, 3), (8, 3), (2, 5), (4, 1)])
def test_every_nth_latent_is_one_of_all(variant, horizon, stride):
    core, batch = small(variant), 3
    rng = np.random.default_rng(5)
    starts = jnp.asarray(rng.normal(size=(batch, core.latent_size)))
    actions = jnp.asarray(rng.normal(size=(horizon, batch, ACTIONS)))
    everything = batched_rollout(core, starts, actions)
    some = eqx.filter_jit(lambda core, first: core.rollout_every(starts, actions, stride=stride, first=first))
    for first in range(stride):
        wanted = np.arange(first, horizon, stride)
        close(some(core, jnp.asarray(first))[: len(wanted)], everything[wanted])


@pytest.mark.parametrize("variant", ["koopman-remembering", "koopman-piloted", "koopman-members"])
def test_gradients_of_every_nth_latent_are_those_of_all(variant):
    core = small(variant)
    rng = np.random.default_rng(6)
    starts = jnp.asarray(rng.normal(size=(2, core.latent_size)))
    actions = jnp.asarray(rng.normal(size=(7, 2, ACTIONS)))

    def through(roll):
        def loss(trained):
            return jnp.sum(jnp.sin(roll(*trained)))

        return jax.jit(jax.grad(loss))((eqx.filter(core, eqx.is_inexact_array), starts, actions))

    def strided(parameters, starts, actions):
        whole = eqx.combine(parameters, core)
        return whole.rollout_every(starts, actions, stride=3, first=jnp.asarray(0))

    def chosen(parameters, starts, actions):
        return batched_rollout(eqx.combine(parameters, core), starts, actions)[jnp.arange(0, 7, 3)]

    jax.tree.map(close, through(strided), through(chosen))


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-11)


# Invariants.


@every_core
def test_an_action_changes_no_earlier_latent_and_every_later_one(name):
    latent, actions, _ = trajectory()
    changed_actions = actions[:, None] + jnp.eye(HORIZON)[:, :, None]  # in column k, a_k is changed
    latents = batched_rollout(small(name), jnp.tile(latent, (HORIZON, 1)), changed_actions)
    difference = np.max(np.abs(latents - rollout(small(name), latent, actions)[:, None]), axis=-1)
    for changed in range(HORIZON):  # row j is x_{j+1}
        assert (difference[:changed, changed] < 1e-12).all()
        assert (difference[changed:, changed] > 1e-8).all()


@every_core
def test_the_start_changes_every_latent(name):
    latent, actions, _ = trajectory()
    difference = rollout(small(name), latent, actions) - rollout(small(name), -latent, actions)
    assert (np.max(np.abs(difference), axis=-1) > 1e-10).all()


@pytest.mark.quick("False-|True-koopman")
@every_variant
@pytest.mark.parametrize("timed", [False, True])
def test_steps_and_continued_rollouts_equal_one_rollout(variant, timed):
    core = small(variant)
    latent, actions, durations = trajectory(2, width=core.latent_size)
    durations = durations if timed else None
    whole = rollout(core, latent, actions, durations)
    stepped = repeated_steps(core, latent, actions, durations)
    close(jax.vmap(latent_of)(stepped), whole)
    cut = 5
    middle = jax.tree.map(lambda leaf: leaf[cut - 1], stepped)
    close(rollout(core, middle, actions[cut:], None if durations is None else durations[cut:]), whole[cut:])


@every_core
def test_advance_leads_to_what_the_steps_lead_to(name):
    core = small(name)
    latent, actions, _ = trajectory(3)
    stepped = repeated_steps(core, latent, actions)
    advanced = eqx.filter_jit(advance)(core, latent, actions)
    jax.tree.map(lambda one, every: close(one, every[-1]), advanced, stepped)


@every_core
def test_a_step_returns_a_memory_where_the_latent_is_not_enough(name):
    core = small(name)
    latent, actions, _ = trajectory()
    started, stepped = eqx.filter_jit(lambda: (begin(core, latent), core.step(latent, actions[0])))()
    remembers = isinstance(core, SequenceDynamics)
    assert isinstance(stepped, Memory) is remembers
    assert jax.tree.structure(stepped) == jax.tree.structure(started)
    assert np.array_equal(latent_of(started), latent)
    whole = rollout(core, latent, actions)
    assert np.allclose(rollout(core, whole[0], actions), rollout(core, stepped, actions)) is not remembers


@every_core
def test_equal_durations_equal_none(name):
    latent, actions, durations = trajectory(4)
    core = small(name)
    close(rollout(core, latent, actions, jnp.ones(HORIZON)), rollout(core, latent, actions))
    assert not np.allclose(rollout(core, latent, actions, durations), rollout(core, latent, actions), atol=1e-6)


@every_core
def test_time_major_batches_by_vmap(name):
    core = small(name)
    rng = np.random.default_rng(5)
    latents = jnp.asarray(rng.normal(size=(HORIZON, LATENT)))
    actions = jnp.asarray(rng.normal(size=(HORIZON, HORIZON, ACTIONS)))
    whole = batched_rollout(core, latents, actions)
    close(whole[:, 2], rollout(core, latents[2], actions[:, 2]))
    starts = eqx.filter_jit(lambda *inputs: jax.vmap(core.step)(*inputs))(latents, actions[0])
    close(batched_rollout(core, starts, actions[1:]), whole[1:])


@every_core
def test_gradients_are_finite_and_reach_every_parameter(name):
    core = small(name)
    latent, actions, durations = trajectory(6)

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(parts):
        core, latent, actions = parts
        return jnp.sum(core.rollout(latent, actions, durations) ** 3)

    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient((core, latent, actions))):
        assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)
        assert np.any(leaf), jax.tree_util.keystr(path)


# Inside a model.


def episodes(state_size, action_size, length=20):
    rng = np.random.default_rng(0)
    return Episodes.from_arrays(
        [5.0 + 10.0 * rng.normal(size=(length + 1, state_size)) for _ in range(3)],
        [2.0 + 0.1 * rng.normal(size=(length, action_size)) for _ in range(3)],
        [-7.0 + 10.0 * rng.normal(size=length) for _ in range(3)],
    )


@cache
def small_model(name):
    hidden = {"encoder_hidden": (6,), "decoder_hidden": (6,), "reward_hidden": (6,)}
    data = episodes(5, ACTIONS)
    return DynamicsModel.create(name, data, latent_size=LATENT, key=jax.random.key(1), **hidden, **SMALL[name])


@eqx.filter_jit
def predict(model, actions):
    """Predictions for several sequences of actions, from one state."""
    return jax.vmap(model.rollout, in_axes=(None, 0))(jnp.linspace(-1.0, 1.0, 5), actions)


@every_core
def test_a_model_predicts_states_and_rewards_at_the_right_index(name):
    """a_k moves r_k and what comes after, and s_{k+1} and what comes after: nothing before."""
    _, actions, _ = trajectory(7)
    changed_actions = actions + jnp.eye(HORIZON)[:, :, None]  # row k changes a_k
    predictions = predict(small_model(name), jnp.concatenate([actions[None], changed_actions]))
    moved_states = np.max(np.abs(predictions.states[1:] - predictions.states[0]), axis=-1)
    moved_rewards = np.abs(predictions.rewards[1:] - predictions.rewards[0])
    for changed in range(HORIZON):
        for moved in (moved_states[changed], moved_rewards[changed]):
            assert (moved[:changed] < 1e-9).all()
            assert moved[changed] > 1e-9
        assert (moved_states[changed, changed:] > 1e-9).all()


@every_core
def test_a_saved_model_predicts_bit_for_bit_the_same(name, tmp_path):
    model = small_model(name)
    model.save(tmp_path / "model.koopax")
    loaded = load_model(tmp_path / "model.koopax")
    assert loaded.config == model.config
    assert jax.tree.structure(loaded) == jax.tree.structure(model)
    actions = jnp.asarray(np.random.default_rng(10).normal(size=(HORIZON + 1, HORIZON, ACTIONS)))
    before, after = predict(model, actions), predict(loaded, actions)
    assert np.array_equal(before.states, after.states)
    assert np.array_equal(before.rewards, after.rewards)


# Presets.


@pytest.mark.parametrize("name", sorted(n for n in set(PRESETS) - {"dmdc", "edmd"} if "small" not in n))
def test_presets_have_the_published_size(name):
    data = episodes(17, 6)
    # Built without computing: shapes are enough to count.
    model = eqx.filter_eval_shape(
        lambda key: DynamicsModel.create(data=data, key=key, **preset(name)), jax.random.key(0)
    )
    parts = (model.encoder, model.core, model.decoder, model.reward_head)
    assert 450_000 <= sum(leaf.size for leaf in jax.tree.leaves(parts)) <= 550_000


@pytest.mark.parametrize("name", ["koopman-paper", "koopman-stochastic"])
def test_a_preset_is_the_same_by_name_and_written_out(name):
    """So nothing of `koopman`, whose core they share, gets into them."""
    data, settings = episodes(17, 6), preset(name)
    written = DynamicsModel.create(data=data, key=jax.random.key(0), **settings)
    by_name = DynamicsModel.create(name, data, key=jax.random.key(0), latent_size=settings["latent_size"])
    assert written.config == by_name.config


def test_every_core_has_a_preset():
    assert set(CORES) == {settings["core"] for settings in PRESETS.values()}
    assert set(CORES) - {"linear"} <= set(PRESETS)


def test_the_published_configuration():
    settings = preset("koopman-paper")
    assert (settings["latent_size"], settings["action_embedding"]) == (512, 64)
    options = {name: settings[name] for name in ("input_std", "spectrum", "spectrum_options")}
    core = make_core("koopman", 16, ACTIONS, key=jax.random.key(0), **options)
    decay, frequency = core.spectrum.rates()
    close(decay, np.full(8, -0.2))
    close(frequency, np.pi * np.array([0, 1, 2, 3, 0, -1, -2, -3]))
    assert abs(float(jnp.std(core.input_real)) - 0.1) < 0.02


def test_an_unknown_preset():
    with pytest.raises(KoopaxError, match="unknown preset 'grru': did you mean 'gru'"):
        preset("grru")


def test_a_preset_can_be_changed_without_harm():
    settings = preset("gru")
    settings["latent_size"] = 1
    assert preset("gru")["latent_size"] > 1


@pytest.mark.parametrize(
    ("name", "size", "options", "message"),
    [
        ("transformer", 9, {}, "latent_size 9 can't be shared by 4 heads"),
        ("transformer", 8, {"context": 0}, "context 0 hides"),
        ("transformer", 8, {"layers": 0}, "0 layers"),
        ("dssm", 8, {"state_size": 5}, "state_size 5 can't hold conjugate pairs"),
        ("dssm", 8, {"layers": 0}, "0 layers"),
        ("gru", 8, {"hidden": 5}, "model 'gru' has no option 'hidden': it takes action_embedding"),
    ],
)
def test_bad_input(name, size, options, message):
    with pytest.raises(KoopaxError, match=message):
        make_core(name, size, ACTIONS, key=jax.random.key(0), **options)


# NumPy twins: one token, one head, one mode at a time.


def linear(layer, x):
    bias = 0.0 if layer.bias is None else np.asarray(layer.bias)
    return np.asarray(layer.weight) @ x + bias


def layer_norm(layer, x):
    scaled = (x - x.mean()) / np.sqrt(x.var() + layer.eps)
    return scaled * np.asarray(layer.weight) + np.asarray(layer.bias)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def action_input(layer, action, duration):
    features = np.append(action, duration - 1.0)
    if layer.embedding is not None:
        features = np.maximum(linear(layer.embedding, features), 0.0)
    return linear(layer.projection, features)


def mlp_twin(core, latent, actions, durations):
    activate = {"relu": lambda x: np.maximum(x, 0.0), "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))}[
        core.activation
    ]
    latents = []
    for action, duration in zip(actions, durations, strict=True):
        hidden = activate(linear(core.latent_input, latent) + action_input(core.action_input, action, duration))
        for layer in core.between:
            hidden = activate(linear(layer, hidden))
        latent = linear(core.output, hidden)
        latents.append(latent)
    return np.stack(latents)


def gru_twin(core, latent, actions, durations):
    size, recurrent = len(latent), np.asarray(core.recurrent)
    reset_weight, keep_weight, candidate_weight = recurrent[:size], recurrent[size : 2 * size], recurrent[2 * size :]
    latents = []
    for action, duration in zip(actions, durations, strict=True):
        inputs = action_input(core.action_input, action, duration)
        reset = sigmoid(inputs[:size] + reset_weight @ latent)
        keep = sigmoid(inputs[size : 2 * size] + keep_weight @ latent)
        remembered = candidate_weight @ latent + np.asarray(core.candidate_bias)
        candidate = np.tanh(inputs[2 * size :] + reset * remembered)
        latent = (1.0 - keep) * candidate + keep * latent
        latents.append(latent)
    return np.stack(latents)


def transformer_twin(core, latent, actions, durations):
    tokens = [latent] + [
        linear(core.action_embedding, np.append(action, duration - 1.0))
        for action, duration in zip(actions, durations, strict=True)
    ]
    for block in core.blocks:
        heads = block.heads
        projected = [
            linear(block.attention_in, layer_norm(block.attention_norm, t)).reshape(3, heads, -1) for t in tokens
        ]
        mixed = []
        for q, (query, _, _) in enumerate(projected):
            visible = [k for k in range(q + 1) if k == 0 or q - k < core.context]
            outputs = []
            for head in range(heads):
                slope = 2.0 ** (-8.0 * (head + 1) / heads)
                scores = np.array([query[head] @ projected[k][1][head] for k in visible]) / np.sqrt(query.shape[-1])
                scores = np.exp(scores - slope * (q - np.array(visible)))
                weights = scores / scores.sum()
                outputs.append(sum(w * projected[k][2][head] for w, k in zip(weights, visible, strict=True)))
            mixed.append(np.concatenate(outputs))
        tokens = [t + linear(block.attention_out, m) for t, m in zip(tokens, mixed, strict=True)]
        tokens = [
            t + linear(block.feedforward_out, gelu(linear(block.feedforward_in, layer_norm(block.feedforward_norm, t))))
            for t in tokens
        ]
    return np.stack([layer_norm(core.output_norm, t) for t in tokens[1:]])


def dssm_twin(core, latent, actions, durations):
    tokens = [latent] + [linear(core.action_embedding, action) for action in actions]
    durations = [1.0, *durations]
    for layer in core.layers:
        space = layer.space
        rates = -np.exp(np.asarray(space.log_decay)) + 1j * np.asarray(space.frequency)
        readout = np.asarray(space.readout_real) + 1j * np.asarray(space.readout_imag)
        steps = np.exp(np.asarray(space.log_time_step))[:, None]
        state, outputs = np.zeros_like(rates), []
        for token, duration in zip(tokens, durations, strict=True):
            transition = np.exp(rates * steps * duration)
            state = transition * state + (transition - 1.0) / rates * token[:, None]
            y = 2.0 * np.sum(readout * state, axis=-1).real + np.asarray(space.skip) * token
            value, gate = np.split(linear(layer.mix, gelu(y)), 2)
            outputs.append(layer_norm(layer.norm, token + value * sigmoid(gate)))
        tokens = outputs
    return np.stack(tokens[1:])


def held(spectrum, matrix, duration):
    """λ̄ of a step of that duration, and L̄ as a function of what pushes."""
    decay, frequency = (np.asarray(rate) for rate in spectrum.rates())
    rates, step = decay + 1j * frequency, float(spectrum.time_step())
    transition = np.exp(rates * step * duration)
    gain = np.asarray(spectrum.input_scale()) * (transition - 1.0) / rates
    rows = np.asarray(matrix[0]) + 1j * np.asarray(matrix[1])

    def inputs(*pushed):  # the rows are shared evenly by whoever pushes
        return gain * np.concatenate(
            [part @ own for part, own in zip(np.split(rows, len(pushed)), pushed, strict=True)]
        )

    return transition, inputs


def koopman_twin(core, latent, actions, durations):
    modes, past, piloting = core.modes_size // 2, core.action_history - 1, core.pilot_size // 2
    known = 2 * modes + past * ACTIONS
    line = [*latent[2 * modes : known].reshape(past, ACTIONS), *actions]
    state = latent[:modes] + 1j * latent[modes : 2 * modes]
    pilot = latent[known : known + piloting] + 1j * latent[known + piloting : known + 2 * piloting]
    context = latent[known + 2 * piloting :]
    networks = [core.action_encoder] if core.members == 1 else core.action_encoder.networks
    latents = []
    for t, duration in enumerate(durations):
        recent = np.concatenate(line[t : t + past + 1])
        pushed = []
        for network, own in zip(networks, np.split(pilot, len(networks)), strict=True):
            first, last = network.layers
            seen = np.concatenate([recent, own.real, own.imag, context])
            embedded = linear(last, np.maximum(linear(first, seen), 0.0))
            pushed.append(embedded[: len(embedded) // 2] + 1j * embedded[len(embedded) // 2 :])
        transition, inputs = held(core.spectrum, (core.input_real, core.input_imag), duration)
        state = transition * state + inputs(*pushed)
        if core.pilot is not None:
            transition, inputs = held(core.pilot.spectrum, (core.pilot.input_real, core.pilot.input_imag), duration)
            pilot = transition * pilot + inputs(recent)
        remembered = line[t + 1 : t + past + 1]
        latents.append(np.concatenate([state.real, state.imag, *remembered, pilot.real, pilot.imag, context]))
    return np.stack(latents)


def linear_twin(core, latent, actions, durations):
    matrix, inputs = np.asarray(core.matrix), np.asarray(core.inputs)
    found, now = [], np.asarray(latent)
    for t, action in enumerate(np.asarray(actions)):
        operator = matrix.copy()
        for i, value in enumerate(action):
            operator[:, : inputs.shape[2]] += value * inputs[i]
        length = 1.0 if durations is None else float(durations[t])
        now = now + length * (operator @ now - now)
        found.append(now)
    return np.stack(found)


TWINS = {
    "koopman": koopman_twin,
    "mlp": mlp_twin,
    "gru": gru_twin,
    "transformer": transformer_twin,
    "dssm": dssm_twin,
    "linear": linear_twin,
}


def perturbed(core):
    """Every parameter moved a little: those that start at zero, one or a constant hide mistakes."""
    leaves, structure = jax.tree.flatten(core)
    rng = np.random.default_rng(8)
    return jax.tree.unflatten(structure, [leaf + 0.2 * rng.normal(size=leaf.shape) for leaf in leaves])


@pytest.mark.parametrize("variant", [variant for variant, (name, _) in VARIANTS.items() if name in TWINS])
@pytest.mark.parametrize("timed", [False, True])
def test_rollout_equals_numpy(variant, timed):
    core, name = perturbed(small(variant)), VARIANTS[variant][0]
    latent, actions, durations = trajectory(9, width=core.latent_size)
    expected = TWINS[name](
        core, np.asarray(latent), np.asarray(actions), np.asarray(durations) if timed else np.ones(HORIZON)
    )
    close(rollout(core, latent, actions, durations if timed else None), expected)


def test_the_dssm_starts_as_s4d_lin():
    space = small("dssm").layers[0].space
    np.testing.assert_allclose(-np.exp(space.log_decay), -0.5)
    np.testing.assert_allclose(space.frequency, np.pi * np.tile(np.arange(3), (LATENT, 1)))
    steps = np.exp(core_class("dssm")(64, ACTIONS, key=jax.random.key(0)).layers[0].space.log_time_step)
    assert steps.min() >= 1e-3
    assert steps.max() <= 1e-1
