"""Kills every kind of work at random moments and lets it go on: what it finds is what it would have found undisturbed.

    python tests/reliability/storm.py --rounds 30 --out results/reliability/storm.json

A round starts a job, or what is left of it, and ends it after a random time by SIGKILL, SIGINT or SIGTERM. A job that
is finished before is compared with the undisturbed one, and another is begun; so is what the last round leaves. Jobs
are forks of a process that has imported everything, so that the random moments fall into the work and not into
imports; with `--fresh` each is an interpreter of its own.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
LONGEST = 1800.0
MEMORY_DISK = Path("/dev/shm")  # where waiting for the disk takes no time
# Every process compiles the same: what one has compiled, the others load; and what runs once need not be the fastest.
CHEAP = {
    "JAX_PLATFORMS": "cpu",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    # Threads share sums, so that their number decides the last digits: it must not follow the cores that are free now.
    "NPROC": "1",
}


class Process:
    """A job under way, in a group of its own, as a shell starts it."""

    def __init__(self, name: str, folder: Path, *, fresh: bool):
        """Begin a job in a folder, or go on with it."""
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder.parent / "log.txt"
        self.processor_seconds = 0.0
        self.number = self._fresh(name, folder) if fresh else self._forked(name, folder)

    def _fresh(self, name: str, folder: Path) -> int:
        command = [sys.executable, str(HERE / "storm_jobs.py"), name, str(folder)]
        with open(self.log, "wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True).pid

    def _forked(self, name: str, folder: Path) -> int:
        from storm_jobs import JOBS

        if number := os.fork():
            return number
        code = 1
        try:
            os.setsid()
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            # A shell has Ctrl-C ignored in the background, and programs hand that on to those they start.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the storm itself has another use for it
            JOBS[name](folder)
            code = 0
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else 0
        except BaseException as error:
            traceback.print_exc()
            code = 130 if isinstance(error, KeyboardInterrupt) else 1
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def wait(self, seconds: float) -> int | None:
        """The code it ended with, minus the number of a signal that ended it; None if it has not ended in time."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            ended, status, used = os.wait4(self.number, os.WNOHANG)
            if ended:
                self.processor_seconds = used.ru_utime + used.ru_stime
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        return None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.number, number)

    @property
    def told(self) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-3000:]


def finish(name: str, folder: Path, *, fresh: bool) -> tuple[float, float]:
    """Let a job end by itself; the seconds it took, and those of a processor. Raises if it does not end well."""
    began = time.perf_counter()
    process = Process(name, folder, fresh=fresh)
    code = process.wait(LONGEST)
    if code is None:
        process.send(signal.SIGKILL)
    if code != 0:
        raise AssertionError(f"{name} ended with {code}: {process.told}")
    return time.perf_counter() - began, process.processor_seconds


def disturb(name: str, folder: Path, delay: float, number: signal.Signals, *, fresh: bool) -> bool:
    """One round; whether the job was finished before it was disturbed. Raises if it refuses to go on."""
    process = Process(name, folder, fresh=fresh)
    code = process.wait(delay)
    if code is None:
        process.send(number)
        code = process.wait(LONGEST)
        # Workers notice by themselves that nobody is there any more; the storm does not wait for it.
        if code in (-number, 128 + number, 130) or "KeyboardInterrupt" in process.told:
            return False
    if code == 0:
        return True
    raise AssertionError(f"{name} ended with {code} around {number.name}: {process.told}")


def compare(name: str, folder: Path, expected: dict) -> None:
    """Raise unless a finished job has the results of the undisturbed one and has left nothing behind."""
    from storm_jobs import results

    found = results(folder)
    different = [key for key in expected.keys() | found.keys() if found.get(key) != expected.get(key)]
    if different:
        shown = [f"{key}: {first_difference(expected.get(key), found.get(key))}" for key in sorted(different)]
        raise AssertionError(f"{name} differs from the undisturbed run in {shown}")
    left = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.name.endswith(".tmp")]
    if left:
        raise AssertionError(f"{name} has left {left}")


def first_difference(one: Any, other: Any) -> str:
    """Where two results differ, in short."""
    if isinstance(one, list) and isinstance(other, list):
        pairs = enumerate(zip(one, other, strict=False))
        found = next(((i, a, b) for i, (a, b) in pairs if a != b), None)
        return f"{len(one)} and {len(other)} lines, {str(found)[:1500]}"
    if isinstance(one, dict) and isinstance(other, dict):
        return f"{sorted(str(key) for key in one.keys() | other.keys() if one.get(key) != other.get(key))[:20]}"
    return f"{type(one).__name__} and {type(other).__name__}"


def what_is_there(folder: Path) -> str:
    """What a round goes on from."""
    names = {path.parent.name if path.parent.name == "checkpoints" else path.name for path in folder.rglob("*.*")}
    whole = names & {"checkpoints", "model.koopax", "set.npz"}
    return "a checkpoint" if whole else "settings" if "config.json" in names else "nothing"


def storm(name: str, rounds: int, rng: np.random.Generator, place: Path, *, fresh: bool = True) -> dict:
    """All rounds of one job."""
    from storm_jobs import results

    finish(name, place / name / "first", fresh=fresh)  # which also compiles what the others load
    seconds, processor_seconds = finish(name, place / name / "whole", fresh=fresh)
    compare(name, place / name / "first", expected := results(place / name / "whole"))
    if not expected:
        raise AssertionError(f"{name} leaves nothing to compare")
    ended, begun, finished, began = Counter(), Counter(), 0, time.perf_counter()
    for _ in range(rounds):
        number = SIGNALS[int(rng.integers(len(SIGNALS)))]
        folder = place / name / f"run-{finished}"
        begun[what_is_there(folder)] += 1
        if disturb(name, folder, float(rng.uniform(0, seconds)), number, fresh=fresh):
            compare(name, folder, expected)
            shutil.rmtree(folder)
            finished += 1
            ended["itself"] += 1
        else:
            ended[number.name] += 1
    finish(name, folder := place / name / f"run-{finished}", fresh=fresh)
    compare(name, folder, expected)
    return {
        "rounds": rounds,
        "ended_by": dict(ended),
        "begun_with": dict(begun),
        "compared": finished + 2,
        "compared_files": len(expected),
        "seconds_undisturbed": round(seconds, 1),
        "processor_seconds_undisturbed": round(processor_seconds, 1),
        "seconds": round(time.perf_counter() - began, 1),
    }


def one_job(name: str, rounds: int, seed: int, *, fresh: bool) -> dict:
    """All rounds of one job, in a place of its own."""
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None) as folder:
        place = Path(folder)
        cached = {"KOOPAX_DATA": place / "cache", "JAX_COMPILATION_CACHE_DIR": place / "programs"}
        os.environ |= CHEAP | {name: str(path) for name, path in cached.items()}
        from storm_jobs import JOBS, import_everything

        if not fresh:
            import_everything()
        return storm(name, rounds, np.random.default_rng([seed, list(JOBS).index(name)]), place, fresh=fresh)


def main() -> None:
    """Disturb all jobs and write what happened."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=1, help="jobs that are disturbed at the same time")
    parser.add_argument("--fresh", action="store_true", help="start an interpreter for every round")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        print(json.dumps(one_job(arguments.job, arguments.rounds, arguments.seed, fresh=arguments.fresh)))
        return
    from storm_jobs import JOBS

    from koopax._provenance import commit, provenance
    from koopax.training.run import write_json

    options = ["--rounds", str(arguments.rounds), "--seed", str(arguments.seed), *["--fresh"] * arguments.fresh]
    command, names = "python tests/reliability/storm.py " + " ".join(options), arguments.only or list(JOBS)
    lock = threading.Lock()

    def kept() -> dict:
        """What is known of other jobs that were disturbed as often, here or by a storm beside this one."""
        known = json.loads(arguments.out.read_text()) if arguments.out and arguments.out.is_file() else {}
        return known["jobs"] if known.get("command") == command else {}

    def one(name: str) -> str | None:
        """What went wrong with a job, if anything did."""
        done = subprocess.run([sys.executable, __file__, *options, "--job", name], capture_output=True, text=True)
        if done.returncode:
            print(name, done.stderr[-4000:], file=sys.stderr, flush=True)
            return f"{name} failed"
        with lock:
            found = kept() | {name: json.loads(done.stdout.splitlines()[-1]) | {"commit": commit()}}
            print(name, json.dumps(found[name]), flush=True)
            if arguments.out:
                jobs = {each: found[each] for each in JOBS if each in found}
                write_json(arguments.out, {"command": command, "jobs": jobs, **provenance()})
        return None

    with ThreadPoolExecutor(arguments.at_once) as pool:
        failures = [failure for failure in pool.map(one, names) if failure]
    sys.exit("\n".join(failures) or None)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
