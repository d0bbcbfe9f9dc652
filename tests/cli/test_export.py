"""`koopax export` as a user meets it."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import koopax as library

KOOPAX = Path(sys.executable).with_name("koopax")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the file of a small model."""
    folder, random = tmp_path_factory.mktemp("user"), np.random.default_rng(0)
    data = library.Episodes.from_arrays([random.normal(size=(31, 3))], [random.normal(size=(30, 2))])
    small = {"latent_size": 4, "encoder_hidden": (4,), "decoder_hidden": (4,)}
    library.DynamicsModel.create("mlp", data, key=jax.random.key(0), **small).save(folder / "small.koopax")
    return folder


def test_c_in_a_real_process(folder):
    command = [KOOPAX, "export", "small.koopax", "--to", "c", "--out", "c", "--horizon", "3", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    assert document == json.loads((folder / "c" / "export.json").read_text())
    assert document["sizes"] == {"state": 3, "action": 2, "latent": 4, "horizon": 3}
    assert document["functions"]["step"]["outputs"] == ["next_latent", "state", "reward"]
    model = library.load_model(folder / "small.koopax")
    found = model.step(document["example"]["state"], document["example"]["action"])
    np.testing.assert_allclose(document["example"]["step"]["state"], found.state, rtol=1e-5, atol=1e-5)
    subprocess.run(["gcc", "-Wall", "-Werror", "-std=c99", "c/example.c", "-lm"], cwd=folder, check=True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("missing.koopax", "--to", "c"), "there is no run or model file at 'missing.koopax'"),
        (("small.koopax", "--to", "c", "--horizon", 0), "a rollout of 0 steps can't be exported"),
        (("small.koopax", "--to", "c", "--name", "2b"), "'2b' is no name for C"),
        (("small.koopax", "--to", "pdf"), "invalid choice"),
    ],
)
def test_refusals(folder, refused, arguments, sentence):
    assert sentence in refused(folder, ["export", *arguments, "--out", "files"])
    assert not (folder / "files").exists()
