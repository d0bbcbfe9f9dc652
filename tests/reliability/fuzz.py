"""Spoils files by the thousand and reads them: nothing but a result or one sentence of a `KoopaxError` may come out.

    python tests/reliability/fuzz.py --inputs 100000 --guided 2000 --out results/reliability/fuzz.json

Loaders run in a child process, so that a crash of a library is found and counted as well; it is a fork of one that has
imported everything. All are attacked in turns, and what was found so far is written after every turn; `--resume` goes
on from there, and first looks again at what had failed. `--guided` lets atheris look for so many inputs of each loader
besides, where it is installed. What broke is kept in `corpus/`, where the tests read it again.
"""

import argparse
import contextlib
import faulthandler
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
MEMORY_DISK = Path("/dev/shm")
SECONDS = 20
MEMORY = 8 << 30
TURNS = 5
# What takes longest is tried less often. Milliseconds of a processor for an input: 1 to 6 without a share, a model 20,
# a run that is resumed 30 to 90, a command line, whose parser is built each time, 300.
SHARES = {
    "command line": 0.03,
    "model file": 0.3,
    "run folder": 0.1,
    "Minari folder": 0.2,
    "frames": 0.3,
    "training resumed": 0.1,
    "agent resumed": 0.05,
}
COUNTED = ("inputs", "read", "refused", "failed")


class TooLong(Exception):
    """An input took longer than it may."""


def attack(read, path) -> str:
    """ "read" or "refused"; raises what must not come out."""
    from koopax import KoopaxError

    try:
        read(path)
    except KoopaxError as error:
        if "\n" in str(error) or not str(error):
            raise AssertionError(f"more than a sentence: {error}") from error
        return "refused"
    return "read"


def child(name: str, seed: int, count: int, folder: Path) -> None:
    """Attack one loader so many times; a line of JSON in `failures` for each input that must not have ended so."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    faulthandler.enable()
    warnings.simplefilter("ignore")
    import numpy as np
    from targets import TARGETS, copy

    def alarm(*_):
        raise TooLong(f"longer than {SECONDS} s")

    signal.signal(signal.SIGPROF, alarm)  # seconds of this process: others may keep the machine busy
    target = TARGETS[name]
    if not (folder / "made").is_file():
        (folder / "first").mkdir(exist_ok=True)
        (folder / "made").write_text(str(target.make(folder / "first")))
    made = Path((folder / "made").read_text())
    totals = Counter()
    for number in range(seed, seed + count):
        rng = np.random.default_rng(number)
        (folder / "number").write_text(str(number))
        path = copy(made, folder / "spoilt")
        target.spoil[number % len(target.spoil)](path, rng)
        totals["inputs"] += 1
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            totals[attack(target.read, path)] += 1
        except Exception as error:
            totals["failed"] += 1
            with open(folder / "failures", "a") as file:
                file.write(json.dumps(f"{number}: {type(error).__name__}: {error}"[:400]) + "\n")
            keep(folder / "spoilt", name, number)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        (folder / "totals").write_text(json.dumps(totals))


def keep(spoilt: Path, name: str, number: int | str) -> None:
    """What broke, for the tests."""
    shutil.copytree(spoilt, CORPUS / f"{name.replace(' ', '-')}-{number}", dirs_exist_ok=True)


def forked(name: str, seed: int, count: int, folder: Path) -> int:
    """The code that a child ended with, minus the number of a signal that ended it."""
    if number := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    code = 1
    try:
        child(name, seed, count, folder)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def run_target(name: str, seed: int, count: int, folder: Path) -> tuple[Counter, list[str]]:
    """Attack one loader; a crash of the child is a failure as well, after which another goes on."""
    totals, failures, end = Counter(), [], seed + count
    folder.mkdir(exist_ok=True)
    while seed < end:
        for left in ("totals", "number", "failures"):
            (folder / left).unlink(missing_ok=True)
        code = forked(name, seed, end - seed, folder)
        if not (folder / "number").is_file():
            raise SystemExit(f"{name} could not be attacked at all")
        reached = int((folder / "number").read_text())
        if (folder / "totals").is_file():
            totals += Counter(json.loads((folder / "totals").read_text()))
        if (folder / "failures").is_file():
            failures += [json.loads(line) for line in (folder / "failures").read_text().splitlines()]
        if code:
            totals += Counter(inputs=1, failed=1)
            failures.append(f"{reached}: the process ended with {code}")
            keep(folder / "spoilt", name, reached)
        seed = reached + 1
    return totals, failures


def run_guided(name: str, runs: int, folder: Path) -> tuple[dict, list[str]]:
    """Let atheris choose the bytes of one loader's file."""
    command = [sys.executable, str(HERE / "guided.py"), name, f"-runs={runs}", "-rss_limit_mb=8192", "-print_funcs=0"]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    ran = re.search(r"Done (\d+) runs", done.stderr)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    found = {
        "inputs": int(ran[1]) if ran else 0,
        "covered": int(covered[-1]) if covered else 0,
        "seconds": round(time.perf_counter() - began, 1),
    }
    return found, [] if ran and not done.returncode else [f"guided: {done.stderr[-800:]}"]


class Found:
    """What has come out so far, by loader."""

    def __init__(self, counts: dict[str, int]):
        """Nothing yet of these loaders, each of which is to be attacked so often."""
        self.counts = counts
        self.loaders = {name: Counter() for name in counts}
        self.guided: dict[str, dict] = {}
        self.failures: dict[str, list[str]] = {}
        self.mended: dict[str, list[str]] = {}
        self.turns = 0

    def go_on(self, document: dict) -> None:
        """What an earlier run has written."""
        if sorted(document["loaders"]) != sorted(self.counts):
            raise SystemExit("the earlier run has other loaders: leave --resume away")
        self.loaders = {name: Counter(document["loaders"][name]) for name in self.counts}
        self.guided, self.failures = document["guided"], document["failures"]
        self.mended = document.get("mended", {})
        inputs = sum(each["inputs"] for each in self.loaders.values())
        self.turns = document.get("turns", round(TURNS * inputs / sum(self.counts.values())))

    def look_again(self, name: str, place: Path) -> None:
        """Attack a loader with what had failed: it counts as what comes out now."""
        for told in self.failures.pop(name, []):
            number = told.partition(":")[0]
            if not number.isdecimal():
                self.failures.setdefault(name, []).append(told)
                continue
            totals, failed = run_target(name, int(number), 1, place)
            self.loaders[name] += totals
            self.loaders[name].subtract(inputs=1, failed=1)
            if failed:
                self.failures.setdefault(name, []).extend(failed)
            else:
                self.mended.setdefault(name, []).append(told)

    def add(self, name: str, totals: Counter, failed: list[str]) -> None:
        """One more turn of a loader."""
        self.loaders[name] += totals
        if failed:
            self.failures.setdefault(name, []).extend(failed)

    @property
    def totals(self) -> dict[str, int]:
        """Over all loaders."""
        return {key: sum(each[key] for each in self.loaders.values()) for key in COUNTED}

    def document(self) -> dict:
        """All of it, for a file."""
        loaders = {
            name: {key: round(each[key], 1) for key in (*COUNTED, "seconds")} for name, each in self.loaders.items()
        }
        guided = sum(each["inputs"] for each in self.guided.values())
        return {
            "totals": self.totals | {"guided": guided},
            "turns": self.turns,
            "loaders": loaders,
            "guided": self.guided,
            "failures": self.failures,
            "mended": self.mended,
        }


def main() -> None:
    """Attack all loaders and write the totals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--guided", type=int, default=0, help="inputs of each loader that atheris looks for")
    parser.add_argument("--only", help="one loader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on from what --out holds")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.path.insert(0, str(HERE))
    import resuming  # noqa: F401  (so that the children have it)
    from targets import GUIDED, TARGETS

    import koopax.cli  # noqa: F401
    from koopax._provenance import provenance
    from koopax.training.run import write_json

    names = [arguments.only] if arguments.only else list(TARGETS)
    share = {name: SHARES.get(name, 1.0) for name in names}
    counts = {name: -int(-arguments.inputs * share[name] // sum(share.values())) for name in names}
    found = Found(counts)
    asked = f"--inputs {arguments.inputs} --seed {arguments.seed}"
    if arguments.resume and arguments.out and arguments.out.is_file():
        found.go_on(json.loads(arguments.out.read_text()))

    def write() -> None:
        if arguments.out:
            command = f"python tests/reliability/fuzz.py {asked} --guided {arguments.guided}"
            write_json(arguments.out, {"command": command, **found.document(), **provenance()})

    with tempfile.TemporaryDirectory(dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None) as place:
        places = {name: Path(place) / str(number) for number, name in enumerate(names)}
        for name in list(found.failures):
            found.look_again(name, places[name])
        for turn in range(found.turns, TURNS):
            for name in names:
                begin, end = (counts[name] * each // TURNS for each in (turn, turn + 1))
                start = time.perf_counter()
                totals, failed = run_target(name, arguments.seed + begin, end - begin, places[name])
                found.add(name, totals + Counter(seconds=time.perf_counter() - start), failed)
                print(turn, name, dict(found.loaders[name]), *failed[:20], sep=" ", file=sys.stderr, flush=True)
            found.turns = turn + 1
            write()
        for name in GUIDED if arguments.guided and importlib.util.find_spec("atheris") else ():
            if name in names and name not in found.guided:
                (folder := Path(place) / f"guided-{len(found.guided)}").mkdir()
                found.guided[name], failed = run_guided(name, arguments.guided, folder)
                found.add(name, Counter(), failed)
                print("guided", name, found.guided[name], *failed, sep=" ", file=sys.stderr, flush=True)
                write()
    print(json.dumps(found.document()["totals"]))
    sys.exit(bool(found.failures))


if __name__ == "__main__":
    main()
