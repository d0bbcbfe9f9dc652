"""A trained model as planners see it equals the model itself, one candidate at a time; and control loops."""

import warnings
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from koopax import DynamicsModel, Episodes, KoopaxError, KoopaxWarning
from koopax.models.latent import CORES
from koopax.planning.choice import make_search
from koopax.planning.control import control_environment
from koopax.planning.coverage import warn_of_narrow_actions
from koopax.planning.learned import LearnedModel, RewardedModel, load_reward
from koopax.planning.protocol import PlanningModel
from koopax.planning.trained import box_of, control_trained

STATES, ACTIONS, HORIZON, CANDIDATES = 3, 1, 5, 4
SMALL = {
    "koopman": {"action_embedding": 3, "action_hidden": (4,), "action_history": 3, "pilot_modes": 2, "context_size": 2},
    "mlp": {"hidden": 8},
    "gru": {},
    "transformer": {"layers": 1, "heads": 2, "feedforward": 8, "context": 8},
    "dssm": {"layers": 1, "state_size": 4},
    "linear": {},
}


@cache
def model(core, head=False, history=1):
    rng = np.random.default_rng(0)
    data = Episodes.from_arrays(
        [3 * rng.normal(size=(30, STATES)) + 1] * 3,
        [2 * rng.normal(size=(29, ACTIONS)) - 1] * 3,
        [5 * rng.normal(size=29) + 7] * 3,
    )
    options = {
        "latent_size": 8,
        "encoder_hidden": (6,),
        "decoder_hidden": (6,),
        "reward_hidden": (5,) if head else None,
        "history": history,
    }
    return DynamicsModel.create(core, data, key=jax.random.key(1), **options, **SMALL[core])


def problem():
    rng = np.random.default_rng(2)
    return jnp.asarray(rng.normal(size=STATES), jnp.float32), jnp.asarray(
        rng.normal(size=(HORIZON, CANDIDATES, ACTIONS)), jnp.float32
    )


def one_at_a_time(dynamics, state, actions, **options):
    """States `[time, candidate, state]`, rewards and latents of separate rollouts."""
    found = [dynamics.rollout(state, actions[:, i], return_latents=True, **options) for i in range(CANDIDATES)]
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *found)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@eqx.filter_jit
def look(seen, state, actions):
    """All that a planner asks of a model, and the latents of a shorter plan from the same start."""
    start = seen.encode(state, horizon=HORIZON)
    latents = seen.rollout(start, actions)
    return latents, seen.reward(latents, actions), seen.value(latents[-1]), seen.rollout(start, actions[:2])


@pytest.mark.parametrize(("core", "head"), [*((core, False) for core in CORES), ("koopman", True)])
def test_candidates_equal_separate_rollouts(core, head):
    dynamics, (state, actions) = model(core, head), problem()
    seen = LearnedModel(dynamics)
    assert isinstance(seen, PlanningModel)
    latents, rewards, value, shorter = look(seen, state, actions)
    expected = one_at_a_time(dynamics, state, actions)
    close(latents[1:], expected.latents)
    close(latents[0], np.tile(dynamics.encode(state), (CANDIDATES, 1)))
    close(rewards, expected.rewards)
    assert np.all(value == 0)
    close(shorter, latents[:3])


@pytest.mark.parametrize("head", [False, True])
def test_encoding_again_equals_the_model_doing_so(head):
    dynamics, (state, actions) = model("koopman", head), problem()
    seen = LearnedModel(dynamics, reencode_every=2)
    latents, rewards, *_ = look(seen, state, actions)
    expected = one_at_a_time(dynamics, state, actions, reencode_every=2)
    close(latents[1:], expected.latents)
    close(rewards, expected.rewards)


def energy(states, actions, next_states):
    return jnp.sum(states, axis=-1) + 10 * actions[..., 0] + 100 * next_states[..., 1]


def test_a_users_reward_sees_raw_states_and_actions():
    dynamics, (state, actions) = model("koopman"), problem()
    seen = RewardedModel(dynamics, energy)
    found = np.sum(0.9 ** np.arange(HORIZON)[:, None] * look(seen, state, actions)[1], axis=0)
    states = one_at_a_time(dynamics, state, actions).states
    before = np.concatenate([np.tile(state, (1, CANDIDATES, 1)), states[:-1]])
    expected = np.sum(0.9 ** np.arange(HORIZON)[:, None] * energy(before, actions, states), axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.fixture
def rewards(tmp_path, monkeypatch):
    """A user's module in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_rewards.py").write_text(
        "import numpy\n"
        "def good(states, actions, next_states):\n    return -(next_states[..., 0] ** 2)\n"
        "def one_number(states, actions, next_states):\n    return states.sum()\n"
        "def two_arguments(states, actions):\n    return states[..., 0]\n"
        "def not_jax(states, actions, next_states):\n    return numpy.asarray(states)[..., 0]\n"
        "number = 3\n"
    )
    (tmp_path / "broken_rewards.py").write_text("import no_such_package\n")


def test_a_reward_function_is_found_in_the_working_directory(rewards):
    function = load_reward("my_rewards:good", STATES, ACTIONS)
    assert function(jnp.ones((2, 3)), jnp.ones((2, 1)), 2 * jnp.ones((2, 3))).tolist() == [-4.0, -4.0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_rewards", "MODULE:FUNCTION"),
        ("my_rewards:missing", "can't be imported"),
        ("no_rewards:good", "No module named 'no_rewards'"),
        ("broken_rewards:good", "no_such_package"),
        ("my_rewards:one_number", r"returns shape \(\)"),
        ("my_rewards:two_arguments", "fails on states"),
        ("my_rewards:not_jax", "jax.numpy"),
        ("my_rewards:number", "can't be called"),
    ],
)
def test_bad_reward_functions(rewards, name, message):
    with pytest.raises(KoopaxError, match=message) as caught:
        load_reward(name, STATES, ACTIONS)
    assert "\n" not in str(caught.value)


# Control.


def settings(**changes):
    return {"env": "Pendulum-v1", "episodes": 3, "seed": 0, "environments": 2, **changes}


@cache
def planner():
    return make_search("cem", box_of("Pendulum-v1", STATES, ACTIONS), horizon=2, samples=4, iterations=1)


def test_control_runs_whole_episodes_and_repeats_them():
    first, second = (control_environment(planner(), LearnedModel(model("koopman")), **settings()) for _ in range(2))
    assert first.returns == second.returns
    assert first.lengths == (200, 200, 200)
    assert first.environments == 2
    assert first.ms_per_decision > 0
    assert not first.interrupted
    assert len(set(first.returns)) == 3
    assert first.mean_return == pytest.approx(np.mean(first.returns))
    assert first.to_json()["returns"] == first.returns


def test_ctrl_c_keeps_the_finished_episodes():
    def stop(progress):
        assert progress.episodes == 3
        if len(progress.returns) == 2:
            raise KeyboardInterrupt

    result = control_environment(planner(), LearnedModel(model("koopman")), **settings(), watch=stop)
    assert result.interrupted
    assert len(result.returns) == 2


def test_ctrl_c_before_anything_is_finished():
    def stop(progress):
        assert progress.decisions == 1
        raise KeyboardInterrupt

    result = control_environment(planner(), LearnedModel(model("koopman")), **settings(), watch=stop)
    assert result.interrupted
    assert result.to_json()["mean_return"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": "HalfCheetah-v5"}, r"sizes \(17, 6\), but the model was trained on \(3, 1\)"),
        ({"env": "Pendulun-v1"}, "unknown environment"),
        ({"planner": "mcts"}, "unknown planner"),
        ({"episodes": 0}, "episodes is 0"),
        ({"environments": 0}, "environments is 0"),
        ({"reencode_every": 0}, "reencode_every is 0"),
        ({"planner": "lqr"}, "needs a goal"),
        ({"planner": "lqr", "reward": "a:b"}, "quadratic cost"),
        ({"horizon": 0}, "horizon is 0"),
    ],
)
def test_bad_input(changes, message):
    with pytest.raises(KoopaxError, match=message):
        control_trained(model("koopman"), **settings(**({"planner": "cem", "samples": 4} | changes)))


class Listening(LearnedModel):
    """Tells what it was told of the actions just taken."""

    told: list = eqx.field(static=True, default_factory=list)

    def encode(self, observation, *, horizon, past_actions=None):
        jax.debug.callback(lambda past: self.told.append(np.asarray(past)), past_actions)
        return super().encode(observation, horizon=horizon, past_actions=past_actions)


def test_the_loop_hands_on_the_actions_just_taken():
    """Of each environment, from the second decision of an episode on; none at an episode's start."""
    taken, listening = [], Listening(model("koopman", history=3))

    def watch(progress):
        taken.append(progress.actions[0])

    control_environment(planner(), listening, **settings(episodes=2, environments=1), watch=watch)
    jax.effects_barrier()
    told = listening.told[1:]  # the first decision only compiles
    assert len(told) == len(taken) == 400
    for step, past in enumerate(told):
        known = min(step % 200, 2)
        assert np.isnan(past[: 2 - known]).all()
        np.testing.assert_array_equal(past[2 - known :], np.reshape(taken[step - known : step], (known, ACTIONS)))


def test_a_model_without_a_history_is_told_of_no_actions():
    """Its training windows know none before them; what is told there makes predictions worse (see `encode_past`)."""
    assert LearnedModel(model("koopman")).remembered_actions == 0


def test_planners_take_a_trained_model_as_it_is():
    dynamics, (state, _) = model("koopman", history=3), problem()
    first, second = (
        planner().plan(m, s, planner().init(ACTIONS), key=jax.random.key(0), past_actions=[[0.5], [1.0]])
        for m, s in ((dynamics, state.tolist()), (LearnedModel(dynamics), state))
    )
    np.testing.assert_array_equal(first.action, second.action)
    blind = planner().plan(dynamics, state, planner().init(ACTIONS), key=jax.random.key(0))
    assert blind.diagnostics.value != first.diagnostics.value


# Whether the data cover what planning asks for.


def narrow(dynamics, scale):
    """The model, as if its data's actions varied less."""
    return eqx.tree_at(lambda m: m.normaliser.action_std, dynamics, scale * dynamics.normaliser.action_std)


def test_narrow_actions_are_warned_of():
    box = box_of("Pendulum-v1", STATES, ACTIONS)  # ±2; the data's actions have a standard deviation of about 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_narrow_actions(model("koopman").normaliser, box)
    with pytest.warns(KoopaxWarning, match="1 of 1 components of the actions vary little"):
        warn_of_narrow_actions(narrow(model("koopman"), 0.1).normaliser, box)


def test_wrong_predictions_of_what_was_played_are_warned_of():
    """An untrained model with data around other states: both the predictions and the states give it away."""
    with pytest.warns(KoopaxWarning, match="planning led where the data had not been"):
        found = control_trained(
            model("koopman"), **settings(planner="cem", samples=4, iterations=1, horizon=2, episodes=1)
        )
    assert found.prediction_error > 0.5
    assert found.states_outside == 0  # the data's standard deviation is 3
    assert -2000 < found.random_return < 0
    assert found.settings["samples"] == 4
