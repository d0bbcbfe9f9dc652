"""Training from pixels through the real renderer: every arm, and a run that is killed goes on bit for bit."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from koopax._errors import KoopaxError, KoopaxWarning
from koopax.agents import pixel_arm, read_agent, train_pixel_sac
from koopax.agents.pixels import train
from koopax.agents.run import load_checkpoint

TINY = {
    "task": "cartpole-swingup",
    "steps": 1_600,
    "image_size": 32,
    "shift": 2,
    "hidden": (16,),
    "latent_size": 16,
    "batch_size": 8,
    "random_decisions": 40,
    "updates_per_decision": 0.2,
    "replay_steps": 150,
    "evaluate_every": 1_000,
    "evaluate_episodes": 1,
    "final_episodes": 2,
    "processes": 1,
}


class Killed(Exception):
    """What stands for SIGKILL: nothing is saved after it."""


def without_time(lines):
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


@pytest.mark.quick("koopman")
@pytest.mark.parametrize("dynamics", ["none", "mlp", "koopman"])
def test_every_arm_trains(tmp_path, dynamics):
    result = train_pixel_sac(pixel_arm(dynamics, **TINY), tmp_path / "run")
    assert result.environment_steps == TINY["steps"]
    last = result.metrics[-1]
    assert len(last["evaluation_returns"]) == 2
    assert (last["decisions"], last["updates"]) == (200, 39)
    assert last["spread"] > 0
    recorded = read_agent(tmp_path / "run")
    assert (recorded.name, recorded.task) == (f"sac-pixels · {dynamics}", "cartpole-swingup")
    assert [point.steps for point in recorded.curve] == [1_000, 1_600]


@pytest.mark.slow
def test_a_killed_run_goes_on_bit_for_bit(tmp_path):
    config = pixel_arm("koopman", **TINY, num_envs=2, checkpoint_seconds=0.0)
    whole = train_pixel_sac(config, tmp_path / "whole")

    ticks = []

    def kill(line):
        ticks.append(line)
        if line["environment_steps"] >= 1_200 and "evaluation_return" not in line:
            raise Killed

    with pytest.raises(Killed):
        train_pixel_sac(config, tmp_path / "killed", watch=kill)
    assert 0 < load_checkpoint(tmp_path / "killed").header["progress"]["environment_steps"] < TINY["steps"]
    resumed = train_pixel_sac(config, tmp_path / "killed", resume=True)

    assert without_time(resumed.metrics) == without_time(whole.metrics)
    one, other = (load_checkpoint(tmp_path / name) for name in ("whole", "killed"))
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)
    assert one.header["replay"]["inserted"] == other.header["replay"]["inserted"]


def test_a_checkpoint_knows_what_the_last_update_found(tmp_path):
    """A line may come before the next update, and must not tell the losses of an earlier one then."""
    training = train.PixelTraining(pixel_arm("none", **TINY), tmp_path)
    try:
        training.start()
        training.metrics = {"critic_loss": jnp.float32(2.5)}
        assert training.save().header["counters"]["losses"] == {"critic_loss": 2.5}
    finally:
        training.close()


def test_a_collapse_is_warned_of_once(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "LOWEST_SPREAD", 10.0)
    with pytest.warns(KoopaxWarning, match="representations have collapsed after .* lower prediction_weight") as given:
        train_pixel_sac(pixel_arm("mlp", **{**TINY, "steps": 800}), tmp_path / "run")
    assert sum("collapsed" in str(warning.message) for warning in given) == 1


def test_what_can_not_be_trained_leaves_nothing_behind(tmp_path):
    with pytest.raises(KoopaxError, match="images of 50×50 pixels don't suit"):
        train_pixel_sac(pixel_arm("none", **{**TINY, "image_size": 50}), tmp_path / "size")
    with pytest.raises(KoopaxError, match="does not fit into memory"):
        train_pixel_sac(pixel_arm("none", **TINY, replay_gib=1e6), tmp_path / "memory")
    with pytest.raises(KoopaxError, match="unknown environment 'cartpole-swing'"):
        train_pixel_sac(pixel_arm("none", **{**TINY, "task": "cartpole-swing"}), tmp_path / "task")
    assert not any(tmp_path.iterdir())


def test_a_run_keeps_its_settings(tmp_path):
    config = pixel_arm("none", **{**TINY, "steps": 200})
    train_pixel_sac(config, tmp_path / "run")
    document = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (document["kind"], document["outcome"]["stopped"]) == ("sac-pixels", "finished")
    with pytest.raises(KoopaxError, match="dynamics is 'mlp' but"):
        train_pixel_sac(pixel_arm("mlp", **TINY), tmp_path / "run", resume=True)
