"""Exporting an expert, a medium policy and a ladder from a real, tiny run."""

import json

import numpy as np
import pytest

from koopax._errors import KoopaxError
from koopax.agents import SACConfig, export_experts, train_sac
from koopax.collection.policies import load_policy
from koopax.envs import episode_returns

CONFIG = SACConfig(
    env="Pendulum-v1",
    steps=960,
    num_envs=2,
    lock_steps=6,
    hidden_sizes=(16, 16),
    batch_size=32,
    random_steps=120,
    replay_size=960,
    evaluate_every=120,
    evaluate_episodes=2,
    snapshot_every=60,
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train_sac(CONFIG, folder / "run")
    record = export_experts(
        folder / "run", "pendulum", weights=folder / "weights", results=folder / "results", episodes=3, rungs=4
    )
    return folder, record


@pytest.mark.slow
def test_record_is_what_was_written(exported):
    folder, record = exported
    assert json.loads((folder / "results" / "pendulum.json").read_text()) == json.loads(json.dumps(record))
    assert [line["environment_steps"] for line in record["curve"]] == list(range(120, 961, 120))
    assert {"config", "seed", "command", "versions", "machine", "commit"} <= record.keys()


def test_every_policy_has_the_return_that_its_provenance_states(exported):
    folder, record = exported
    files = sorted((folder / "weights").glob("*.npz"))
    assert {file.stem for file in files} == {f"pendulum-{label}" for label in record["policies"]}
    for file in files:
        policy = load_policy(file)
        returns = episode_returns("Pendulum-v1", policy, 3, seed=10_000)
        assert policy.provenance["return_mean"] == pytest.approx(np.mean(returns), abs=0.1)
        assert policy.provenance["training_steps"] == policy.provenance["steps"]


def test_ladder_ends_with_the_expert(exported):
    _, record = exported
    policies = record["policies"]
    ladder = [policies[label]["return_mean"] for label in policies if label.startswith("ladder")]
    assert len(ladder) == 4
    assert ladder == sorted(ladder)
    assert ladder[-1] == policies["expert"]["return_mean"]


def test_command_trains_the_same_run_again(exported):
    _, record = exported
    arguments = record["command"].split("SACConfig(")[1].split("), 'run'")[0]
    assert eval(f"SACConfig({arguments})") == CONFIG


def test_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(KoopaxError, match="no run folder"):
        export_experts(tmp_path, "nothing")
