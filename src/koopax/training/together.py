"""Whether several seeds train faster in one vmapped step or one after another.

A vmapped step shares what an operation costs whatever its size, and pays for it with batched matrix products.
"""

from collections.abc import Sequence

from koopax.data.episodes import Episodes
from koopax.training.config import TrainConfig
from koopax.training.record import Record

LARGEST_WORK = 1_000_000


def pays_together(parameters: int, train: Episodes, config: TrainConfig, sinks: tuple[str, ...]) -> bool:
    """Whether to train seeds together: where that is faster, and where each seed still gets the run it has alone."""
    # One clock or one validation can't end seeds at different steps, a host callback has no vmapped form, and Weights &
    # Biases has one run at a time in a process.
    if config.seconds is not None or config.patience is not None or train.is_memory_mapped or "wandb" in sinks:
        return False
    return parameters * config.batch_size <= LARGEST_WORK


def common_step(records: Sequence[Record]) -> int | None:
    """The newest step that every seed has a checkpoint of, 0 where none has any; None where they are apart."""
    steps = [set(record.checkpoints.steps()) for record in records if record.checkpoints is not None]
    if not any(steps):
        return 0
    return max(set.intersection(*steps), default=None)
