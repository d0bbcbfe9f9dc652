"""SAC in a learned simulator."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import koopax
from koopax.agents import ImaginationConfig, read_agent, train_imagination
from koopax.agents.imagination.agent import clone, imagine
from koopax.agents.imagination.train import Given, ImaginationTraining, make_world, read_runs, transitions
from koopax.planning.protocol import Box

CONFIG = ImaginationConfig(
    env="Pendulum-v1",
    steps=48,
    rollouts=6,
    rollout_length=2,
    updates_per_step=0.25,
    hidden_sizes=(8,),
    batch_size=8,
    clone_updates=4,
    evaluate_every=24,
    evaluate_episodes=1,
    checkpoint_seconds=0.0,
)


def pendulum_data(**changes):
    """Noise in the shapes of a pendulum, of which nothing has to be learned."""
    random = np.random.default_rng(0)
    lists = ([random.normal(size=(21, 3)) for _ in range(4)], [random.uniform(-2, 2, (20, 1)) for _ in range(4)])
    return koopax.Episodes.from_arrays(*lists, [random.normal(size=20) for _ in range(4)], **changes)


@pytest.fixture(scope="module")
def given():
    data = pendulum_data(environment="Pendulum-v1")
    small = {"latent_size": 4, "encoder_hidden": (4,), "decoder_hidden": (4,), "action_history": 2}
    small |= {"action_embedding": 2, "action_hidden": (3,)}
    models = [koopax.DynamicsModel.create("koopman", data, key=jax.random.key(k), **small) for k in range(2)]
    return Given(models, data)


def test_it_trains_stops_and_resumes_bit_for_bit(given, tmp_path):
    whole = train_imagination(CONFIG, tmp_path / "whole", given=given)
    assert [line["decisions"] for line in whole.metrics] == [0, 24, 48]
    assert [line["environment_steps"] for line in whole.metrics] == [0, 0, 0]
    assert whole.metrics[-1]["updates"] == 12
    assert whole.metrics[-1]["disagreement"] > 0
    assert "clone_loss" in whole.metrics[0]
    train_imagination(dataclasses.replace(CONFIG, steps=24), tmp_path / "parts", given=given)
    parts = train_imagination(CONFIG, tmp_path / "parts", given=given, resume=True)
    np.testing.assert_array_equal(parts.policy.weights[0], whole.policy.weights[0])
    assert parts.metrics[-1]["evaluation_returns"] == whole.metrics[-1]["evaluation_returns"]
    assert (tmp_path / "parts" / "policy.npz").is_file()
    assert [point.steps for point in read_agent(tmp_path / "whole").curve] == [0, 24, 48]


def test_imagined_transitions_are_the_models_own(given):
    """Slow twin: every imagined step again, by rollouts of the models from the data's states."""
    training = ImaginationTraining(CONFIG, given)
    training.start()
    config = dataclasses.replace(CONFIG, rollout_length=1)
    new, _ = imagine(training.world, training.learner, training.statistics, config, key=jax.random.key(1))
    states = np.asarray(training.world.starts)
    box, scale = Box(-2.0, 2.0), np.asarray(given.models[0].normaliser.state_std)
    for state, action, reward, after in zip(
        new.observations, new.actions, new.rewards, new.next_observations, strict=True
    ):
        assert np.abs(states - state).max(axis=1).min() == 0
        found = [model.rollout(state, box.from_unit(action)[None]) for model in given.models]
        predicted = np.stack([each.states[0] for each in found])
        apart = np.sqrt(np.mean(np.var(predicted / scale, axis=0)))
        deviation = float(given.models[0].normaliser.reward_std)
        np.testing.assert_allclose(after, predicted.mean(0), rtol=1e-4, atol=1e-4)
        wanted = np.mean([each.rewards[0] for each in found]) - CONFIG.penalty * deviation * apart
        assert float(reward) == pytest.approx(wanted, rel=1e-3, abs=1e-4)
    assert np.asarray(new.continues).all()


def test_cloning_finds_the_datas_actions():
    """Data whose action is a function of the state is imitated."""
    random = np.random.default_rng(0)
    states = [random.normal(size=(101, 3)) for _ in range(4)]
    actions = [np.tanh(each[:-1, :1]) for each in states]
    data = koopax.Episodes.from_arrays(states, actions, [np.zeros(100)] * 4)
    models = [koopax.DynamicsModel.create("dmdc", data, key=jax.random.key(0))]
    config = dataclasses.replace(CONFIG, hidden_sizes=(32,), batch_size=64)
    training = ImaginationTraining(config, Given(models, data))
    training.start()
    _, loss = clone(training.learner, training.data, training.statistics, config, 2000)
    assert float(loss) < 0.1 * float(np.var(np.concatenate(actions) / 2))


def test_steps_of_the_data_and_where_they_end(given):
    data = pendulum_data(terminated=[True, False, False, False])
    steps = transitions(data, Box(-2.0, 2.0))
    assert steps.rewards.shape == (80,)
    assert np.flatnonzero(np.asarray(steps.continues) == 0).tolist() == [19]
    np.testing.assert_array_equal(steps.next_observations[19], data[0].observations[20])
    np.testing.assert_allclose(steps.actions[20], data[1].actions[0] / 2, rtol=1e-6)
    limits = make_world(given._replace(episodes=data), CONFIG, np.array([-2.0]), np.array([2.0])).simulator.limits
    assert np.isfinite(limits.low).all()
    assert not np.isfinite(make_world(given, CONFIG, np.array([-2.0]), np.array([2.0])).simulator.limits.low).any()


def test_bad_input(given, tmp_path):
    with pytest.raises(koopax.KoopaxError, match="'MountainCarContinuous-v0' has 2 observations and 1 actions"):
        train_imagination(dataclasses.replace(CONFIG, env="MountainCarContinuous-v0"), tmp_path / "a", given=given)
    random = np.random.default_rng(0)
    silent = koopax.Episodes.from_arrays([random.normal(size=(5, 3))], [random.normal(size=(4, 1))])
    with pytest.raises(koopax.KoopaxError, match="the data has no rewards"):
        train_imagination(CONFIG, tmp_path / "b", given=given._replace(episodes=silent))
    with pytest.raises(koopax.KoopaxError, match="imagination needs a trained model"):
        read_runs(())
    with pytest.raises(koopax.KoopaxError, match=r"imagined_share is 2"):
        dataclasses.replace(CONFIG, imagined_share=2.0)
    assert not (tmp_path / "a").exists()
    assert json.dumps(dataclasses.asdict(CONFIG))
