"""Regressions through the same `fit`, run folder and command line as every other model."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import koopax
from koopax.data import save
from koopax.training.losses import loss_terms
from koopax.training.regression import regress


def linear_system(rows, *, seed, noise=0.0, durations=False):
    """Two damped oscillators of different pace, pushed by one input; reward −|s|² − 0.1 a²."""
    rng = np.random.default_rng(seed)
    generator = np.array([[-0.1, 1.0, 0, 0], [-1.0, -0.1, 0, 0], [0, 0, -0.05, 2.2], [0, 0, -2.2, -0.05]])
    push = np.array([0.0, 1.0, 0.3, 0.8])
    observations, actions, rewards, lengths = [], [], [], []
    for _ in range(max(3, rows // 100)):
        state, states, inputs, steps = rng.uniform(-1, 1, 4), [], [], []
        for _ in range(100):
            action = rng.uniform(-1, 1)
            length = rng.uniform(0.9, 1.1) if durations else 1.0
            states.append(state)
            inputs.append([action])
            steps.append(length)
            for _ in range(10):
                state = state + 0.005 * length * (generator @ state + push * action)
        states.append(state)
        observations.append(np.array(states))
        actions.append(np.array(inputs))
        rewards.append(-np.sum(observations[-1][:-1] ** 2, axis=1) - 0.1 * actions[-1][:, 0] ** 2)
        lengths.append(np.array(steps))
    if noise:
        observations = [rows + noise * rng.normal(size=rows.shape) for rows in observations]
    return koopax.Episodes.from_arrays(observations, actions, rewards, durations=lengths if durations else None)


def duffing(rows, *, seed):
    """x″ = x − x³ − 0.2 x′ + u, sampled at 0.1."""
    rng = np.random.default_rng(seed)
    count = rows // 100
    state, states, actions = rng.uniform(-1.5, 1.5, (count, 2)), [], []
    for _ in range(100):
        push = rng.uniform(-1, 1, count)
        states.append(state)
        actions.append(push)
        for _ in range(20):
            position, speed = state.T
            state = state + 0.005 * np.stack([speed, position - position**3 - 0.2 * speed + push], axis=1)
    states = np.stack([*states, state], axis=1)
    return koopax.Episodes.from_arrays(list(states), list(np.stack(actions, axis=1)[..., None]))


def fitted(name, train, **options):
    model = koopax.DynamicsModel.create(name, train, key=jax.random.key(0), **options)
    rest, validation = train.split(0.7, seed=0)
    return koopax.fit(model, rest, validation=validation, horizon=50)


def test_a_linear_system_is_found_from_300_rows():
    run = fitted("dmdc", linear_system(300, seed=0))
    error = koopax.prediction_error(run.model, linear_system(500, seed=1), horizon=100, windows=200)
    assert error.model == "dmdc"
    assert run.step == 0
    assert error.state.normalised < 1e-9


def test_noise_does_not_ruin_it():
    run = fitted("dmdc", linear_system(1000, seed=0, noise=0.02))
    error = koopax.prediction_error(run.model, linear_system(500, seed=1), horizon=100, windows=200)
    assert error.state.normalised < 0.4 * error.baselines["mean"][0].normalised


@pytest.mark.slow
def test_polynomials_find_a_double_well_and_the_quadratic_reward():
    run = fitted("edmd", duffing(2000, seed=0), encoder_options={"degree": 5})
    error = koopax.prediction_error(run.model, duffing(1000, seed=1), horizon=100, windows=200)
    assert error.model == "edmd"
    assert run.model.config.reencode_every == 1  # chosen on validation: the dictionary is not closed under the dynamics
    assert error.state.normalised < 1e-4
    assert (
        koopax.prediction_error(run.model, duffing(1000, seed=1), windows=200, reencode_every="never").state.normalised
        > 1e-2
    )

    run = fitted("edmd", linear_system(1000, seed=0))
    error = koopax.prediction_error(run.model, linear_system(500, seed=1), horizon=50, windows=200)
    assert error.reward is not None
    assert error.reward.normalised < 1e-6


def test_durations_are_taken_into_account():
    told, untold = linear_system(1000, seed=0, durations=True), linear_system(1000, seed=1, durations=True)
    run = fitted("dmdc", told)
    error = koopax.prediction_error(run.model, untold, horizon=50, windows=200)
    assert error.state.normalised < 1e-3
    blind = koopax.Episodes.from_arrays(
        [episode.observations for episode in told], [episode.actions for episode in told]
    )
    ignored = fitted("dmdc", blind)
    unaware = koopax.Episodes.from_arrays(
        [episode.observations for episode in untold], [episode.actions for episode in untold]
    )
    assert (
        koopax.prediction_error(ignored.model, unaware, horizon=50, windows=200).state.normalised
        > 3 * error.state.normalised
    )


def test_least_squares_are_those_of_numpy():
    train = linear_system(500, seed=0, noise=0.1)
    model = koopax.DynamicsModel.create("dmdc", train, key=jax.random.key(0))
    found, trials = regress(model, train, None, horizon=50)
    assert trials == []
    scale = model.normaliser
    rows = [(e.observations[:-1], e.actions, e.observations[1:]) for e in train]
    before, action, after = (np.concatenate(parts).astype(float) for parts in zip(*rows, strict=True))
    before, after = (np.asarray(scale.normalise_state(jnp.asarray(s)), float) for s in (before, after))
    action = np.asarray(scale.normalise_action(jnp.asarray(action)), float)
    functions = np.concatenate([np.ones((len(before), 1)), before, action], axis=1)
    expected = np.linalg.lstsq(functions, after, rcond=None)[0].T
    np.testing.assert_allclose(found.core.matrix[1:], expected[:, :5], atol=1e-4)
    np.testing.assert_allclose(found.core.inputs[0, 1:, 0], expected[:, 5], atol=1e-4)


def test_gradient_steps_go_on_from_least_squares():
    train = linear_system(500, seed=0)
    rest, validation = train.split(0.7, seed=0)
    model = koopax.DynamicsModel.create("dmdc", rest, key=jax.random.key(0))
    run = koopax.fit(model, rest, validation=validation, horizon=20, steps=5, batch_size=8, learning_rate=1e-6)
    assert run.step == 5
    assert (
        koopax.prediction_error(run.model, linear_system(300, seed=1), horizon=50, windows=100).state.normalised < 1e-4
    )


def test_saved_and_loaded_with_its_returns(tmp_path):
    run = fitted("edmd", duffing(500, seed=0), encoder_options={"degree": 3})
    run.model.save(tmp_path / "duffing.koopax")
    again = koopax.load_model(tmp_path / "duffing.koopax")
    assert again.config == run.model.config
    state, actions = np.array([0.1, 0.2]), np.full((30, 1), 0.3)
    assert np.array_equal(again.rollout(state, actions).states, run.model.rollout(state, actions).states)


def test_through_the_command_line(tmp_path, capsys, monkeypatch):
    from koopax.cli import main

    save(linear_system(600, seed=0), tmp_path / "log.npz")

    def koopax_command(*arguments):
        monkeypatch.setattr("sys.argv", ["koopax", *map(str, arguments)])
        main()
        return capsys.readouterr().out

    koopax_command("train", tmp_path / "log.npz", "--model", "dmdc", "--horizon", 50, "--out", tmp_path / "run")
    document = json.loads(koopax_command("evaluate", tmp_path / "run", "--horizon", 50, "--json"))
    assert document["model"] == "dmdc"
    assert document["state"]["normalised"] < 1e-9
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model"]["encoder"] == "polynomials"


@pytest.mark.quick("3")
@pytest.mark.parametrize("every", [1, 3, 4])
def test_the_loss_sees_the_returns_to_the_encoder(every):
    """The losses of a model that returns are those of its own predictions, computed window by window."""
    train = linear_system(300, seed=0)
    model = koopax.DynamicsModel.create(
        "koopman",
        train,
        latent_size=8,
        encoder_hidden=(8,),
        decoder_hidden=(8,),
        reencode_every=every,
        key=jax.random.key(0),
    )
    config = koopax.training.TrainConfig(horizon=10, loss_stride=1, consistency_weight=0.0)
    windows = koopax.data.WindowSampler(train, 10).sample(jax.random.key(1), 4)
    terms = loss_terms(model, windows, config, key=jax.random.key(2))
    errors = []
    for number in range(4):
        states, rewards = [], []
        latent = model.encode(windows.states[0, number])
        for t in range(10):
            if t and t % every == 0:
                latent = model.reencode(latent)
            latent = model.core.step(latent, model.normaliser.normalise_action(windows.actions[t, number]))
            decoded = model.decoder(latent)
            states.append(decoded[:-1])
            rewards.append(decoded[-1])
        true = model.normaliser.normalise_state(windows.states[1:, number])
        earned = model.normaliser.normalise_reward(windows.rewards[:, number])
        errors.append((np.mean((np.stack(states) - true) ** 2), np.mean((np.stack(rewards) - earned) ** 2)))
    np.testing.assert_allclose([float(terms["state"]), float(terms["reward"])], np.mean(errors, axis=0), rtol=1e-4)


def test_reencoding_that_cannot_be_is_one_sentence():
    train = linear_system(300, seed=0)
    with pytest.raises(koopax.KoopaxError, match="reencode_every is 0: use 1 or more steps"):
        koopax.DynamicsModel.create("koopman", train, reencode_every=0, key=jax.random.key(0))
    model = koopax.DynamicsModel.create("dmdc", train, key=jax.random.key(0))
    with pytest.raises(koopax.KoopaxError, match="reencode_every is -1: use 1 or more steps, or 'never'"):
        model.rollout(np.zeros(4), np.zeros((3, 1)), reencode_every=-1)
