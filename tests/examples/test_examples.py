"""Every example runs, at a small size, as a user would run it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
# What shows that an example came to its end.
SAYS = {
    "own_arrays": "true and predicted",
    "irregular_sampling": "durations known",
    "pendulum_mpc": "mean return of planning",
    "read_the_spectrum": "of the motion",
    "compare_cores": "gru",
}
# Two cores show that it compares; all five compile for long.
MORE = {"compare_cores": ["--cores", "koopman", "gru"]}


# It collects, trains and plans: most of what the others use.
QUICK = ("pendulum_mpc",)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path.stem in QUICK else pytest.mark.slow, id=path.stem) for path in EXAMPLES],
)
def test_runs(path, tmp_path):
    done = subprocess.run(
        [sys.executable, str(path), "--quick", *MORE.get(path.stem, [])],
        cwd=tmp_path,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert SAYS[path.stem] in done.stdout


@pytest.mark.slow
def test_every_core_can_be_compared(tmp_path):
    path = next(path for path in EXAMPLES if path.stem == "compare_cores")
    done = subprocess.run([sys.executable, str(path), "--quick"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "dssm" in done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_is_short_and_says_what_it_shows(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 70
    assert "Run: python examples/" in (ast.get_docstring(ast.parse(text)) or "")
