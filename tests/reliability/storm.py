"""Kills every kind of work at random moments and lets it go on: what it finds is what it would have found undisturbed.

    python tests/reliability/storm.py --rounds 30 --out results/reliability/storm.json

A round starts a job, or what is left of it, and ends it after a random time by SIGKILL, SIGINT or SIGTERM. A job that
is finished before is compared with the undisturbed one, and another is begun; so is what the last round leaves.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)


def start(name: str, folder: Path) -> subprocess.Popen:
    """Begin a job in a folder, or go on with it; in a group of its own, as a shell starts it."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "KOOPAX_DATA": str(folder.parent.parent / "cache")}
    command = [sys.executable, str(HERE / "storm_jobs.py"), name, str(folder)]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def finish(name: str, folder: Path) -> float:
    """Let a job end by itself; the seconds it took. Raises if it does not end well."""
    began = time.perf_counter()
    process = start(name, folder)
    told = process.communicate(timeout=1800)[1]
    if process.returncode:
        raise AssertionError(f"{name} ended with {process.returncode}: {told[-3000:]}")
    return time.perf_counter() - began


def disturb(name: str, folder: Path, delay: float, number: signal.Signals) -> bool:
    """One round; whether the job was finished before it was disturbed. Raises if it refuses to go on."""
    process = start(name, folder)
    try:
        told = process.communicate(timeout=delay)[1]
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        told = process.communicate(timeout=300)[1]
        # Workers notice by themselves that nobody is there any more; the storm does not wait for it.
        early = process.returncode in (-number, 128 + number, 130)
        if early or "KeyboardInterrupt" in told:
            return False
    if process.returncode == 0:
        return True
    raise AssertionError(f"{name} ended with {process.returncode} around {number.name}: {told[-3000:]}")


def compare(name: str, folder: Path, expected: dict) -> None:
    """Raise unless a finished job has the results of the undisturbed one and has left nothing behind."""
    from storm_jobs import results

    found = results(folder)
    different = [key for key in expected.keys() | found.keys() if found.get(key) != expected.get(key)]
    if different:
        raise AssertionError(f"{name} differs from the undisturbed run in {sorted(different)}")
    left = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.name.endswith(".tmp")]
    if left:
        raise AssertionError(f"{name} has left {left}")


def storm(name: str, rounds: int, rng: np.random.Generator, place: Path) -> dict:
    """All rounds of one job."""
    from storm_jobs import results

    finish(name, place / name / "first")  # which also compiles what the others load
    seconds = finish(name, place / name / "whole")
    compare(name, place / name / "first", expected := results(place / name / "whole"))
    counts, finished, began = Counter(), 0, time.perf_counter()
    for _ in range(rounds):
        number = SIGNALS[int(rng.integers(len(SIGNALS)))]
        folder = place / name / f"run-{finished}"
        if disturb(name, folder, float(rng.uniform(0, seconds)), number):
            compare(name, folder, expected)
            finished += 1
        else:
            counts[number.name] += 1
    finish(name, folder := place / name / f"run-{finished}")
    compare(name, folder, expected)
    return {
        "rounds": rounds,
        "ended_by": dict(counts),
        "compared": finished + 2,
        "seconds_undisturbed": round(seconds, 1),
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    """Disturb all jobs and write what happened."""
    from storm_jobs import JOBS

    from koopax._provenance import provenance
    from koopax.training.run import write_json

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=list(JOBS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    command = f"python tests/reliability/storm.py --rounds {arguments.rounds} --seed {arguments.seed}"
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for name in arguments.only:
            rng = np.random.default_rng([arguments.seed, list(JOBS).index(name)])
            found[name] = storm(name, arguments.rounds, rng, Path(place))
            print(name, json.dumps(found[name]), flush=True)
            if arguments.out:
                write_json(arguments.out, {"command": command, "jobs": found, **provenance()})


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
