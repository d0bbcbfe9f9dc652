"""Systems that nobody acts on: every core trains, predicts and is saved with actions of size 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from koopax import DynamicsModel, Episodes, KoopaxError, fit, load_model, prediction_error
from koopax.evaluation.gradients import gradient_profile
from koopax.models.presets import PRESETS

SMALL = {
    "koopman": {"latent_size": 8, "encoder_hidden": (6,), "decoder_hidden": (6,)},
    "koopman-small": {"latent_size": 8, "encoder_hidden": (6,), "decoder_hidden": (6,)},
    "koopman-paper": {"latent_size": 8, "encoder_hidden": (6,), "decoder_hidden": (6,)},
    "mlp": {"latent_size": 6, "hidden": 8},
    "gru": {"latent_size": 6},
    "transformer": {"latent_size": 8, "layers": 1, "heads": 2, "feedforward": 8},
    "dssm": {"latent_size": 8, "layers": 1, "state_size": 4},
    "dmdc": {},
    "edmd": {},
}


def spirals(count=6, length=30):
    """x_{t+1} = 0.97 R(0.3) x_t."""
    rng = np.random.default_rng(0)
    turn = 0.97 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    found = []
    for _ in range(count):
        states = [rng.normal(size=2)]
        for _ in range(length):
            states.append(turn @ states[-1])
        found.append(np.stack(states))
    return Episodes.from_arrays(found)


def test_every_preset_is_tried():
    assert set(SMALL) == {name for name in PRESETS if not name.endswith("-stochastic")}  # the same cores with noise


@pytest.mark.quick("^koopman$|dmdc")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ("koopman", "gru", "dmdc") else pytest.mark.slow) for n in SMALL]
)
def test_every_core_learns_without_actions(name, tmp_path):
    data = spirals()
    assert data.action_size == 0
    model = DynamicsModel.create(name, data, **SMALL[name], key=jax.random.key(0))
    run = fit(
        model, data[:4], validation=data[4:], horizon=5, batch_size=4, steps=None if name in ("dmdc", "edmd") else 2,
        reencode_every="never", progress=False,
    )  # fmt: skip
    found = prediction_error(run.model, data[4:], horizon=5, windows=10)
    assert np.isfinite(found.state.normalised)
    if name in ("dmdc", "edmd"):
        assert found.state.normalised < 1e-8
    prediction = run.model.rollout(data[0].observations[0], np.zeros((7, 0)))
    assert prediction.states.shape == (7, 2)
    run.model.save(tmp_path / "free.koopax")
    again = load_model(tmp_path / "free.koopax").rollout(data[0].observations[0], np.zeros((7, 0)))
    np.testing.assert_array_equal(again.states, prediction.states)
    start = run.model.encode(data[0].observations[0])
    profile = gradient_profile(run.model.core, start, jnp.zeros((3, 0)), key=jax.random.key(0))
    assert np.isfinite(profile.start).all()
    assert not profile.inputs.any()


def test_bad_input(unchecked_shapes):
    data = spirals()
    model = DynamicsModel.create("koopman", data, **SMALL["koopman"], key=jax.random.key(0))
    with pytest.raises(KoopaxError, match=r"actions has shape \(7, 1\)"):
        model.rollout(np.zeros(2), np.zeros((7, 1)))
    with pytest.raises(KoopaxError, match="action_size is -1: use a whole number of 0 or more"):
        type(model.config)(core="koopman", state_size=2, action_size=-1)
