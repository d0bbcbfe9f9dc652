import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from episode_samples import assert_equal, mapped, random_episodes
from koopax._errors import KoopaxError, KoopaxWarning
from koopax.data import Episodes, Normaliser

lengths = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def test_rows_are_aligned_and_padded():
    episodes = Episodes.from_arrays([[[0], [1], [2]], [[3], [4]]], [[[5], [6]], [[7]]], [[8, 9], [10]])
    np.testing.assert_array_equal(episodes.observations[:, 0], [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(episodes.actions[:, 0], [5, 6, 0, 7, 0])
    np.testing.assert_array_equal(episodes.rewards, [8, 9, 0, 10, 0])
    np.testing.assert_array_equal(episodes.starts, [0, 3, 5])
    assert (episodes.num_episodes, episodes.num_steps, episodes.state_size, episodes.action_size) == (2, 3, 1, 1)
    assert episodes.observations.dtype == episodes.actions.dtype == episodes.rewards.dtype == np.float32
    np.testing.assert_array_equal(episodes.lengths, [2, 1])
    np.testing.assert_array_equal(episodes.returns, [17, 10])
    assert episodes.durations is None


@given(lengths, st.booleans(), st.integers(0, 3))
def test_episode_gives_back_what_went_in(lengths, irregular, seed):
    generator = np.random.default_rng(seed)
    observations = [generator.normal(size=(n + 1, 3)).astype("f4") for n in lengths]
    actions = [generator.normal(size=(n, 2)).astype("f4") for n in lengths]
    rewards = [generator.normal(size=n).astype("f4") for n in lengths]
    durations = [generator.uniform(0.5, 2, n).astype("f4") for n in lengths] if irregular else None
    episodes = Episodes.from_arrays(observations, actions, rewards, durations=durations)
    assert episodes.num_steps == sum(lengths)
    for i in range(len(lengths)):
        episode = episodes.episode(i)
        np.testing.assert_array_equal(episode.observations, observations[i])
        np.testing.assert_array_equal(episode.actions, actions[i])
        np.testing.assert_array_equal(episode.rewards, rewards[i])
        if durations is not None:
            np.testing.assert_array_equal(episode.durations, durations[i])
    np.testing.assert_allclose(episodes.returns, [r.astype(float).sum() for r in rewards], rtol=1e-6, atol=1e-6)


def test_a_set_is_a_sequence_of_episodes():
    episodes = random_episodes([3, 1, 2, 5], sources=["a", "b", "a", "b"])
    assert len(episodes) == 4
    for i, episode in enumerate(episodes):
        for left, right in zip(episode, episodes[i], strict=True):
            np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(episodes[-1].rewards, episodes.episode(3).rewards)
    np.testing.assert_array_equal(episodes[np.int64(2)].rewards, episodes.episode(2).rewards)
    assert_equal(episodes[1:3], episodes.select([1, 2]))
    assert_equal(episodes[::-2], episodes.select([3, 1]))
    assert_equal(episodes[[0, -1]], episodes.select([0, 3]))
    assert_equal(episodes[episodes.lengths > 2], episodes.select([0, 3]))
    with pytest.raises(IndexError):
        episodes[4]
    with pytest.raises(KoopaxError, match="no episode of 4 is selected"):
        episodes[4:]
    with pytest.raises(TypeError):
        episodes["a"]


def test_the_repr_is_short():
    assert repr(random_episodes([3, 1])) == "Episodes(2 episodes, 4 steps, 3 states, 2 actions)"
    irregular = random_episodes([1], states=1, actions=1, irregular=True, environment="Hopper-v5")
    assert repr(irregular) == "Episodes(1 episode, 1 step, 1 state, 1 action, irregular steps, Hopper-v5)"
    assert "no rewards" in repr(Episodes.from_arrays([[[0], [1]]], [[[2]]]))
    one = repr(random_episodes([3, 1])[0])
    assert one.startswith("Episode(3 steps, observations (4, 3), actions (3, 2), "), one


def test_a_set_without_rewards_says_so():
    episodes = Episodes.from_arrays([[[0], [1], [2]], [[3], [4]]], [[[5], [6]], [[7]]])
    assert not episodes.has_rewards
    np.testing.assert_array_equal(episodes.rewards, np.zeros(5))
    assert not episodes[:1].has_rewards
    rewarded = Episodes.from_arrays([[[0], [1]]], [[[2]]], [[0]])
    assert rewarded.has_rewards
    for parts in ([episodes, rewarded], [rewarded, episodes]):
        assert not Episodes.concatenate(parts).has_rewards


@given(
    st.lists(st.sampled_from("abc"), min_size=2, max_size=30), st.floats(0.05, 0.95), st.integers(0, 100), st.booleans()
)
def test_split_is_disjoint_complete_and_stratified(sources, fraction, seed, irregular):
    count = len(sources)
    episodes = Episodes.from_arrays(
        [np.full((2, 1), i) for i in range(count)], np.zeros((count, 1, 1)), np.zeros((count, 1)), sources=sources
    )
    train, test = episodes.split(fraction, seed=seed)
    left, right = (set(part.observations[:, 0].astype(int).tolist()) for part in (train, test))
    assert left
    assert right
    assert not left & right
    assert left | right == set(range(count))
    for source in set(sources):
        total, kept = sources.count(source), sum(sources[i] == source for i in left)
        if total > 1:
            assert 1 <= kept <= total - 1
            assert abs(kept - fraction * total) <= 1
    again, _ = episodes.split(fraction, seed=seed)
    assert_equal(train, again)


def test_split_depends_on_the_seed():
    episodes = random_episodes([3] * 50)
    first, second = (episodes.split(0.5, seed=seed)[0] for seed in (0, 1))
    assert not np.array_equal(first.observations, second.observations)


@given(lengths, st.booleans(), st.integers(0, 5))
def test_memory_mapped_sets_give_the_same_results(tmp_path_factory, lengths, irregular, seed):
    lengths = [*lengths, 4]
    sources = [f"policy-{i % 3}" for i in range(len(lengths))]
    episodes = random_episodes(lengths, seed=seed, irregular=irregular, sources=sources)
    on_disk = mapped(episodes, tmp_path_factory.mktemp("map"))
    assert on_disk.is_memory_mapped
    assert_equal(episodes, on_disk)
    for here, there in zip(episodes.split(0.6, seed), on_disk.split(0.6, seed), strict=True):
        assert there.is_memory_mapped
        assert_equal(here, there)
        assert_equal(here, there.in_memory())
        chosen = np.random.default_rng(seed).integers(0, here.num_episodes, 5)
        assert_equal(here.select(chosen), there.select(chosen))
        np.testing.assert_array_equal(here.returns, there.returns)
        joined = Episodes.concatenate([there, on_disk, there])
        assert joined.is_memory_mapped
        assert_equal(Episodes.concatenate([here, episodes, here]), joined)
        for index in (0, -1, slice(1, 3), slice(None, None, 2), np.array([[0, 1], [-1, 0]]), slice(2, 2)):
            np.testing.assert_array_equal(np.asarray(here.observations)[index], there.observations[index])
        for a, b in zip(here.episode(0)[:3], there.episode(0)[:3], strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(IndexError):
        on_disk.split(0.5, 0)[0].observations[np.array([10_000])]


def test_concatenate_merges_sources_by_name_and_keeps_what_agrees():
    a = random_episodes([2, 3], sources=["x", "y"], environment="Hopper-v5", step_seconds=0.01)
    b = random_episodes([4], sources=["y"], environment="Hopper-v5", irregular=True)
    both = Episodes.concatenate([a, b])
    assert both.metadata.source_names == ("x", "y")
    np.testing.assert_array_equal(both.sources, [0, 1, 1])
    assert both.metadata.environment == "Hopper-v5"
    assert both.metadata.step_seconds is None
    np.testing.assert_array_equal(both.episode(0).durations, [1, 1])
    np.testing.assert_array_equal(both.episode(2).durations, b.episode(0).durations)


def test_statistics_leave_padding_out(tmp_path):
    episodes = random_episodes([5, 1, 8], seed=3)
    found = episodes.statistics()
    parts = [episodes.episode(i) for i in range(3)]
    for columns, arrays in (
        (found.state, [p.observations for p in parts]),
        (found.action, [p.actions for p in parts]),
        (found.reward, [p.rewards[:, None] for p in parts]),
    ):
        values = np.concatenate(arrays).astype(np.float64)
        np.testing.assert_allclose(columns.mean, values.mean(0), rtol=1e-12)
        np.testing.assert_allclose(columns.std, values.std(0), rtol=1e-12)
        np.testing.assert_array_equal(columns.minimum, values.min(0))
        np.testing.assert_array_equal(columns.maximum, values.max(0))
        assert not columns.constant.any()


def test_statistics_stream_over_many_chunks(monkeypatch):
    episodes = random_episodes([7] * 40, seed=1)
    whole = episodes.statistics()
    from koopax.data import statistics

    monkeypatch.setattr(statistics.iterate_chunks, "__defaults__", (16,))
    chunked = episodes.statistics()
    for kind in ("state", "action", "reward"):
        for name in ("mean", "std", "minimum", "maximum"):
            np.testing.assert_allclose(
                getattr(getattr(chunked, kind), name), getattr(getattr(whole, kind), name), rtol=1e-12
            )


def test_normaliser_has_zero_mean_and_unit_variance_and_inverts(tmp_path):
    episodes = random_episodes([50, 30], seed=2)
    shifted = dataclasses.replace(episodes, observations=episodes.observations * np.float32(40) + np.float32(1000))
    for data in (shifted, mapped(shifted, tmp_path)):
        normaliser = Normaliser.fit(data)
        states = normaliser.normalise_state(jnp.asarray(data.observations))
        np.testing.assert_allclose(states.mean(0), 0, atol=1e-4)
        np.testing.assert_allclose(states.std(0), 1, atol=1e-4)
        np.testing.assert_allclose(normaliser.denormalise_state(states), np.asarray(data.observations), rtol=1e-5)
        actions = jnp.concatenate([data.episode(i).actions for i in range(2)])
        np.testing.assert_allclose(normaliser.normalise_action(actions).std(0), 1, atol=1e-4)
        rewards = jnp.concatenate([data.episode(i).rewards for i in range(2)])
        normal = normaliser.normalise_reward(rewards)
        np.testing.assert_allclose([normal.mean(), normal.std()], [0, 1], atol=1e-4)
        np.testing.assert_allclose(normaliser.denormalise_reward(normal), rewards, atol=1e-5)
        np.testing.assert_allclose(
            normaliser.denormalise_action(normaliser.normalise_action(actions)), actions, atol=1e-5
        )


@pytest.mark.parametrize("value", [0.0, 1.0, -3e5, 0.1, 1e-12])
def test_constant_columns_are_not_divided_by_nothing(value):
    episodes = Episodes.from_arrays([np.full((101, 1), value)], [np.full((100, 1), value)], [np.full(100, value)])
    normaliser = Normaliser.fit(episodes)
    assert float(normaliser.state_std[0]) == float(normaliser.action_std[0]) == float(normaliser.reward_std) == 1.0
    np.testing.assert_allclose(normaliser.normalise_state(jnp.asarray(episodes.observations)), 0, atol=0.1)


def test_no_gradient_reaches_the_normaliser():
    import equinox as eqx
    import jax

    normaliser = Normaliser.fit(random_episodes([20]))
    gradient = eqx.filter_grad(lambda n: n.denormalise_state(n.normalise_state(jnp.ones(3)) ** 2).sum())(normaliser)
    assert all(not leaf.any() for leaf in jax.tree.leaves(gradient))


def test_identity_normaliser_changes_nothing():
    normaliser = Normaliser.identity(3, 2)
    np.testing.assert_array_equal(normaliser.normalise_state(jnp.arange(3.0)), np.arange(3.0))
    np.testing.assert_array_equal(normaliser.denormalise_reward(jnp.float32(2.0)), 2.0)


BAD = {
    "empty": (([], [], []), {}, "the set is empty"),
    "count": (([np.ones((2, 1))], [], []), {}, "0 actions for 1 observation arrays"),
    "length": (([np.ones((3, 1))], [np.ones((3, 1))], [np.ones(3)]), {}, "3 actions and 3 observations"),
    "rewards": (([np.ones((3, 1))], [np.ones((2, 1))], [np.ones(3)]), {}, "2 actions and 3 rewards"),
    "no step": (([np.ones((1, 1))], [np.ones((0, 1))], [np.ones(0)]), {}, "episode 0 has no step"),
    "axes": (([np.ones(3)], [np.ones((2, 1))], [np.ones(2)]), {}, r"have shape \(3,\)"),
    "text": (([[["a"], ["b"]]], [[[1]]], [[1]]), {}, "not numbers"),
    "columns": (
        ([np.ones((2, 1)), np.ones((2, 2))], [np.ones((1, 1))] * 2, [np.ones(1)] * 2),
        {},
        "of episode 1 have 2 columns",
    ),
    "names": (([np.ones((2, 1))], [np.ones((1, 1))], [np.ones(1)]), {"state_names": ["a", "b"]}, "2 state names for 1"),
    "infinite": (
        ([np.ones((2, 1)), [[1.0], [np.inf]]], [np.ones((1, 1))] * 2, [np.ones(1)] * 2),
        {},
        r"observations of episode 1 hold inf \(row 1, column 0\)",
    ),
    "overflow": (([[[1e300], [1.0]]], [[[1]]], [[1]]), {}, r"episode 0 hold inf"),
    "nan reward": (
        ([np.ones((3, 1))], [np.ones((2, 1))], [[1, np.nan]]),
        {},
        r"rewards of episode 0 hold nan \(row 1\)",
    ),
    "backwards": (([np.ones((2, 1))], [np.ones((1, 1))], [np.ones(1)]), {"durations": [[-1]]}, "must increase"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays_are_one_sentence(case):
    arrays, options, message = BAD[case]
    with pytest.raises(KoopaxError, match=message) as caught:
        Episodes.from_arrays(*arrays, **options)
    assert "\n" not in str(caught.value)


def test_bad_requests():
    episodes = random_episodes([3])
    with pytest.raises(KoopaxError, match="single episode cannot be split"):
        episodes.split(0.8, 0)
    with pytest.raises(KoopaxError, match=r"fraction of 1\.0"):
        random_episodes([3, 3]).split(1.0, 0)
    with pytest.raises(KoopaxError, match="no episode of 1 is selected"):
        episodes.select([])
    with pytest.raises(KoopaxError, match="episode 4 is asked for"):
        episodes.select([4])
    with pytest.raises(IndexError):
        episodes.episode(1)
    with pytest.raises(KoopaxError, match="different"):
        Episodes.concatenate([episodes, random_episodes([3], states=4)])
    with pytest.raises(KoopaxError, match="nothing to concatenate"):
        Episodes.concatenate([])
    with pytest.raises(KoopaxError, match="rewards has 3 rows"):
        dataclasses.replace(episodes, rewards=np.zeros(3, np.float32)).validate()


def test_check_false_keeps_nan():
    episodes = Episodes.from_arrays([[[np.nan], [1.0]]], [[[1]]], [[1]], check=False)
    assert np.isnan(episodes.observations[0, 0])


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1.0, 1e6, 1e12])
def test_units_do_not_matter(unit):
    rng = np.random.default_rng(0)
    states, actions = rng.normal(size=(2, 9, 3)), rng.normal(size=(2, 8, 2))
    plain, scaled = (Episodes.from_arrays(s * states, s * actions, s * states[:, :-1, 0]) for s in (1.0, unit))
    one, other = Normaliser.fit(plain), Normaliser.fit(scaled)
    assert not scaled.statistics().state.constant.any()
    for name, normalise in (("observations", "normalise_state"), ("actions", "normalise_action")):
        expected, found = (
            getattr(scale, normalise)(jnp.asarray(getattr(data, name)[:8]))
            for scale, data in ((one, plain), (other, scaled))
        )
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_scales_that_cannot_be_squared_are_told_or_refused():
    rng = np.random.default_rng(0)
    states, actions = rng.normal(size=(2, 9, 3)), rng.normal(size=(2, 8, 2))
    with pytest.warns(KoopaxWarning, match=r"action column 0 varies by .*e-2. only and counts as constant"):
        Normaliser.fit(Episodes.from_arrays(states, actions * 1e-20))
    with pytest.raises(KoopaxError, match=r"state column 0 has a standard deviation of .*e\+(19|20),.*larger unit"):
        Normaliser.fit(Episodes.from_arrays(states * 1e20, actions))
