"""Where compiled programs are kept, asked in fresh processes: JAX reads its settings when it is imported."""

import json
import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import koopax
from episode_samples import random_episodes
from koopax import _compilations
from koopax._compilations import MOST_BYTES, _remove_unfinished, make_room, mapped_pieces

SCRIPT = """
import json, sys
if sys.argv[1] == "late":
    import jax
from koopax._compilations import keep_compilations
folder = keep_compilations()
early = "jax" in sys.modules
import jax
told = [None if folder is None else str(folder), jax.config.jax_compilation_cache_dir]
print(json.dumps([*told, jax.config.jax_compilation_cache_max_size, early]))
"""


def settings(folder, when="early", **environment):
    own = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "KOOPAX_"))}
    own |= {"KOOPAX_DATA": str(folder), "JAX_PLATFORMS": "cpu"} | environment
    done = subprocess.run([sys.executable, "-c", SCRIPT, when], env=own, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_programs_are_kept_in_the_cache_folder(tmp_path):
    folder, known, most, imported = settings(tmp_path)
    assert folder == known
    assert folder.startswith(str(tmp_path / "compilations"))
    assert most == MOST_BYTES
    assert not imported
    assert settings(tmp_path, "late") == [folder, known, most, True]


def test_the_user_decides(tmp_path):
    assert settings(tmp_path, KOOPAX_COMPILATION_CACHE="0")[:3] == [None, None, -1]
    assert settings(tmp_path, JAX_COMPILATION_CACHE_DIR="/tmp/mine")[:3] == ["/tmp/mine", "/tmp/mine", -1]
    assert settings(tmp_path, JAX_COMPILATION_CACHE_MAX_SIZE="77")[2] == 77


def test_what_was_half_written_is_removed(tmp_path):
    for name in ("a-cache", "a-atime", "b-cache", "c-atime"):
        (tmp_path / name).touch()
    _remove_unfinished(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a-cache", "a-atime", "c-atime"}
    _remove_unfinished(tmp_path / "nowhere")


def test_programs_in_memory_are_let_go_before_there_is_no_room_for_more(monkeypatch):
    monkeypatch.setattr(_compilations, "MOST_MAPPED", 2.0)
    before = mapped_pieces()[0]
    programs = [jax.jit(lambda x, shift=shift: jnp.sin(x) + shift) for shift in range(60)]
    found = [float(program(1.0)) for program in programs]
    assert not make_room()
    made = mapped_pieces()[0] - before
    assert made > 60
    monkeypatch.setattr(_compilations, "MOST_MAPPED", 0.0)
    assert make_room()
    assert mapped_pieces()[0] - before < made / 2
    assert [float(program(1.0)) for program in programs] == found


def test_a_training_that_makes_room_is_the_same_training(monkeypatch):
    trained, cleared, clear = [], [], jax.clear_caches
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(len(trained)) or clear())
    for share in (2.0, 0.0):  # never, and whenever something is compiled
        monkeypatch.setattr(_compilations, "MOST_MAPPED", share)
        episodes = random_episodes([12, 15, 12])
        model = koopax.DynamicsModel.create("mlp", episodes, latent_size=4, key=jax.random.key(0))
        run = koopax.fit(model, episodes, validation=episodes, horizon=5, steps=4, batch_size=2, progress=False)
        trained.append(jax.tree.leaves(eqx.filter(run.model, eqx.is_array)))
    assert set(cleared) == {1}  # in the second one only
    for left, right in zip(*trained, strict=True):
        np.testing.assert_array_equal(left, right)
