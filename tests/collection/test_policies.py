"""Policies: the network against a twin, files, names."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koopax._errors import KoopaxError
from koopax.collection.policies import (
    LOG_STD_RANGE,
    WEIGHTS,
    FunctionPolicy,
    GaussianPolicy,
    Policy,
    RandomPolicy,
    load_policy,
    resolve_policy,
    shipped_policies,
)

LOW, HIGH = np.array([-1.0, 0.0], np.float32), np.array([3.0, 0.5], np.float32)


def make_policy(seed=0, **changes):
    rng = np.random.default_rng(seed)
    sizes = [(4, 8), (8, 6), (6, 4)]
    fields = {
        "weights": tuple(rng.normal(size=size).astype(np.float32) for size in sizes),
        "biases": tuple(rng.normal(size=size[1]).astype(np.float32) for size in sizes),
        "observation_mean": rng.normal(size=4).astype(np.float32),
        "observation_deviation": rng.uniform(0.5, 2, 4).astype(np.float32),
        "low": LOW,
        "high": HIGH,
        "provenance": {"env": "Some-v1", "seed": seed},
    }
    return GaussianPolicy(**fields | changes)


def test_network_equals_its_definition():
    policy = make_policy()
    observations = np.random.default_rng(1).normal(size=(5, 4))
    actions = policy.act(observations, np.random.default_rng(2))
    noise = np.random.default_rng(2).standard_normal((5, 2), dtype=np.float32)
    for row, observation in enumerate(observations):
        x = [(observation[i] - policy.observation_mean[i]) / policy.observation_deviation[i] for i in range(4)]
        x = [min(max(value, -10), 10) for value in x]
        for layer in range(3):
            weight, bias = policy.weights[layer], policy.biases[layer]
            x = [sum(x[i] * weight[i, j] for i in range(len(x))) + bias[j] for j in range(len(bias))]
            if layer < 2:
                x = [max(value, 0) for value in x]
        for j in range(2):
            low, high = LOG_STD_RANGE
            std = np.exp(low + (high - low) * (np.tanh(x[2 + j]) + 1) / 2)
            squashed = np.tanh(x[j] + std * noise[row, j])
            assert actions[row, j] == pytest.approx(LOW[j] + (HIGH[j] - LOW[j]) * (squashed + 1) / 2, abs=1e-4)


@given(st.integers(0, 100), st.floats(0.01, 1e4))
def test_actions_stay_in_bounds(seed, scale):
    rng = np.random.default_rng(seed)
    observations = scale * rng.normal(size=(20, 4))
    for policy in (make_policy(seed), make_policy(seed).with_deterministic(True), RandomPolicy(LOW, HIGH)):
        actions = policy.act(observations, rng)
        assert actions.shape == (20, 2)
        assert actions.dtype == np.float32
        assert np.all((actions >= LOW - 1e-6) & (actions <= HIGH + 1e-6))
        assert isinstance(policy, Policy)


def test_deterministic_ignores_the_generator_and_stochastic_follows_it():
    policy, observations = make_policy(), np.random.default_rng(0).normal(size=(6, 4))
    act = lambda p, seed: p.act(observations, np.random.default_rng(seed))  # noqa: E731
    np.testing.assert_array_equal(act(policy.with_deterministic(True), 0), act(policy.with_deterministic(True), 1))
    np.testing.assert_array_equal(act(policy, 0), act(policy, 0))
    assert not np.array_equal(act(policy, 0), act(policy, 1))


def test_the_order_of_sums_is_not_seen_in_actions():
    """What a processor adds up in another order, as one does with hidden units in another order, acts alike."""
    policy = load_policy(WEIGHTS / "walker2d-expert.npz")
    observations = np.random.default_rng(0).normal(size=(500, len(policy.observation_mean)))
    order = np.random.default_rng(1).permutation(policy.weights[0].shape[1])
    first, second, *rest = policy.weights
    other = dataclasses.replace(
        policy,
        weights=(first[:, order], second[order], *rest),
        biases=(policy.biases[0][order], *policy.biases[1:]),
    )
    act = lambda p: p.act(observations, np.random.default_rng(2))  # noqa: E731
    np.testing.assert_array_equal(act(policy), act(other))


def test_file_round_trip(tmp_path):
    policy = make_policy()
    policy.save(tmp_path / "p.npz")
    again = load_policy(tmp_path / "p.npz")
    assert again.provenance == policy.provenance
    observations = np.random.default_rng(0).normal(size=(30, 4))
    rngs = np.random.default_rng(3), np.random.default_rng(3)
    np.testing.assert_allclose(again.act(observations, rngs[0]), policy.act(observations, rngs[1]), atol=0.05)
    with np.load(tmp_path / "p.npz", allow_pickle=False) as file:
        assert file["weight_0"].dtype == np.float16
    assert [path.name for path in tmp_path.iterdir()] == ["p.npz"]
    again.save(tmp_path / "q.npz")
    assert (tmp_path / "q.npz").read_bytes() == (tmp_path / "p.npz").read_bytes()


def test_pickled_and_damaged_files_are_refused(tmp_path):
    np.savez(tmp_path / "evil.npz", provenance=np.array([{"a": 1}], dtype=object))
    make_policy().save(tmp_path / "cut.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:200])
    (tmp_path / "text.npz").write_text("hello")
    for name in ("evil", "cut", "text"):
        with pytest.raises(KoopaxError, match="is not a policy"):
            load_policy(tmp_path / f"{name}.npz")
    with pytest.raises(KoopaxError, match="no policy file"):
        load_policy(tmp_path / "missing.npz")


def half(observations, rng):
    return np.full((len(observations), 2), 0.5)


def test_resolves_every_kind_of_name(tmp_path):
    make_policy().save(tmp_path / "p.npz")
    assert isinstance(resolve_policy("random", LOW, HIGH), RandomPolicy)
    assert isinstance(resolve_policy(str(tmp_path / "p.npz"), LOW, HIGH), GaussianPolicy)
    function = resolve_policy(f"{__name__}:half", LOW, HIGH)
    assert isinstance(function, FunctionPolicy)
    np.testing.assert_array_equal(function.act(np.zeros((3, 4)), np.random.default_rng(0)), 0.5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("halfcheetah-expret", "unknown policy"),
        ("no_such_module:f", "can't be imported"),
        ("math:nothing", "can't be imported"),
        ("math:pi", "not a function"),
        ("nothing.npz", "no policy file"),
    ],
)
def test_bad_names(name, message):
    with pytest.raises(KoopaxError, match=message):
        resolve_policy(name, LOW, HIGH)


def test_policy_of_another_environment_is_refused(tmp_path):
    make_policy().save(tmp_path / "p.npz")
    with pytest.raises(KoopaxError, match="2 action components but the environment has 6"):
        resolve_policy(str(tmp_path / "p.npz"), np.zeros(6), np.ones(6))


@pytest.mark.parametrize("name", shipped_policies())
def test_shipped_policies_load_and_say_where_they_come_from(name):
    from koopax.envs import action_bounds, make

    prefix = name.split("-")[0]
    env = make({"hopper": "Hopper-v5", "walker2d": "Walker2d-v5", "halfcheetah": "HalfCheetah-v5"}[prefix])
    policy = resolve_policy(name, *action_bounds(env))
    assert isinstance(policy, GaussianPolicy)
    wanted = {"env", "command", "seed", "training_steps", "return_mean", "koopax"}
    assert wanted <= policy.provenance.keys()
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(policy.act(observation[None], np.random.default_rng(0))[0])
