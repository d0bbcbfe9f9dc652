"""Every measurement at its smallest, from the command line or from Python."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from koopax import Episodes, KoopaxError
from koopax.agents import SACConfig
from koopax.bench import data as bench_data
from koopax.bench import gains as bench_gains
from koopax.bench import pixels as bench_pixels
from koopax.bench import sac as bench_sac
from koopax.cli.bench_tables import data_table, gains_table, pixels_table, sac_table
from koopax.data import save
from koopax.models.latent import CORES

KOOPAX = Path(sys.executable).with_name("koopax")
KNOWN = {"command", "settings", "cores", "versions", "commit", "machine"}


@pytest.mark.slow
def test_data_prints_and_writes_the_same_document(tmp_path):
    sizes = ["--steps", "3000", "--batch-size", "4", "--horizon", "8", "--rounds", "1"]
    done = subprocess.run(
        [KOOPAX, "bench", "data", "--json", *sizes, "--out", "new/data.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "new" / "data.json").read_text())
    assert set(found) >= KNOWN
    assert found["command"] == "koopax bench data"
    assert found["settings"] == {"steps": 3000, "batch_size": 4, "horizon": 8, "rounds": 1, "model": "koopman"}
    ratio = found["sample_milliseconds"] / found["training_step_milliseconds"]
    assert found["sample_share_of_step"] == pytest.approx(ratio, rel=1e-2)
    assert data_table(found).row_count == 4


def test_sac_counts_the_environments():
    config = SACConfig(env="Pendulum-v1", num_envs=2, hidden_sizes=(8, 8), batch_size=8, random_steps=64)
    found = bench_sac.measure([config], rounds=1)
    (row,) = found["results"]
    assert row["spread"][0] <= row["updates_per_second"] <= row["spread"][1]
    assert 0 < row["environment_share"] < 1
    assert sac_table(found).row_count == 1


@pytest.mark.slow
def test_pixels_are_timed_in_parts_and_as_ratios():
    small = {"image_size": 32, "hidden": (8,), "latent_size": 8, "batch_size": 8, "prediction_batch": 4}
    found = bench_pixels.measure(("sac", "koopman K=5"), rounds=1, changes=small)
    sac, koopman = found["results"]
    assert set(koopman["parts_ms"]) == {"act", "draw", "sample", "learn"}
    ratio = koopman["decision_ms"] / sac["decision_ms"]
    assert found["ratios"] == {"koopman K=5 / sac": pytest.approx(ratio, rel=1e-2)}
    assert sac["minutes_per_100k_steps"] == pytest.approx(12_500 * sac["decision_ms"] / 60_000, rel=1e-2)
    assert pixels_table(found).row_count == 2


def test_pixels_are_timed_with_arms_that_are_known():
    with pytest.raises(KoopaxError, match="koopman K=7"):
        bench_pixels.measure(("koopman K=7",))


@pytest.mark.slow
def test_gains_are_held_against_the_arm_that_undoes_nothing(tmp_path):
    rng = np.random.default_rng(0)
    states, actions = rng.normal(size=(121, 17)), rng.uniform(-1, 1, size=(120, 6))
    save(Episodes.from_arrays([states], [actions], [rng.normal(size=120)]), tmp_path / "data.npz")
    found = bench_gains.measure(arms=("FFT",), rounds=1, source=str(tmp_path / "data.npz"))
    assert set(found["arms"]) == {"default", "loss on every step", "FFT"}
    rows = found["arms"]
    ratio = rows["FFT"]["milliseconds"] / rows["loss on every step"]["milliseconds"]
    assert rows["FFT"]["slower_by"] == pytest.approx(ratio, rel=1e-2)
    assert gains_table(found).row_count == 2
    assert bench_gains.EVERY_LATENT not in CORES


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (lambda: bench_data.measure(steps=10), "whole episode"),
        (lambda: bench_gains.measure(arms=("FTF",)), "did you mean 'FFT'"),
        (lambda: bench_sac.measure(rounds=0), "one or more"),
    ],
)
def test_bad_input(measure, message):
    with pytest.raises(KoopaxError, match=message):
        measure()
