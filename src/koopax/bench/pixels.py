"""What a decision of SAC from pixels costs with each core: acting, drawing, drawing a batch, learning.

Timed are whole decisions as training makes them, with `updates_per_decision` updates each: the frame is drawn in a
process of its own while the updates run. Evaluation and checkpoints are left out. Each part is also timed alone, one
after another, so parts sum to more than a decision where two cores share the work. The arms take turns.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from koopax._errors import KoopaxError
from koopax.agents.pixels.agent import Keys, act, learn, make_learner
from koopax.agents.pixels.config import PixelSACConfig, pixel_arm
from koopax.agents.pixels.play import Players
from koopax.agents.pixels.replay import FrameReplay
from koopax.bench.clock import Watch, interleave
from koopax.bench.document import document

ARMS: dict[str, tuple[str, int]] = {
    "sac": ("none", 5),
    "mlp K=5": ("mlp", 5),
    "mlp K=20": ("mlp", 20),
    "koopman K=5": ("koopman", 5),
    "koopman K=20": ("koopman", 20),
}
PARTS = ("decision", "act", "draw", "sample", "learn")
ENVIRONMENT_STEPS = 100_000
# A replay of some episodes, so that windows meet their ends.
FILLED = 300


def measure(
    arms: Sequence[str] = tuple(ARMS),
    *,
    task: str = "cartpole-swingup",
    published: bool = False,
    updates_per_decision: int = 1,
    rounds: int = 7,
    changes: dict[str, Any] | None = None,
    watch: Watch = lambda done, total: None,
) -> dict[str, Any]:
    """The document that `koopax bench pixels --json` prints.

    Args:
        arms: of `ARMS`.
        task: the environment.
        published: with the published sizes instead of those for one CPU core.
        updates_per_decision: updates that each timed decision makes.
        rounds: interleaved rounds; the median counts.
        changes: other settings of every arm.
        watch: told how many visits are done, and of how many.
    """
    unknown = [arm for arm in arms if arm not in ARMS]
    if unknown or not arms or rounds < 1 or updates_per_decision < 1:
        raise KoopaxError(
            f"{rounds} rounds of {updates_per_decision} updates with {list(arms)}: give one or more of each, of the "
            f"arms {', '.join(ARMS)}."
        )
    decisions = {}
    try:
        for arm in arms:
            dynamics, horizon = ARMS[arm]
            config = pixel_arm(dynamics, published=published, task=task, horizon=horizon, **(changes or {}))
            decisions[arm] = _Decisions(config, updates_per_decision)
        cases = {(arm, part): getattr(one, part) for arm, one in decisions.items() for part in PARTS}
        taken = interleave(cases, rounds=rounds, watch=watch)
        median = {case: float(np.median(seconds)) for case, seconds in taken.items()}
        rows = [_row(arm, one, {part: median[arm, part] for part in PARTS}) for arm, one in decisions.items()]
    finally:
        for one in decisions.values():
            one.players.close()
    settings = {"arms": tuple(arms), "task": task, "published": published, "rounds": rounds}
    settings |= {"updates_per_decision": updates_per_decision, **(changes or {})}
    return document("pixels", settings, {"results": rows, "ratios": _ratios(median)})


def _row(arm: str, one: "_Decisions", seconds: dict[str, float]) -> dict[str, Any]:
    config = one.config
    decisions = ENVIRONMENT_STEPS / one.players.renderers.action_repeat
    return {
        "arm": arm,
        "image_size": config.image_size,
        "encoder": config.encoder,
        "batch_size": config.batch_size,
        "updates_per_second": one.updates / seconds["learn"],
        "frames_per_second": 1 / seconds["draw"],
        "decision_ms": 1e3 * seconds["decision"],
        "parts_ms": {part: 1e3 * seconds[part] for part in PARTS[1:]},
        "minutes_per_100k_steps": decisions * seconds["decision"] / 60,
    }


def _ratios(median: dict[tuple[str, str], float]) -> dict[str, float]:
    """A decision with each arm over one of plain SAC, and with Koopman over the MLP at the same K."""
    whole = {arm: seconds for (arm, part), seconds in median.items() if part == "decision"}
    pairs = [(arm, "sac") for arm in whole if arm != "sac"]
    pairs += [(f"koopman K={k}", f"mlp K={k}") for k in (5, 20)]
    return {f"{a} / {b}": whole[a] / whole[b] for a, b in pairs if a in whole and b in whole}


class _Decisions:
    """A run that is past its random decisions and has compiled; each method does a part so many times."""

    def __init__(self, config: PixelSACConfig, updates: int):
        self.config, self.updates, self.number = config, updates, 0
        self.players = Players(config)
        self.replay = FrameReplay(
            1, 4 * FILLED, config.image_size, self.players.action_size, frame_stack=config.frame_stack
        )
        self.players.begin(self.replay)
        self.learner = make_learner(config, self.players.action_size)
        rng = np.random.default_rng(0)
        for _ in range(FILLED):
            self.players.send(rng.uniform(-1, 1, (1, self.players.action_size)).astype(np.float32))
            self.players.receive(self.replay)
        self.batch = self._batch()
        self.decision(1)

    def decision(self, repeats: int) -> None:
        """Act, and learn while the frame is drawn."""
        for _ in range(repeats):
            self.players.send(self._action())
            for _ in range(self.updates):
                self._learn(self._batch())
            self.players.receive(self.replay)
        jax.block_until_ready(self.learner)

    def act(self, repeats: int) -> None:
        """Choose actions."""
        for _ in range(repeats):
            self._action()

    def draw(self, repeats: int) -> None:
        """Step the environment and draw it."""
        for _ in range(repeats):
            self.players.send(np.zeros((1, self.players.action_size), np.float32))
            self.players.receive(self.replay)

    def sample(self, repeats: int) -> None:
        """Draw the batches of a decision from the replay."""
        for _ in range(repeats * self.updates):
            self.batch = self._batch()

    def learn(self, repeats: int) -> None:
        """The updates of a decision."""
        for _ in range(repeats * self.updates):
            self._learn(self.batch)
        jax.block_until_ready(self.learner)

    def _action(self) -> np.ndarray:
        self.number += 1
        observed, key = self.replay.observation(0)[None], Keys.of(0).acting
        learner, compiled = self.learner, self.config.compiled()
        return np.asarray(act(learner.model, learner.actor, observed, self.number, compiled, explore=True, key=key))

    def _batch(self) -> Any:
        config = self.config
        return self.replay.sample(
            1,
            config.batch_size,
            discount=config.discount,
            return_steps=config.return_steps,
            windows=config.prediction_batch if config.predicts else 0,
            horizon=config.horizon,
            stride=config.stride,
            rng=np.random.default_rng(self.number),
        )

    def _learn(self, batch: Any) -> None:
        self.learner, _ = learn(self.learner, batch, self.config.compiled(), key=Keys.of(0).learning)
