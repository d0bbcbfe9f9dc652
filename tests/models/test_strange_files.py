"""Model files of strangers: small ones that ask for much, and any damage."""

import hashlib
import json
import tracemalloc

import jax
import numpy as np
import pytest

from koopax import DynamicsModel, Episodes, KoopaxError, load_model
from koopax.models.files import _SIZES, FORMAT, MAGIC


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    data = Episodes.from_arrays([rng.normal(size=(9, 2))], [rng.normal(size=(8, 1))], [rng.normal(size=8)])
    options = {"encoder_hidden": (4,), "decoder_hidden": (4,), "latent_size": 4}
    return DynamicsModel.create("koopman", data, key=jax.random.key(0), **options)


def model_file(header, body=b""):
    """A file with this header whose digest is right: what a stranger could write."""
    text = json.dumps(header).encode()
    content = MAGIC + _SIZES.pack(FORMAT, len(text)) + text + body
    return content + hashlib.sha256(content).digest()


SIZES = {"state_size": 2, "action_size": 1}
GREEDY = [
    {"core": "koopman", **SIZES, "latent_size": 10**9},
    {"core": "koopman", **SIZES, "encoder_hidden": [10**8, 10**8]},
    {"core": "mlp", **SIZES, "encoder_hidden": [2] * 100_000},
    {"core": "mlp", **SIZES, "core_options": {"hidden_layers": 10**6}},
    {"core": "transformer", **SIZES, "core_options": {"layers": 10**6}},
    {"core": "dssm", **SIZES, "core_options": {"layers": 10**5, "state_size": 10**6}},
    {"core": "koopman", "state_size": 10**9, "action_size": 10**9},
    {"core": "linear", **SIZES, "encoder": "polynomials", "encoder_options": {"degree": 10**7}},
    {"core": "linear", **SIZES, "encoder": "fourier", "encoder_options": {"count": 10**9}},
    {"core": "koopman", "state_size": 9_000, "action_size": 9_000, "latent_size": 9_000},
]


@pytest.mark.parametrize("config", GREEDY, ids=range(len(GREEDY)))
def test_a_small_file_that_asks_for_much_gets_nothing(config, tmp_path):
    (tmp_path / "greedy.koopax").write_bytes(model_file({"koopax": "0.1.0", "config": config, "arrays": []}))
    tracemalloc.start()
    with pytest.raises(KoopaxError, match=r"greedy\.koopax") as caught:
        load_model(tmp_path / "greedy.koopax")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert peak < 300e6


@pytest.mark.parametrize(
    "header",
    [
        [],
        {},
        {"config": None, "arrays": []},
        {"config": {"core": "koopman", **SIZES}, "arrays": None},
        {"config": {"core": "koopman", **SIZES}, "arrays": [{"name": "a", "shape": [-1], "dtype": "float32"}]},
        {"config": {"core": "koopman", **SIZES}, "arrays": [{"name": "a", "shape": [1], "dtype": "object"}]},
        {"config": {"core": "koopman", **SIZES}, "arrays": [{"name": "a", "shape": ["x"], "dtype": "float32"}]},
        {"config": {"core": "koopman", **SIZES, "reencode_every": "x"}, "arrays": []},
        {"config": {"core": {}, **SIZES}, "arrays": []},
        {"config": {"core": "koopman", **SIZES, "core_options": {"spectrum": {}}}, "arrays": []},
        {"config": {"core": "koopman", **SIZES, "core_options": {"self": 1}}, "arrays": []},
    ],
    ids=repr,
)
def test_a_header_of_wrong_things_is_one_sentence(header, tmp_path):
    (tmp_path / "strange.koopax").write_bytes(model_file(header))
    with pytest.raises(KoopaxError, match=r"strange\.koopax") as caught:
        load_model(tmp_path / "strange.koopax")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b'{"koopax": ' + b"9" * 5_000 + b"}"])
def test_a_header_that_is_too_deep_or_too_long_is_damage(text, tmp_path):
    content = MAGIC + _SIZES.pack(FORMAT, len(text)) + text
    (tmp_path / "deep.koopax").write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(KoopaxError, match="is damaged"):
        load_model(tmp_path / "deep.koopax")


@pytest.mark.parametrize("writer", ["two\nlines", "\x1b[31mred", "x" * 100_000])
def test_what_a_header_says_of_its_writer_stays_a_word(writer, tmp_path):
    (tmp_path / "a.koopax").write_bytes(model_file({"koopax": writer, "config": {}, "arrays": []}))
    with pytest.raises(KoopaxError, match="was written by koopax") as caught:
        load_model(tmp_path / "a.koopax")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1_000


def test_any_flipped_bit_is_found(model, tmp_path):
    path = tmp_path / "a.koopax"
    model.save(path)
    content, rng = path.read_bytes(), np.random.default_rng(0)
    for position in rng.integers(0, len(content), 200):
        flipped = bytearray(content)
        flipped[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        with pytest.raises(KoopaxError, match=r"a\.koopax"):
            load_model(path)
