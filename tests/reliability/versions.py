"""Builds the wheel and tries it in empty environments: with the lowest versions it allows, and the newest there are.

    python tests/reliability/versions.py --out results/reliability/versions.json

`core` has the run-time dependencies alone and goes from data to predictions; `demo` has the extras that `koopax demo`
needs, and runs it at a small size.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMOKE = """
import jax, numpy as np, koopax, koopax.data
rng = np.random.default_rng(0)
data = koopax.Episodes.from_arrays(rng.normal(size=(9, 31, 3)), rng.normal(size=(9, 30, 1)), rng.normal(size=(9, 30)))
for name in ("a.npz", "a.parquet", "a.csv", "a.episodes"):
    koopax.data.save(data, name)
    assert koopax.load(name).num_steps == 270
train, test = data.split(0.7, seed=0)
for core in ("koopman", "mlp", "gru", "transformer", "dssm"):
    model = koopax.DynamicsModel.create(core, train, latent_size=8, key=jax.random.key(0))
    run = koopax.fit(model, train, validation=test, horizon=5, steps=6, batch_size=4, out=f"runs/{core}")
    run = koopax.fit(model, train, validation=test, horizon=5, steps=8, batch_size=4, out=f"runs/{core}", resume=True)
    assert np.isfinite(koopax.prediction_error(run.model, test, horizon=5).state.normalised)
    both = run.model, koopax.load_model(f"runs/{core}")
    assert np.array_equal(*(each.rollout(np.zeros(3), np.ones((7, 1))).states for each in both))
print("fine")
"""
DEMO = ("demo", "--steps", "3000", "--seconds", "3", "--horizon", "20", "--out", "demo")


def lowest(dependencies: list[str]) -> list[str]:
    """The dependencies at the versions that they begin with."""
    pinned = []
    for dependency in dependencies:
        found = re.fullmatch(r"([\w.\[\],-]+?)>=([\w.]+)(?:,.*)?", dependency)
        assert found, f"{dependency} has no lowest version"
        pinned.append(f"{found[1]}=={found[2]}")
    return pinned


def run(*command: object, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # nothing but what is installed
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, env=clean)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))[:200]} failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def attempt(wheel: Path, extras: str, pins: list[str], *words: str, place: Path) -> dict:
    """Install the wheel into an empty environment and run something in it; what is installed, and how long it took."""
    began = time.perf_counter()
    run(sys.executable, "-m", "venv", place / "venv", cwd=place)
    python = place / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}{extras}", *pins, cwd=place)
    installed = json.loads(run(python, "-m", "pip", "list", "--format", "json", cwd=place))
    run(python.with_name(words[0]), *words[1:], cwd=place)
    versions = {each["name"].lower(): each["version"] for each in installed}
    named = {re.split(r"[\[=]", pin)[0].lower(): versions.get(re.split(r"[\[=]", pin)[0].lower()) for pin in pins}
    return {"packages": len(versions), "versions": named, "seconds": round(time.perf_counter() - began, 1)}


def main() -> None:
    """Try all three and write what was installed."""
    from koopax._provenance import provenance
    from koopax.training.run import write_json

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=["lowest", "newest", "demo"])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    pins = lowest(dependencies)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place, ROOT, cwd=place)
        (wheel,) = place.glob("*.whl")
        ways = {
            "lowest": ("", pins, ("python", "-c", SMOKE)),
            "newest": ("", [pin.split("==")[0] for pin in pins], ("python", "-c", SMOKE)),
            "demo": ("[mujoco,report]", [], ("koopax", *DEMO)),
        }
        for name in arguments.only:
            extras, wanted, words = ways[name]
            (place / name).mkdir()
            found[name] = attempt(wheel, extras, wanted, *words, place=place / name)
            print(name, json.dumps(found[name]), flush=True)
            if arguments.out:  # each takes minutes, so what was tried is written before the next is
                write_json(arguments.out, {"command": "python tests/reliability/versions.py", **found, **provenance()})


if __name__ == "__main__":
    main()
