"""The speed comparison: what is made of numbers with made-up numbers, and the real command at a tiny size."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koopax import Episodes
from koopax._errors import KoopaxError
from koopax.bench import clock as bench_clock
from koopax.bench import memory as bench_memory
from koopax.bench import scaling as bench_scaling
from koopax.bench import speed as bench_speed
from koopax.bench.arms import loss_stride, train_config
from koopax.bench.settings import MODELS, SpeedSettings
from koopax.data import save
from koopax.experiments import speed as bench_report
from koopax.models.presets import TRAINING
from koopax.training.config import TrainConfig
from koopax.training.settings import resolved

KOOPAX = Path(sys.executable).with_name("koopax")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """HalfCheetah's sizes, nobody's motion."""
    rng = np.random.default_rng(0)
    lengths = (30, 40)
    data = Episodes.from_arrays(
        [rng.normal(size=(length + 1, 17)) for length in lengths],
        [rng.uniform(-1, 1, size=(length, 6)) for length in lengths],
        [rng.normal(size=length) for length in lengths],
    )
    path = tmp_path_factory.mktemp("bench") / "data.npz"
    save(data, path)
    return path


def koopax(*arguments, cwd):
    done = subprocess.run([KOOPAX, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    return done.stdout


# What is made of the numbers.


@given(st.floats(0.1, 3), st.floats(1e-4, 10))
def test_the_exponent_of_a_power_law_is_found(power, factor):
    horizons = [50, 100, 200, 500]
    assert bench_scaling.fit_exponent(horizons, [factor * t**power for t in horizons]) == pytest.approx(power)


def test_the_exponent_is_fitted_from_fifty_steps_on_and_needs_two_horizons():
    rates = {10: 123.0, 50: 4.0, 100: 2.0, 500: 0.4}
    results = [row("koopman", horizon, rate) for horizon, rate in rates.items()]
    results += [row("mlp", 50, 1.0), row("mlp", 100, None)]
    found = bench_scaling.exponents(results)
    assert found["koopman"] == pytest.approx(1.0)
    assert found["mlp"] is None


def test_ratios_are_to_the_fastest_baseline_that_ran():
    speeds = {"koopman": 12.0, "mlp": 3.0, "gru": 6.0, "dssm": None, "paper-listing": 8.0, "koopman@4": 24.0}
    (found,) = bench_scaling.ratios([row(model, 100, rate) for model, rate in speeds.items()])
    assert found["fastest_baseline"] == "gru"
    assert found["koopman_over_fastest_baseline"] == pytest.approx(2.0)
    assert found["koopman_over_listing"] == pytest.approx(1.5)
    assert "dssm" not in found["koopman_over"]
    assert bench_scaling.ratios([row("mlp", 100, 1.0)]) == []


def row(model, horizon, rate):
    return {
        "model": model,
        "horizon": horizon,
        "loss_stride": 4 if model == "gru" else 1,
        "failure": None if rate else "it needs 99.0 GiB, and 1.0 GiB are free",
        "steps_per_second": rate,
        "spread": [0.9 * rate, 1.1 * rate] if rate else None,
        "fraction_of_peak": 0.5 if rate else None,
        "peak_memory_bytes": 2**30 if rate else None,
    }


@pytest.fixture
def found():
    results = [row(model, horizon, 100 / horizon / (1 + i)) for horizon in (50, 100) for i, model in enumerate(MODELS)]
    results[-1] = row(MODELS[-1], 100, None)
    return {
        "matmul_gflops": 100.0,
        "matmul": {"size": 2048, "spread": [90.0, 110.0]},
        "results": results,
        "exponents": bench_scaling.exponents(results),
        "ratios": bench_scaling.ratios(results),
        "settings": {
            "models": list(MODELS),
            "horizons": [50, 100],
            "batch_size": 256,
            "reward": False,
            "source": "somewhere",
        },
        "cores": 2,
        "machine": {"processor": "abacus"},
        "commit": "0000",
        "command": "koopax bench speed",
    }


def test_the_report_has_every_number_and_names_what_did_not_run(found, tmp_path):
    bench_report.write(found, tmp_path)
    text = (tmp_path / "speed.md").read_text()
    assert "| koopman | 2 | 1 | 1 |" in text
    assert "| 50 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 2 (mlp) |" in text
    assert "paper-listing at τ = 100: it needs 99.0 GiB" in text
    assert "565.43" in text
    assert "loss on one step in 4 (gru)" in text
    assert "loss on every step (koopman, mlp, transformer, dssm, koopman@1, mlp@1, paper-listing)" in text
    assert json.loads((tmp_path / "speed.json").read_text())["command"] == "koopax bench speed"
    assert (tmp_path / "speed.png").stat().st_size > 1000


def test_the_report_says_where_the_loss_is_on_more_steps(found):
    for measured in found["results"]:
        if measured["model"] in ("koopman", "mlp"):
            measured["loss_stride"] = {50: 2, 100: 10}[measured["horizon"]]
    text = bench_report.summarise(found).sections[0]
    assert "loss on one step in 10, one step in 2 at τ = 50 (koopman, mlp); " in text


# The clock, on a clock of our own.


@pytest.fixture
def fake_clock(monkeypatch):
    class Clock:
        now = 0.0

        def perf_counter(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(bench_clock, "time", clock)
    return clock


def test_cases_take_turns_and_slow_ones_leave_after_three_rounds(fake_clock):
    visits = []

    def case(name, seconds):
        def run(repeats):
            visits.append((name, repeats))
            fake_clock.now += seconds * repeats

        return run

    cases = {"quick": case("quick", 0.01), "slow": case("slow", 10.0), "instant": case("instant", 1e-6)}
    found = bench_clock.interleave(cases, rounds=5)
    # Once to touch memory, once to see how long it takes; then in every round once more before what counts.
    quick, slow, instant = ["quick"] * 2, ["slow"], ["instant"] * 2
    assert [name for name, _ in visits] == [*quick, *slow, *instant] * 4 + [*quick, *instant] * 2
    many = bench_clock.MOST_REPEATS
    assert visits[5:10] == [("quick", 1), ("quick", 25), ("slow", 1), ("instant", 1), ("instant", many)]
    assert {name: len(seconds) for name, seconds in found.items()} == {"quick": 5, "slow": 3, "instant": 5}
    assert found["quick"] == pytest.approx([0.01] * 5)


def test_rates_are_medians_with_the_slowest_and_the_fastest_round():
    rate, spread = bench_clock.rate_with_spread([0.5, 0.1, 0.25])
    assert rate == pytest.approx(4.0)
    assert spread == pytest.approx([2.0, 10.0])


# Settings.


def test_all_arms_have_the_same_loss_but_for_the_listings_consistency():
    settings = SpeedSettings()
    configs = {arm: train_config(arm, 100, settings) for arm in MODELS}
    listing, every_step = configs.pop("paper-listing"), configs.pop("koopman@1")
    assert every_step == configs.pop("mlp@1")
    assert len(set(configs.values())) == 1
    assert listing.consistency_steps is None
    assert listing.consistency_weight == configs["koopman"].consistency_weight > 0
    assert configs["koopman"].reward_weight == listing.reward_weight == 0
    assert configs["koopman"].loss_stride == TRAINING["koopman"]["loss_stride"] > 1
    assert every_step.loss_stride == listing.loss_stride == 1


def test_losses_on_fewer_steps_are_an_arm_or_a_setting_and_never_the_listings():
    own, all_of_them = SpeedSettings(loss_stride=None), SpeedSettings(loss_stride=3)
    default = TRAINING["koopman"]["loss_stride"]
    assert loss_stride("koopman", 100, own) == default == loss_stride("koopman-paper", 100, own)
    assert loss_stride("mlp", 100, all_of_them) == 3
    assert loss_stride("mlp@7", 100, all_of_them) == 7
    assert loss_stride("paper-listing", 100, own) == loss_stride("paper-listing", 100, all_of_them) == 1


@pytest.mark.parametrize(("horizon", "trained"), [(1, 1), (3, 1), (10, 2), (39, 9), (40, 10), (500, 10)])
def test_short_windows_have_the_losses_that_training_gives_them(horizon, trained):
    assert resolved(TrainConfig(horizon=horizon), "koopman").loss_stride == trained
    assert loss_stride("koopman", horizon, SpeedSettings()) == loss_stride("mlp", horizon, SpeedSettings()) == trained
    assert loss_stride("koopman@10", horizon, SpeedSettings()) == 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"models": ("koopmann",)}, "did you mean 'koopman'"),
        ({"models": ("koopman@often",)}, "koopman@often"),
        ({"models": ("koopman@0",)}, "'koopman@0' is no arm"),
        ({"models": ("paper-listing@2",)}, "none for paper-listing"),
        ({"loss_stride": 0}, "loss_stride is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"horizons": (0,)}, "horizons"),
        ({"models": ()}, "one or more"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(KoopaxError, match=message):
        SpeedSettings(**settings)


# The real thing, small.


@pytest.fixture(scope="module")
def measured(source):
    """The command as a user runs it, in a process of its own, and what it wrote."""
    sizes = ("--horizons", 2, "--batch-size", 2, "--rounds", 3, "--models", "koopman", "paper-listing")
    printed = koopax("bench", "speed", "--json", "--source", source, *sizes, "--out", "out", cwd=source.parent)
    return json.loads(printed), source.parent / "out"


@pytest.mark.slow
def test_the_document_has_its_shape(measured):
    document, folder = measured
    assert document["matmul_gflops"] > 0
    assert [(r["model"], r["horizon"], r["batch_size"]) for r in document["results"]] == [
        ("koopman", 2, 2),
        ("paper-listing", 2, 2),
    ]
    for result in document["results"]:
        low, high = result["spread"]
        assert low <= result["steps_per_second"] <= high
        assert result["rounds"] == 3
        assert result["failure"] is None
        assert 450_000 <= result["parameters"] <= 550_000
        assert result["flops"]["total"] == pytest.approx(sum(list(result["flops"].values())[:2]), rel=1e-3)
        rate = result["flops"]["total"] * result["steps_per_second"] / 1e9
        assert result["fraction_of_peak"] == pytest.approx(rate / document["matmul_gflops"], rel=1e-2)
        assert result["planned_memory_bytes"] > 0
        if sys.platform == "linux":
            assert 0 <= result["peak_memory_bytes"] < result["process_peak_bytes"]
    assert document["ratios"][0]["koopman_over_listing"] > 0
    assert document["exponents"] == {"koopman": None, "paper-listing": None}
    assert {"settings", "versions", "commit", "machine", "cores", "spread_is"} <= set(document)
    assert {path.name for path in folder.iterdir()} == {"speed.json", "speed.md", "speed.png"}


@pytest.mark.slow
def test_an_arm_that_does_not_fit_is_a_result(source, monkeypatch):
    monkeypatch.setattr(bench_speed, "lacks_memory", lambda planned: "it needs more" if planned else None)
    settings = SpeedSettings(
        models=("koopman",), horizons=(2,), batch_size=2, rounds=1, memory=False, source=str(source)
    )
    (result,) = bench_speed.measure(settings)["results"]
    assert result["failure"] == "it needs more"
    assert result["steps_per_second"] is result["fraction_of_peak"] is result["peak_memory_bytes"] is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's files")
def test_memory_is_asked_for_before_it_is_taken():
    assert bench_memory.lacks_memory(0) is None
    assert "GiB are free" in bench_memory.lacks_memory(10**16)


@pytest.mark.slow
def test_rollouts_for_planning(source):
    sizes = ("--cores", "koopman", "mlp", "--horizons", 3, "--samples", 4, "--latent-size", 8, "--rounds", 2)
    document = json.loads(koopax("bench", "rollout", "--json", *sizes, cwd=source.parent))
    assert {(r["core"], r["decode"]) for r in document["results"]} == {
        (core, decode) for core in ("koopman", "mlp") for decode in (False, True)
    }
    for result in document["results"]:
        assert (result["horizon"], result["samples"]) == (3, 4)
        low, high = result["spread"]
        assert low <= result["ms"] <= high
        if result["core"] == "mlp":
            assert result["time_over_mlp"] == 1


@pytest.mark.slow
def test_reproduce_at_its_smallest(tmp_path, monkeypatch):
    monkeypatch.setenv("KOOPAX_DATA", str(tmp_path / "data"))
    koopax("reproduce", "speed", "--budget", "smoke", cwd=tmp_path)
    folder = tmp_path / "results" / "speed" / "smoke"
    assert {"table.md", "summary.json", "figure.png", "measurement.json"} <= {path.name for path in folder.iterdir()}
    text = (folder / "table.md").read_text()
    assert all(f"| {model} |" in text for model in MODELS)
