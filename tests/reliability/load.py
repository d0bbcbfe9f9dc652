"""Many rollouts of every batch and horizon in one process: memory and compiled programs must not grow without end.

python tests/reliability/load.py --rollouts 100000 --out results/reliability/load.json
"""

import argparse
import json
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
from targets import episodes

import koopax
from koopax._provenance import provenance
from koopax.models.buckets import PROGRAMS
from koopax.training.run import write_json

LARGEST_BATCH, LONGEST = 64, 100


def resident() -> float:
    """Megabytes of memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * 4096 / 1e6, 1)


def main() -> None:
    """Predict, and look at the memory along the way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    model = koopax.DynamicsModel.create("koopman", episodes(), latent_size=64, key=jax.random.key(0))
    began, memory, done, lock = time.perf_counter(), [], 0, threading.Lock()

    def work(number: int) -> None:
        nonlocal done
        rng = np.random.default_rng(number)
        while True:
            batch, horizon = int(rng.integers(1, LARGEST_BATCH + 1)), int(rng.integers(1, LONGEST + 1))
            states, actions = np.zeros((batch, 2), np.float32), np.zeros((batch, horizon, 1), np.float32)
            found = model.rollouts(states, actions)
            assert found.states.shape == (batch, horizon, 2)
            with lock:
                if done >= arguments.rollouts:
                    return
                done += 1
                if done % (arguments.rollouts // 20) == 0:
                    memory.append(resident())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(arguments.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    document = {
        "command": f"python tests/reliability/load.py --rollouts {arguments.rollouts}",
        "rollouts": done,
        "threads": arguments.threads,
        "batches": [1, LARGEST_BATCH],
        "horizons": [1, LONGEST],
        "shapes": LARGEST_BATCH * LONGEST,
        "programs_made": PROGRAMS.made,
        "programs_kept": len(PROGRAMS),
        "megabytes": memory,
        "seconds": round(time.perf_counter() - began, 1),
        **provenance(),
    }
    if arguments.out:
        write_json(arguments.out, document)
    print(json.dumps({name: document[name] for name in ("rollouts", "programs_made", "megabytes", "seconds")}))
    # All programs are there after the first tenth; what comes after must not grow by more than noise.
    sys.exit(memory[-1] > 1.1 * memory[1] or PROGRAMS.made > PROGRAMS.most)


if __name__ == "__main__":
    main()
