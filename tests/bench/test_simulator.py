"""Simulators and exported models are timed beside what they stand for."""

import shutil

import pytest

from koopax import KoopaxError
from koopax.bench import export, simulator
from koopax.cli.bench_tables import export_speed_table, simulator_table


@pytest.mark.slow
def test_simulators_beside_their_environment():
    found = simulator.measure(
        environment="Pendulum-v1", cores=("dmdc",), copies=(1, 8), latent_size=4, models=2, rounds=1
    )
    environment, one, many = found["results"]
    assert [row["simulator"] for row in found["results"]] == ["Pendulum-v1", "dmdc", "dmdc"]
    assert environment["over_environment"] == 1
    assert many["copies"] == 8
    assert many["steps_per_second"] > one["steps_per_second"]
    ratio = many["steps_per_second"] / environment["steps_per_second"]
    assert many["over_environment"] == pytest.approx(ratio, rel=1e-2)
    assert simulator_table(found).row_count == 3


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_exported_models_beside_jax():
    pytest.importorskip("onnxruntime")
    found = export.measure(cores=("dmdc",), rounds=1)
    assert [row["form"] for row in found["results"]] == ["c", "onnx", "jax"]
    written, *others = found["results"]
    assert written["constant_bytes"] > 4 * 17 * 17
    assert all(written["microseconds_per_step"] < other["microseconds_per_step"] for other in others)
    assert export_speed_table(found).row_count == 3


def test_nothing_to_measure():
    with pytest.raises(KoopaxError, match="0 rounds of 1 models"):
        simulator.measure(rounds=0)
    with pytest.raises(KoopaxError, match="7 rounds of"):
        export.measure(cores=())
