"""A fingerprint of what episodes hold, so that a run can tell its own data from any other."""

import hashlib

import numpy as np

from koopax.data.episodes import Episodes
from koopax.data.statistics import iterate_chunks


def fingerprint(episodes: Episodes) -> str:
    """A hash of sizes, episode boundaries and every state, action, reward and duration, in order; names don't count.

    All rows are read, not a sample: hashing is faster than the pass over the data that fits the normaliser. The same
    episodes have the same fingerprint in memory, memory-mapped, and converted to another format.
    """
    found = hashlib.blake2b(digest_size=16)
    sizes = (episodes.image_shape or episodes.state_size, episodes.action_size, episodes.durations is not None)
    found.update(repr(sizes).encode())
    found.update(episodes.starts.astype("<i8").tobytes())
    for chunk in iterate_chunks(episodes):
        for rows in (chunk.observations, chunk.actions, chunk.rewards, chunk.durations):
            if rows is not None and rows.size:
                found.update(np.ascontiguousarray(rows, "u1" if rows.dtype == np.uint8 else "<f4").data)
    return found.hexdigest()
