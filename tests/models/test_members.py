"""Members of a model: they know nothing of each other, and together they are the mean of as many models."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koopax import DynamicsModel, Episodes, KoopaxError, load_model
from koopax.data.windows import WindowSampler
from koopax.models.koopman import KoopmanCore
from koopax.models.members import dealt, joined, share_of
from koopax.models.presets import SMALL_DATA
from koopax.models.spectrum import make_spectrum
from koopax.planning.linearity import is_linear
from koopax.training.config import TrainConfig
from koopax.training.losses import loss_terms, reward_loss, state_loss

STATES, ACTIONS, MEMBERS, MODES, PILOT = 3, 2, 2, 6, 4
OPTIONS = {
    "latent_size": 2 * MODES,
    "encoder_hidden": (7,),
    "decoder_hidden": (8, 8),
    "reward_hidden": None,
    "action_embedding": 3,
    "action_hidden": (5,),
    "action_history": 2,
    "pilot_modes": PILOT,
}


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def episodes():
    rng = np.random.default_rng(0)
    lengths = (12, 15)
    return Episodes.from_arrays(
        [rng.normal(size=(n + 1, STATES)) for n in lengths],
        [rng.normal(size=(n, ACTIONS)) for n in lengths],
        [rng.normal(size=n) for n in lengths],
    )


def together(**options):
    return DynamicsModel.create(
        "koopman", episodes(), key=jax.random.key(0), **OPTIONS | {"members": MEMBERS} | options
    )


def alone(model, member):
    """The slow twin: a model of one member, with that member's share of everything."""
    own = {"latent_size": 2 * MODES // MEMBERS, "pilot_modes": PILOT // MEMBERS, "members": 1}
    single = DynamicsModel.create("koopman", episodes(), key=jax.random.key(1), **OPTIONS | own)
    core = model.core

    def modes(size):
        """Rows of a latent: the member's real parts and imaginary ones."""
        share = size // MEMBERS
        return np.r_[member * share : (member + 1) * share, size + member * share : size + (member + 1) * share]

    known = core.modes_size + core.remembered_actions * ACTIONS
    rows = np.r_[modes(MODES), core.modes_size : known, known + modes(PILOT)]
    own_modes, own_pilot = modes(MODES)[: MODES // MEMBERS], modes(PILOT)[: PILOT // MEMBERS]
    last = model.encoder.layers[-1]
    encoder = eqx.tree_at(
        lambda net: (net.layers[-1].weight, net.layers[-1].bias), model.encoder, (last.weight[rows], last.bias[rows])
    )
    of_core = {
        "spectrum": jax.tree.map(lambda leaf: leaf[own_modes], core.spectrum),
        "action_encoder": core.action_encoder.networks[member],
        "input_real": core.input_real[own_modes],
        "input_imag": core.input_imag[own_modes],
        "pilot": jax.tree.map(lambda leaf: leaf[own_pilot], core.pilot),
    }
    small = eqx.tree_at(lambda core: [getattr(core, name) for name in of_core], single.core, list(of_core.values()))
    parts = (encoder, small, model.decoder.networks[member])
    return eqx.tree_at(lambda own: (own.encoder, own.core, own.decoder), single, parts)


def example():
    rng = np.random.default_rng(1)
    return jnp.asarray(rng.normal(size=STATES)), jnp.asarray(rng.normal(size=(9, ACTIONS)))


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**31))
def test_shares_joined_are_the_whole(count, size, seed):
    whole = jnp.asarray(np.random.default_rng(seed).normal(size=(3, 2 * count * size)))
    np.testing.assert_array_equal(joined([share_of(whole, member, count) for member in range(count)]), whole)


def test_the_prediction_is_the_mean_of_the_members_alone():
    model, (state, actions) = together(), example()
    found = model.rollout(state, actions)
    each = [alone(model, member).rollout(state, actions) for member in range(MEMBERS)]
    assert np.abs(np.asarray(each[0].states) - each[1].states).max() > 1e-3
    np.testing.assert_allclose(found.states, np.mean([one.states for one in each], axis=0), rtol=1e-9)
    np.testing.assert_allclose(found.rewards, np.mean([one.rewards for one in each], axis=0), rtol=1e-9)


@pytest.mark.parametrize(
    "settings", [{"loss_stride": 1}, {"loss_stride": 3}, {"loss_stride": 2, "early_weight": 0.5, "early_starts": 3}]
)
def test_the_loss_is_the_mean_of_the_members_losses(settings):
    """So each is trained by itself: the loss of their mean would be lower."""
    model, config = together(), TrainConfig(horizon=11, consistency_weight=0.0, **settings)
    windows = WindowSampler(episodes(), horizon=11, past=model.past_steps).sample(jax.random.key(2), 5)

    @eqx.filter_jit
    def terms(of):
        return loss_terms(of, windows, config, key=jax.random.key(3))

    found, each = terms(model), [terms(alone(model, member)) for member in range(MEMBERS)]
    assert set(found) == {"state", "reward"}
    for name, value in found.items():
        np.testing.assert_allclose(value, np.mean([one[name] for one in each]), rtol=1e-9)


@given(st.integers(1, 3), st.floats(0, 1), st.integers(0, 2**31))
def test_a_joint_loss_is_partly_that_of_the_mean(members, joint, seed):
    rng = np.random.default_rng(seed)
    each, true, weight = rng.normal(size=(4, 5, members, 3)), rng.normal(size=(4, 5, 3)), rng.uniform(size=4)
    paid, reward = rng.normal(size=(4, 5, members)), rng.normal(size=(4, 5))

    def slow(each, true):
        """Window by window, member by member."""
        total = 0.0
        for step, window in np.ndindex(4, 5):
            own = [np.mean((one - true[step, window]) ** 2) for one in each[step, window]]
            of_mean = np.mean((np.mean(each[step, window], axis=0) - true[step, window]) ** 2)
            total += weight[step] * ((1 - joint) * np.mean(own) + joint * of_mean)
        return total / 20

    given_states = (each.reshape(4, -1, 3), true, weight)
    given_rewards = (paid.reshape(4, -1), reward, weight)
    np.testing.assert_allclose(state_loss(*map(jnp.asarray, given_states), joint), slow(each, true), rtol=1e-9)
    np.testing.assert_allclose(reward_loss(*map(jnp.asarray, given_rewards), joint), slow(paid, reward), rtol=1e-9)


def test_what_is_joint_is_so_in_the_first_steps_too():
    """Where members differ, what they miss differently is forgiven."""
    model = together()
    windows = WindowSampler(episodes(), horizon=11, past=model.past_steps).sample(jax.random.key(2), 5)

    @eqx.filter_jit
    def state_term(joint, early):
        config = TrainConfig(horizon=11, consistency_weight=0.0, early_weight=early, early_starts=3, joint_share=joint)
        return loss_terms(model, windows, config, key=jax.random.key(3))["state"]

    def early_part(joint):
        return (state_term(joint, 0.5) - state_term(joint, 0.0)) / 0.5

    assert early_part(1.0) < early_part(0.5) < early_part(0.0)
    np.testing.assert_allclose(early_part(0.5), (early_part(0.0) + early_part(1.0)) / 2, rtol=1e-9)


def test_a_member_learns_nothing_from_another():
    model, (state, actions) = together(), example()

    def second(own):
        latents = own.core.rollout(own.encode(state), actions)
        return jnp.sum(jax.vmap(own.decoder.each)(latents)[:, 1])

    gradient = eqx.filter_grad(second)(model)
    for part in (gradient.core.action_encoder.networks, gradient.decoder.networks):
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(part[0]))
        assert all(np.any(leaf) for leaf in jax.tree.leaves(part[1]))
    half = MODES // MEMBERS
    assert not np.any(gradient.core.input_real[:half])
    assert np.all(np.any(gradient.core.input_real[half:], axis=1))


def test_every_member_has_fast_and_slow_modes():
    spectrum = make_spectrum("multiscale", 12, key=jax.random.key(0))
    phases = np.split(np.asarray(dealt(spectrum, 12, 3).rates()[1]), 3)
    np.testing.assert_allclose(np.sort(np.concatenate(phases)), np.sort(spectrum.rates()[1]))
    assert all(own.min() < 0.25 * np.pi and own.max() > 0.75 * np.pi for own in phases)


def test_a_reward_head_is_all_members(tmp_path):
    model, (state, actions) = together(reward_hidden=(4,)), example()
    assert model.rollout(state, actions).rewards.shape == (9,)
    model.save(tmp_path / "model.koopax")
    np.testing.assert_array_equal(
        load_model(tmp_path / "model.koopax").rollout(state, actions).states, model.rollout(state, actions).states
    )


@pytest.mark.parametrize(
    ("options", "members"),
    [({}, 2), ({"latent_size": 512}, 2), ({"latent_size": 64}, 1), ({"latent_size": 64, "members": 2}, 2)],
)
def test_a_wide_latent_is_shared(options, members):
    rng = np.random.default_rng(0)
    data = Episodes.from_arrays([rng.normal(size=(SMALL_DATA + 1, 1))], [rng.normal(size=(SMALL_DATA, 1))])
    model = eqx.filter_eval_shape(
        lambda key: DynamicsModel.create("koopman", data, key=key, **options), jax.random.key(0)
    )
    assert model.core.members == members
    assert (model.core.pilot is None) == (options.get("latent_size") == 64)


@pytest.mark.parametrize("options", [{"members": 0}, {"members": 5}, {"members": 3, "pilot_modes": 4}])
def test_members_that_cannot_share(options):
    with pytest.raises(KoopaxError, match=r"members is \d: use 1 or more, and as many modes \(6\) and pilot modes"):
        KoopmanCore(12, 2, key=jax.random.key(0), **options)


def test_members_with_affine_networks_are_linear_in_actions():
    """Which is what a convex program needs of a model."""
    assert is_linear(together(action_hidden=(), decoder_hidden=()))
    assert not is_linear(together(action_hidden=()))
    assert not is_linear(together(decoder_hidden=()))
