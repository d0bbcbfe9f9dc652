"""Spoils files by the thousand and reads them: nothing but a result or one sentence of a `KoopaxError` may come out.

    python tests/reliability/fuzz.py --inputs 100000 --out results/reliability/fuzz.json

Loaders run in a child process, so that a crash of a library is found and counted as well. What broke is kept in
`corpus/`, where the tests read it again.
"""

import argparse
import faulthandler
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
MEMORY_DISK = Path("/dev/shm")
SECONDS = 20
MEMORY = 8 << 30
# What takes longest is tried less often: a command line starts an interpreter's worth of imports.
SHARES = {"command line": 0.005, "model file": 0.1, "run folder": 0.1, "Minari folder": 0.1, "frames": 0.1}
SHARES |= {"training resumed": 0.05, "agent resumed": 0.02}
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
    """Attack one loader so many times; one line of JSON for each input that must not have ended so."""
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
    (folder / "made").mkdir()
    made = target.make(folder / "made")
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
            print(json.dumps({"failed": f"{type(error).__name__}: {error}"[:400], "number": number}), flush=True)
            keep(folder / "spoilt", name, number)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        (folder / "totals").write_text(json.dumps(totals))


def keep(spoilt: Path, name: str, number: int) -> None:
    shutil.copytree(spoilt, CORPUS / f"{name.replace(' ', '-')}-{number}", dirs_exist_ok=True)


def run_target(name: str, seed: int, count: int) -> tuple[Counter, list[str]]:
    """Attack one loader; a crash of the child is a failure as well, after which another goes on."""
    totals, failures, end = Counter(), [], seed + count
    while seed < end:
        with tempfile.TemporaryDirectory(dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None) as folder:
            command = [sys.executable, __file__, "--child", name, str(seed), str(end - seed), folder]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            place = Path(folder)
            if not (place / "totals").is_file():
                raise SystemExit(f"{name} could not be attacked at all")
            lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"failed"')]
            failures += [f"{line['number']}: {line['failed']}" for line in lines]
            totals += Counter(json.loads((place / "totals").read_text()))
            reached = int((place / "number").read_text())
            if ended.returncode:
                totals += Counter(inputs=1, failed=1)
                failures.append(f"{reached}: the process ended with {ended.returncode}")
                keep(place / "spoilt", name, reached)
            seed = reached + 1
    return totals, failures


def main() -> None:
    """Attack all loaders and write the totals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--only", help="one loader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.path.insert(0, str(HERE))
    if arguments.child:
        name, seed, count, folder = arguments.child
        child(name, int(seed), int(count), Path(folder))
        return
    from targets import TARGETS

    from koopax._provenance import provenance
    from koopax.training.run import write_json

    names = [arguments.only] if arguments.only else list(TARGETS)
    shares = {name: SHARES.get(name, 1.0) for name in names}
    found, failures, began = {}, {}, time.perf_counter()
    for name in names:
        count = -int(-arguments.inputs * shares[name] // sum(shares.values()))
        start = time.perf_counter()
        totals, failed = run_target(name, arguments.seed, count)
        found[name] = {key: totals[key] for key in COUNTED} | {"seconds": round(time.perf_counter() - start, 1)}
        failures |= {name: failed} if failed else {}
        print(name, found[name], *failed[:20], sep="\n  ", file=sys.stderr, flush=True)
    totals = {key: sum(each[key] for each in found.values()) for key in COUNTED}
    document = {
        "command": f"python tests/reliability/fuzz.py --inputs {arguments.inputs} --seed {arguments.seed}",
        "totals": totals,
        "seconds": round(time.perf_counter() - began, 1),
        "loaders": found,
        "failures": failures,
        **provenance(),
    }
    if arguments.out:
        write_json(arguments.out, document)
    print(json.dumps(totals))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
