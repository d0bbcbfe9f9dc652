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
from koopax.models.buckets import PROGRAMS, padded_number, padded_steps
from koopax.training.run import write_json

LARGEST_BATCH, LONGEST = 64, 100
SMALL = {"latent_size": 16, "encoder_hidden": (16,), "decoder_hidden": (16,)}  # it is about shapes, not arithmetic


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
    model = koopax.DynamicsModel.create("koopman", episodes(), **SMALL, key=jax.random.key(0))
    began, memory, done, lock = time.perf_counter(), [], 0, threading.Lock()

    def predict(batch: int, horizon: int) -> None:
        states, actions = np.zeros((batch, 2), np.float32), np.zeros((batch, horizon, 1), np.float32)
        assert model.rollouts(states, actions).states.shape == (batch, horizon, 2)

    # Every bucket once: whatever memory is taken after that is growth.
    for batch in sorted({padded_number(each) for each in range(1, LARGEST_BATCH + 1)}):
        for horizon in sorted({padded_steps(each) for each in range(1, LONGEST + 1)}):
            predict(batch, horizon)
    begun_with = resident()

    def work(number: int) -> None:
        nonlocal done
        rng = np.random.default_rng(number)
        while True:
            predict(int(rng.integers(1, LARGEST_BATCH + 1)), int(rng.integers(1, LONGEST + 1)))
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
        "megabytes_with_all_programs": begun_with,
        "megabytes": memory,
        "seconds": round(time.perf_counter() - began, 1),
        **provenance(),
    }
    if arguments.out:
        write_json(arguments.out, document)
    told = ("rollouts", "programs_made", "megabytes_with_all_programs", "megabytes", "seconds")
    print(json.dumps({name: document[name] for name in told}))
    sys.exit(memory[-1] > 1.1 * begun_with or PROGRAMS.made > PROGRAMS.most)


if __name__ == "__main__":
    main()
