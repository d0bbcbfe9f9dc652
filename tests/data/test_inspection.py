import json
import subprocess
import sys

import numpy as np
import pytest

from episode_samples import random_episodes
from koopax.data import Episodes, load, plot_trajectories, save, summarise


def test_summary_is_right_and_json():
    episodes = random_episodes([120, 80, 130], sources=["a", "b", "a"], state_names=["x", "y", "z"], units={"x": "m"})
    summary = json.loads(json.dumps(summarise(episodes), allow_nan=False))
    assert (summary["episodes"], summary["steps"], summary["state_size"], summary["action_size"]) == (3, 330, 3, 2)
    assert summary["lengths"] == {
        "min": 80,
        "mean": 110,
        "median": 120,
        "max": 130,
        "std": pytest.approx(21.6, abs=0.1),
    }
    returns = [float(episodes.episode(i).rewards.astype(float).sum()) for i in range(3)]
    assert summary["returns"]["mean"] == pytest.approx(np.mean(returns))
    assert summary["nonfinite"] == 0
    assert summary["windows"] == {"horizon": 100, "count": 21 + 31, "episodes_too_short": 1}
    assert summary["sources"]["a"] == {
        "episodes": 2,
        "steps": 250,
        "mean_return": pytest.approx((returns[0] + returns[2]) / 2),
    }
    assert summary["state"][0]["unit"] == "m"
    assert summary["state"][1]["min"] == pytest.approx(episodes.observations[:, 1].min())
    assert summary["durations"] is None
    assert not summary["reward"]["constant"]


def test_nan_and_constants_are_counted():
    observations = np.zeros((3, 2))
    observations[:, 0] = [np.nan, np.inf, 2]
    episodes = Episodes.from_arrays([observations], [[[1], [1]]], [[np.nan, 1]], check=False)
    save(episodes, "bad.npz")
    summary = json.loads(json.dumps(summarise(load("bad.npz", check=False)), allow_nan=False))
    assert summary["nonfinite"] == 3
    assert [column["nonfinite"] for column in summary["state"]] == [2, 0]
    assert (summary["state"][0]["min"], summary["state"][0]["max"]) == (2, 2)
    assert summary["state"][1]["constant"]
    assert summary["returns"]["mean"] is None


def test_without_rewards_nothing_is_told_of_them():
    observations, actions = [[[0.0], [1.0], [2.0]]] * 3, [[[1.0], [2.0]]] * 3
    episodes = Episodes.from_arrays(observations, actions)
    summary = json.loads(json.dumps(summarise(episodes), allow_nan=False))
    assert summary["has_rewards"] is False
    assert set(summary["returns"].values()) == {None}
    assert summary["sources"]["data"]["mean_return"] is None
    assert {summary["reward"][name] for name in ("min", "max", "mean", "std")} == {None}
    assert summary.keys() == summarise(random_episodes([3])).keys()
    figure = plot_trajectories(episodes)
    assert [axis.get_title() for axis in figure.axes if axis.lines] == ["state_0", "action_0"]
    assert figure.axes[0].lines[0].get_label() == "episode 0"


def test_a_figure_of_a_few_trajectories(tmp_path):
    episodes = random_episodes([20, 30, 40, 50, 60], states=20)
    figure = plot_trajectories(episodes, count=3)
    drawn = [axis for axis in figure.axes if axis.lines]
    assert len(drawn) == 12 + 2 + 1
    assert all(len(axis.lines) == 3 for axis in drawn)
    worst = int(np.argmin(episodes.returns))
    np.testing.assert_array_equal(drawn[0].lines[0].get_ydata(), episodes.episode(worst).observations[:, 0])
    figure.savefig(tmp_path / "a.png")
    assert len(plot_trajectories(random_episodes([5])).axes[0].lines) == 1


def test_importing_the_package_is_light():
    code = (
        "import sys, koopax.data\n"
        "heavy = {'jax', 'h5py', 'pyarrow', 'gymnasium', 'mujoco', 'matplotlib', 'numpy', 'minari'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "assert all(getattr(koopax.data, name) for name in koopax.data.__all__)\n"
        "assert sorted(koopax.data._MODULES) == sorted(koopax.data.__all__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
