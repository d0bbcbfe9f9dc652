"""Where compiled programs are kept, asked in fresh processes: JAX reads its settings when it is imported."""

import json
import os
import subprocess
import sys

from koopax._compilations import MOST_BYTES, _remove_unfinished

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
