"""SAC from pixels: its parts against slow twins, what differs between the arms, and what collapse looks like."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from koopax._errors import KoopaxError
from koopax.agents import PixelSACConfig, pixel_arm
from koopax.agents.pixels.agent import Keys, act, learn, make_learner, stacked
from koopax.agents.pixels.augmentation import random_shift
from koopax.agents.pixels.losses import self_prediction_loss, spread_and_rank
from koopax.agents.pixels.networks import SelfPrediction
from koopax.agents.pixels.replay import FrameReplay

TINY = {"image_size": 32, "shift": 2, "hidden": (16,), "latent_size": 16, "batch_size": 8, "prediction_batch": 4}


def full_replay(config):
    rng = np.random.default_rng(0)
    replay = FrameReplay(1, 60, config.image_size, 2, frame_stack=config.frame_stack)

    def frame():
        return rng.integers(0, 256, (config.image_size, config.image_size, 3), np.uint8)

    replay.begin(0, frame())
    for _ in range(50):
        replay.add(0, rng.uniform(-1, 1, 2).astype(np.float32), rng.random(), False, frame())
    return replay


def batches(config, count=1):
    windows = config.prediction_batch if config.predicts else 0
    return full_replay(config).sample(
        count,
        config.batch_size,
        discount=config.discount,
        return_steps=config.return_steps,
        windows=windows,
        horizon=config.horizon,
        stride=config.stride,
        rng=np.random.default_rng(1),
    )


def test_a_shift_moves_every_image_by_its_own_offset():
    images = np.random.default_rng(0).integers(0, 256, (30, 7, 6, 3), np.uint8)
    shifted = np.asarray(random_shift(jnp.asarray(images), 2, key=jax.random.key(0)))
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)), mode="edge")
    found = set()
    for image, moved in zip(padded, shifted, strict=True):
        offsets = [(y, x) for y in range(5) for x in range(5) if (image[y : y + 7, x : x + 6] == moved).all()]
        assert offsets
        found.add(offsets[0])
    assert len(found) > 10
    assert random_shift(jnp.asarray(images), 0, key=jax.random.key(0)).shape == images.shape


def test_frames_are_stacked_in_the_order_of_time():
    frames = np.random.default_rng(0).integers(0, 256, (2, 5, 3, 4, 4, 3), np.uint8)
    images = stacked(jnp.asarray(frames))
    assert images.shape == (10, 4, 4, 9)
    for k in range(3):
        np.testing.assert_array_equal(images[7, :, :, 3 * k : 3 * k + 3], frames[1, 2, k])


def test_the_loss_counts_what_is_inside_of_an_episode_and_moves_predictions_alone():
    predicted, targets = jnp.ones((2, 3, 4)), jnp.zeros((2, 3, 4))
    inside = jnp.array([[1.0, 1, 1], [1, 0, 0]])
    assert self_prediction_loss(predicted, targets, inside) == pytest.approx(4.0)
    assert self_prediction_loss(predicted, targets, 0 * inside) == 0
    assert not jax.grad(self_prediction_loss, 1)(predicted, targets, inside).any()
    assert not jax.grad(self_prediction_loss)(predicted, targets, inside)[1, 1:].any()


def test_spread_and_rank_tell_a_collapse():
    rng = np.random.default_rng(0)
    healthy = jnp.asarray(rng.normal(size=(500, 10)), jnp.float32)
    spread, rank = spread_and_rank(healthy)
    assert (spread, rank) == (pytest.approx(1, abs=0.1), pytest.approx(10, abs=0.5))
    line = healthy[:, :1] * jnp.ones(10)
    assert spread_and_rank(line)[1] == pytest.approx(1, abs=1e-3)
    assert spread_and_rank(0 * healthy + 3.0)[0] == pytest.approx(0, abs=1e-5)


@pytest.mark.quick("koopman")
@pytest.mark.parametrize("dynamics", ["koopman", "mlp"])
def test_predictions_at_some_steps_are_those_of_all_steps(dynamics):
    config = pixel_arm(dynamics, **TINY, horizon=7)
    prediction = SelfPrediction(config, 2, key=jax.random.key(0))
    start = jax.random.normal(jax.random.key(1), (3, config.representation_size))
    actions = jax.random.normal(jax.random.key(2), (7, 3, 2))
    every = prediction(start, actions, stride=1, first=jnp.int32(0))
    some = prediction(start, actions, stride=3, first=jnp.int32(1))
    np.testing.assert_allclose(some[:2], every[jnp.array([1, 4])], atol=1e-5)


def test_arms_differ_by_their_core_alone():
    plain, mlp, koopman = (make_learner(pixel_arm(name, **TINY), 2) for name in ("none", "mlp", "koopman"))
    assert plain.model.prediction is None
    for arm in (mlp, koopman):
        shared = (arm.model.representation, arm.model.critics, arm.actor)
        assert eqx.tree_equal(shared, (plain.model.representation, plain.model.critics, plain.actor))
    assert mlp.model.prediction.projector.layers[0].weight.shape == (16, 50)
    assert eqx.tree_equal(mlp.model.prediction.decoder, koopman.model.prediction.decoder)


@pytest.mark.quick("koopman")
@pytest.mark.parametrize("dynamics", ["none", "mlp", "koopman"])
def test_an_update_moves_all_that_learns_and_targets_follow(dynamics):
    config = pixel_arm(dynamics, **TINY, target_every=1)
    before = make_learner(config, 2)
    kept = jax.tree.map(jnp.copy, before)
    after, metrics = learn(before, batches(config), config.compiled(), key=Keys.of(0).learning)
    for part in (lambda of: of.model.representation, lambda of: of.model.critics, lambda of: of.actor):
        pairs = zip(jax.tree.leaves(part(after)), jax.tree.leaves(part(kept)), strict=True)
        assert all((new != old).any() for new, old in pairs)
    assert after.log_temperature != kept.log_temperature
    for new, old, online in zip(
        *(jax.tree.leaves(t) for t in (after.targets, kept.targets, after.model.critics)), strict=True
    ):
        np.testing.assert_allclose(new, 0.99 * old + 0.01 * online, atol=1e-6)
    assert ("prediction_loss" in metrics) == (dynamics != "none")
    assert {"spread", "rank", "critic_loss", "q", "entropy", "temperature"} <= set(metrics)


def test_the_actor_waits_for_its_turn():
    config = pixel_arm("none", **TINY, target_every=2)
    learner = make_learner(config, 2)
    actor = jax.tree.map(jnp.copy, learner.actor)
    once, _ = learn(learner, batches(config), config.compiled(), key=Keys.of(0).learning)
    assert eqx.tree_equal(once.actor, actor)
    twice, _ = learn(once, batches(config), config.compiled(), key=Keys.of(0).learning)
    assert not eqx.tree_equal(twice.actor, actor)


def test_updates_in_one_call_are_updates_one_by_one():
    config = pixel_arm("koopman", **TINY)
    several = batches(config, count=3)
    together, _ = learn(make_learner(config, 2), several, config.compiled(), key=Keys.of(0).learning)
    alone = make_learner(config, 2)
    for i in range(3):
        one = jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], several)
        alone, _ = learn(alone, one, config.compiled(), key=Keys.of(0).learning)
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_actions_are_bounded_and_explore_by_their_number():
    config = pixel_arm("none", **TINY)
    learner, observed = make_learner(config, 2), full_replay(config).observation(0)[None]

    def at(number, explore):
        key = Keys.of(0).acting
        return act(learner.model, learner.actor, observed, number, config.compiled(), explore=explore, key=key)

    assert (jnp.abs(at(1, True)) < 1).all()
    assert (at(1, True) != at(2, True)).any()
    assert (at(1, False) == at(2, False)).all()


def test_seeds_and_tasks_share_what_is_compiled():
    one, other = pixel_arm("mlp", task="cheetah-run", seed=3), pixel_arm("mlp", task="walker-walk", num_envs=2)
    assert one.compiled() == other.compiled()
    assert one.compiled() != pixel_arm("mlp", horizon=20).compiled()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dynamics": "koopmann"}, "did you mean 'koopman'"),
        ({"image_size": 0}, "image_size is 0; it must be at least 1"),
        ({"shift": 48}, "shift is 48; it must be at least 0 and less"),
        ({"prediction_batch": 100}, "prediction_batch is 100; .* can't be larger than batch_size"),
        ({"replay_gib": 0.0}, "replay_gib is 0; it must be above 0"),
        ({"action_repeat": 0}, "action_repeat is 0; it must be at least 1"),
    ],
)
def test_settings_that_do_not_work_are_refused(changes, says):
    with pytest.raises(KoopaxError, match=says):
        PixelSACConfig(**changes)


def test_capacity_is_in_steps_or_gib():
    assert PixelSACConfig(replay_steps=1_000, num_envs=2).rows_per_env == 500
    frames = PixelSACConfig(image_size=84, replay_gib=2.0).rows_per_env
    assert frames == 2 * 2**30 // (84 * 84 * 3)
    assert frames > 100_000


def test_published_settings_are_the_papers():
    config = pixel_arm("koopman", published=True)
    assert (config.image_size, config.batch_size, config.encoder, config.shift) == (84, 512, "published", 4)
    assert (config.compared_steps, config.prediction_batch, config.return_steps) == (5, 512, 1)
    assert pixel_arm("koopman", batch_size=4).prediction_batch == 4
    assert dataclasses.replace(config, horizon=20).compared_steps == 20
