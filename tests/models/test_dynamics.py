"""DynamicsModel: raw units, reward indices, re-encoding, continuation, and the file it is saved in."""

import json
import struct
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koopax import DynamicsModel, Episodes, KoopaxError, load_model
from koopax.data.windows import fixed_windows
from koopax.models.encoding import past_of_windows
from koopax.models.files import MAGIC

STATE, ACTION = 3, 2


def episodes(seed=0, count=4, length=30):
    rng = np.random.default_rng(seed)
    return Episodes.from_arrays(
        [5.0 + 100.0 * rng.normal(size=(length + 1, STATE)) for _ in range(count)],
        [2.0 + 0.1 * rng.normal(size=(length, ACTION)) for _ in range(count)],
        [-7.0 + 10.0 * rng.normal(size=length) for _ in range(count)],
    )


@pytest.fixture(scope="module", params=["own reward head", "reward from the decoder"])
def model(request):
    hidden = (16,) if request.param == "own reward head" else None
    return DynamicsModel.create("koopman", episodes(), latent_size=8, reward_hidden=hidden, key=jax.random.key(0))


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(1)
    return jnp.asarray(rng.normal(size=STATE), jnp.float32), jnp.asarray(rng.normal(size=(9, ACTION)), jnp.float32)


def test_rollout_is_encode_steps_decode_in_raw_units(model, case):
    state, actions = case
    n = model.normaliser
    latent = model.encoder((state - n.state_mean) / n.state_std)
    prediction = model.rollout(state, actions, return_latents=True)
    for k, action in enumerate(actions):
        scaled = (action - n.action_mean) / n.action_std
        before, latent = latent, model.core.step(latent, scaled)
        if model.reward_head is None:
            normalised = model.decoder(latent)[STATE]
        else:
            normalised = model.reward_head(jnp.concatenate([before, scaled]))[0]
        np.testing.assert_allclose(prediction.rewards[k], normalised * n.reward_std + n.reward_mean, rtol=1e-4)
        np.testing.assert_allclose(prediction.rewards[k], model.reward(before, action), rtol=1e-4)
        np.testing.assert_allclose(prediction.latents[k], latent, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            prediction.states[k], model.decoder(latent)[:STATE] * n.state_std + n.state_mean, rtol=1e-4, atol=1e-3
        )


def test_units_follow_the_data():
    """Scaling the data scales the predictions: the networks see the same normalised values."""
    data, key = episodes(), jax.random.key(3)
    scaled = Episodes.from_arrays(
        *[
            [scale * np.asarray(e[i]) for e in map(data.episode, range(4))]
            for i, scale in enumerate((1000.0, 0.1, 50.0))
        ]
    )
    state, actions = jnp.ones(STATE), jnp.ones((5, ACTION))
    one = DynamicsModel.create("koopman", data, latent_size=8, key=key).rollout(state, actions)
    other = DynamicsModel.create("koopman", scaled, latent_size=8, key=key).rollout(1000 * state, 0.1 * actions)
    np.testing.assert_allclose(other.states, 1000 * one.states, rtol=1e-3)
    np.testing.assert_allclose(other.rewards, 50 * one.rewards, rtol=1e-3)


@given(changed=st.integers(0, 8))
@settings(max_examples=9)
def test_causality_and_reward_index(model, case, changed):
    """a_k moves r_k and every later reward, and every state after it: nothing before."""
    state, actions = case
    before, after = model.rollout(state, actions), model.rollout(state, actions.at[changed].add(0.1))
    same_states = np.all(np.asarray(before.states == after.states), axis=-1)
    same_rewards = np.asarray(before.rewards == after.rewards)
    assert same_states[:changed].all()
    assert not same_states[changed:].any()
    assert same_rewards[:changed].all()
    assert not same_rewards[changed:].any()


def test_a_rollout_continues_from_its_last_latent(model, case):
    state, actions = case
    whole = model.rollout(state, actions)
    first = model.rollout(state, actions[:4], return_latents=True)
    second = model.rollout_from(first.latents[-1], actions[4:])
    np.testing.assert_allclose(np.concatenate([first.states, second.states]), whole.states, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(np.concatenate([first.rewards, second.rewards]), whole.rewards, rtol=1e-3, atol=1e-3)


@pytest.mark.quick("False-4|True-9")
@pytest.mark.parametrize("every", [1, 3, 4, 9, 20])
@pytest.mark.parametrize("timed", [False, True])
def test_reencoding_equals_separate_rollouts_from_decoded_states(model, case, every, timed):
    """And each of these knows the actions that the latent before it holds: those taken, and behind them the start's."""
    state, actions = case
    durations = jnp.linspace(0.5, 2.0, 9) if timed else None
    prediction = model.rollout(state, actions, durations=durations, reencode_every=every)
    latent = model.encode(state)
    held = model.core.known_actions(latent)
    line = jnp.concatenate([held, model.normaliser.normalise_action(actions)])
    states, rewards = [], []
    for start in range(0, 9, every):
        part = slice(start, start + every)
        lengths = None if durations is None else durations[part]
        latent = model.core.with_known(model.encode(state), line[start : start + len(held)])
        piece = model.rollout_from(latent, actions[part], durations=lengths)
        states.append(piece.states)
        rewards.append(piece.rewards)
        state = piece.states[-1]
    np.testing.assert_allclose(prediction.states, np.concatenate(states), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(prediction.rewards, np.concatenate(rewards), rtol=1e-3, atol=1e-3)


def test_known_actions_take_the_place_of_those_that_a_latent_holds(model, case):
    """The latest ones; where there are fewer, or one is NaN, a latent keeps what it holds."""
    state, actions = case
    core, past = model.core, model.core.remembered_actions
    assert past == 3
    held = model.encode(state)
    latent = core.with_known(held, actions)
    np.testing.assert_array_equal(core.known_actions(latent), actions[-past:])
    np.testing.assert_array_equal(latent[: core.modes_size], held[: core.modes_size])
    np.testing.assert_array_equal(core.with_known(held, jnp.full((past, ACTION), jnp.nan)), held)
    half = core.known_actions(core.with_known(held, actions[:1]))
    np.testing.assert_array_equal(half[:-1], core.known_actions(held)[:-1])
    np.testing.assert_array_equal(half[-1], actions[0])


def test_a_model_starts_as_its_training_windows_do(model, case):
    """Without a history these know no actions before them, so none may change where a rollout, or a plan, starts."""
    state, actions = case
    windows = fixed_windows(episodes(), 5, 8, 0, past=model.past_steps).take(slice(None))
    trained = jax.vmap(model.encode_past)(past_of_windows(model, jax.tree.map(jnp.asarray, windows)))
    told = jnp.asarray(np.random.default_rng(2).normal(size=(8, model.core.remembered_actions, ACTION)), jnp.float32)
    np.testing.assert_array_equal(jax.vmap(model.encode)(windows.states[0], told), trained)
    before = model.rollout(state, actions, past_actions=actions)
    np.testing.assert_array_equal(before.states, model.rollout(state, actions).states)


def test_a_core_without_a_history_has_nothing_to_know(case):
    """Bit for bit: re-encoding is encoder after decoder, and past actions change nothing."""
    state, actions = case
    model = DynamicsModel.create("gru", episodes(), latent_size=8, key=jax.random.key(0))
    latent = model.encode(state)
    assert np.array_equal(model.encode(state, past_actions=actions), latent)
    assert np.array_equal(model.reencode(latent), model.encoder(model.decoder(latent)))
    plain, told = (model.rollout(state, actions, past_actions=p, reencode_every=2) for p in (None, actions))
    assert np.array_equal(plain.states, told.states)
    assert np.array_equal(plain.rewards, told.rewards)


def test_one_step_and_lists(model, case):
    state, actions = case
    whole = model.rollout(state, actions)
    listed = model.rollout(state.tolist(), actions.tolist())
    assert np.array_equal(whole.states, listed.states)
    one = model.step(state.tolist(), actions[0].tolist())
    np.testing.assert_allclose(one.state, whole.states[0], rtol=1e-4)
    np.testing.assert_allclose(one.reward, whole.rewards[0], rtol=1e-4)
    timed = model.step(state, actions[0], duration=2.0)
    lengths = model.rollout(state, actions[:1], durations=[2.0])
    np.testing.assert_allclose(timed.state, lengths.states[0], rtol=1e-4)
    assert not np.allclose(timed.state, one.state)


def test_latents_only_where_asked(model, case):
    assert model.rollout(*case).latents is None
    assert model.rollout(*case, return_latents=True).latents.shape == (9, model.core.latent_size)


def test_the_normaliser_is_not_trained(model):
    trained = eqx.filter(model, model.trainable())
    assert not jax.tree.leaves(trained.normaliser)
    assert model.num_parameters() == sum(leaf.size for leaf in jax.tree.leaves(trained))
    gradients = eqx.filter_jit(
        eqx.filter_grad(lambda m: jnp.sum(m.rollout(jnp.ones(STATE), jnp.ones((4, ACTION))).states))
    )(model)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradients.normaliser))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.rollout(jnp.ones((2, STATE)), jnp.ones((4, ACTION))), r"state has shape \(2, 3\).*jax.vmap"),
        (
            lambda m: m.rollout(jnp.ones(STATE), jnp.ones((4, ACTION + 1))),
            r"actions has shape \(4, 3\), but this model takes one example of \(steps, 2\): pass actions of that shape",
        ),
        (lambda m: m.rollout(jnp.ones(STATE + 1), jnp.ones((4, ACTION))), r"pass state of that shape"),
        (lambda m: m.encode(jnp.ones(STATE), jnp.ones(ACTION)), r"past_actions has shape \(2,\)"),
        (lambda m: m.rollout(jnp.ones(STATE), jnp.ones((0, ACTION))), "horizon of 0"),
        (lambda m: m.rollout(jnp.ones(STATE), jnp.ones((4, ACTION)), durations=jnp.ones(3)), "durations has shape"),
        (lambda m: m.rollout(jnp.ones(STATE), jnp.ones((4, ACTION)), reencode_every=0), "reencode_every is 0"),
        (lambda m: m.rollout_from(jnp.ones(9), jnp.ones((4, ACTION))), r"latent has shape \(9,\)"),
    ],
)
def test_wrong_shapes(model, call, message, unchecked_shapes):
    with pytest.raises(KoopaxError, match=message):
        call(model)


def test_an_odd_latent_size_is_refused():
    with pytest.raises(KoopaxError, match="latent_size 9"):
        DynamicsModel.create("koopman", episodes(), latent_size=9, key=jax.random.key(0))


# Files.


def test_a_file_of_an_earlier_version_predicts_what_it_did():
    files = Path(__file__).parent / "files"
    recorded = json.loads((files / "format1.json").read_text())
    predicted = load_model(files / "format1.koopax").rollout(recorded["state"], recorded["actions"])
    np.testing.assert_allclose(predicted.states, recorded["states"], rtol=1e-5)
    np.testing.assert_allclose(predicted.rewards, recorded["rewards"], rtol=1e-5)


@pytest.mark.parametrize("spectrum", ["multiscale", "paper", "paper-learnable"])
def test_a_loaded_model_predicts_bit_for_bit_the_same(tmp_path, case, spectrum):
    model = DynamicsModel.create("koopman", episodes(), latent_size=8, key=jax.random.key(2), spectrum=spectrum)
    model.save(tmp_path / "deep" / "model.koopax")
    loaded = load_model(tmp_path / "deep" / "model.koopax")
    assert loaded.config == model.config
    before, after = model.rollout(*case), loaded.rollout(*case)
    assert np.array_equal(before.states, after.states)
    assert np.array_equal(before.rewards, after.rewards)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "model.koopax"
    DynamicsModel.create("koopman", episodes(), latent_size=4, key=jax.random.key(2)).save(path)
    return path.read_bytes()


@given(data=st.data())
@settings(max_examples=200)
def test_one_flipped_byte_is_refused(tmp_path_factory, saved, data):
    position = data.draw(st.integers(0, len(saved) - 1))
    flip = data.draw(st.integers(1, 255))
    damaged = bytearray(saved)
    damaged[position] ^= flip
    path = tmp_path_factory.mktemp("damaged") / "model.koopax"
    path.write_bytes(damaged)
    with pytest.raises(KoopaxError, match=r"damaged|not a koopax model|has format"):
        load_model(path)


@given(data=st.data())
@settings(max_examples=20)
def test_a_truncated_file_is_refused(tmp_path_factory, saved, data):
    path = tmp_path_factory.mktemp("truncated") / "model.koopax"
    path.write_bytes(saved[: data.draw(st.integers(0, len(saved) - 1))])
    with pytest.raises(KoopaxError, match=r"damaged|not a koopax model"):
        load_model(path)


def resealed(saved, **changes):
    """The file with its header changed and a valid digest: what another version would have written."""
    import hashlib

    offset = len(MAGIC) + 12
    number, length = struct.unpack_from("<IQ", saved, len(MAGIC))
    header = json.loads(saved[offset : offset + length])
    number = changes.pop("format", number)
    header = header | changes
    text = json.dumps(header).encode()
    body = MAGIC + struct.pack("<IQ", number, len(text)) + text + saved[offset + length : -32]
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 99}, "format 99.*update koopax"),
        ({"config": {"core": "koopman"}}, "header can't be understood"),
        ({"arrays": []}, "another size than it says"),
        ({"config": None}, "header can't be understood"),
        ({"config": {"core": "koopman", "state_size": "a", "action_size": 2}}, "header can't be understood"),
        ({"config": {"core": "no such core", "state_size": 3, "action_size": 2}}, "unknown model 'no such core'"),
    ],
)
def test_a_foreign_version_is_refused(tmp_path, saved, changes, message):
    path = tmp_path / "model.koopax"
    path.write_bytes(resealed(saved, **changes))
    with pytest.raises(KoopaxError, match=message):
        load_model(path)


def test_a_missing_file_and_a_directory_that_cannot_be_written(tmp_path, model):
    with pytest.raises(KoopaxError, match="can't read"):
        load_model(tmp_path / "nothing.koopax")
    (tmp_path / "file").write_text("")
    with pytest.raises(KoopaxError, match="could not be written"):
        model.save(tmp_path / "file" / "model.koopax")


def test_a_run_folder_is_loaded_by_its_model(tmp_path, saved):
    with pytest.raises(KoopaxError, match=r"holds no model\.koopax"):
        load_model(tmp_path)
    (tmp_path / "model.koopax").write_bytes(saved)
    assert load_model(tmp_path).config.latent_size == 4


def test_options_are_listed_with_the_models_own():
    with pytest.raises(KoopaxError, match=r"model 'koopman' has no option 'latent': .*encoder_hidden.*latent_size"):
        DynamicsModel.create("koopman", episodes(), latent=8, key=jax.random.key(0))
