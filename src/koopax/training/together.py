"""Whether several seeds train faster in one vmapped step or one after another.

A vmapped step shares what an operation costs whatever its size, and pays for it with batched matrix products, which
XLA computes slower on a CPU. Three seeds of models of 500 000 parameters, 17 states and 6 actions, on one busy core:
time one after another over time together, the median of five interleaved pairs (their range).

| core    | horizon | windows in a batch | times as fast together |
|---------|---------|--------------------|------------------------|
| koopman | 100     | 1                  | 1.19 (0.94 to 1.45)    |
| koopman | 100     | 4                  | 1.11 (1.01 to 1.27)    |
| koopman | 100     | 16                 | 0.54 (0.51 to 0.57)    |
| koopman | 100     | 64                 | 1.01 (0.91 to 1.14)    |
| koopman | 10      | 16                 | 1.06 (0.95 to 1.11)    |
| mlp     | 10      | 1                  | 1.23 (1.07 to 1.63)    |
| mlp     | 10      | 4                  | 0.88 (0.55 to 1.18)    |
| mlp     | 10      | 16                 | 0.83 (0.64 to 0.94)    |
| mlp     | 10      | 64                 | 0.90 (0.82 to 0.94)    |
| mlp     | 100     | 16                 | 0.58 (0.52 to 0.79)    |
| gru     | 100     | 16                 | 0.90 (0.74 to 0.92)    |

Measured when each step was a program of its own. The Koopman model's loss was taken on 16 random steps of a window at 4
and 16 windows of 100 steps, else on all. Not measured: losses on every `loss_stride`-th step, smaller models, for which
the same bounds on the batch are assumed, and the other cores and accelerators, whose seeds are trained one after
another. Either way seeds compile once.
"""

from collections.abc import Sequence

from koopax.data.episodes import Episodes
from koopax.training.config import TrainConfig
from koopax.training.record import Record

LARGEST_BATCH = {"koopman": 4, "mlp": 1}


def pays_together(core: str, train: Episodes, config: TrainConfig, sinks: tuple[str, ...]) -> bool:
    """Whether to train seeds together: where that is faster, and where each seed still gets the run it has alone."""
    # One clock or one validation can't end seeds at different steps, a host callback has no vmapped form, and Weights &
    # Biases has one run at a time in a process.
    if config.seconds is not None or config.patience is not None or train.is_memory_mapped or "wandb" in sinks:
        return False
    return config.batch_size <= LARGEST_BATCH.get(core, 0)


def common_step(records: Sequence[Record]) -> int | None:
    """The newest step that every seed has a checkpoint of, 0 where none has any; None where they are apart."""
    steps = [set(record.checkpoints.steps()) for record in records if record.checkpoints is not None]
    if not any(steps):
        return 0
    return max(set.intersection(*steps), default=None)
