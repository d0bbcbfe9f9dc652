"""From a training run to the shipped policies: an expert, a medium policy and a ladder, each measured.

Nothing is chosen by hand: the curve of the run proposes snapshots, whole episodes decide, and every file
carries where it came from.
"""

import dataclasses
import datetime
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from koopax._errors import KoopaxError
from koopax._provenance import commit, machine, versions
from koopax.agents.recorded import Evaluation, RecordedRun, read_agent
from koopax.agents.sac.config import SACConfig
from koopax.agents.sac.train import SNAPSHOTS
from koopax.collection.policies import WEIGHTS, GaussianPolicy, load_policy
from koopax.envs import episode_returns, refuse_module

MEDIUM_RANGE = (1 / 3, 1 / 2)
"""A medium policy's return as a fraction of the expert's."""


class Measured(NamedTuple):
    """A snapshot and the returns of whole episodes with it, actions sampled as they are for datasets."""

    steps: int
    policy: GaussianPolicy
    returns: np.ndarray

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))


def export_experts(
    run: Path,
    name: str,
    *,
    weights: Path = WEIGHTS,
    results: Path = Path("results/experts"),
    episodes: int = 20,
    rungs: int = 10,
    seed: int = 10_000,
    watch: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """Write `weights/NAME-{expert,medium,ladder-1…rungs}.npz` and `results/NAME.json`, and return the latter.

    The run's curve (a few deterministic episodes per point) says where to look; each candidate is then measured
    on `episodes` whole episodes with sampled actions, as datasets are collected. The expert has the highest mean
    return among the best points of the curve; the medium policy lies between a third and a half of it; the ladder
    goes up to the expert in steps of return that are as even as the snapshots allow. For the expert and the
    medium policy the returns with mean actions are recorded too. `watch` is told of each measurement.
    """
    run = Path(run)
    recorded = read_agent(run)
    if recorded.kind != "sac":
        raise KoopaxError(f"{str(run)!r} is a run of {recorded.kind}: give the folder of a SAC run.")
    config = recorded.settings
    refuse_module(str(config["env"]), f"the run {str(run)!r}")
    curve = _with_snapshots(recorded)
    measure = _Measurer(run, config["env"], episodes, seed, watch)

    best = sorted(curve, key=lambda point: point.value)[-4:]
    expert = max((measure(point.steps) for point in best), key=lambda measured: measured.mean)
    start = measure(measure.snapshots[0])
    points = [(start.steps, start.mean)]
    points += [(point.steps, point.value) for point in curve if point.steps < expert.steps]
    points.append((expert.steps, expert.mean))
    middle = sum(MEDIUM_RANGE) / 2 * expert.mean
    targets = [float(target) for target in np.linspace(start.mean, expert.mean, rungs)[1:-1]]
    for target in (middle, *targets):
        _search(target, points, measure)
    medium = min(measure.known.values(), key=lambda measured: abs(measured.mean - middle))
    ladder = _assign(targets, start, expert, list(measure.known.values()))

    chosen = {"expert": expert, "medium": medium} | {f"ladder-{i}": rung for i, rung in enumerate(ladder, 1)}
    shared = {"config": config, "command": _command(config), "versions": versions()}
    summaries = {
        label: {"steps": measured.steps, **measure.summary(measured, deterministic=not label.startswith("ladder"))}
        for label, measured in chosen.items()
    }
    for stale in weights.glob(f"{name}-ladder-*.npz"):
        stale.unlink()
    for label, measured in chosen.items():
        provenance = measured.policy.provenance | shared | summaries[label]
        dataclasses.replace(measured.policy, provenance=provenance).save(weights / f"{name}-{label}.npz")
    record = {
        "name": name,
        **shared,
        "seed": config["seed"],
        "episodes": episodes,
        "machine": machine(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "policies": summaries,
        "curve": recorded.metrics,
    }
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    return record


class _Measurer:
    """Measures snapshots of one run, each once."""

    def __init__(self, run: Path, env: str, episodes: int, seed: int, watch: Callable[[str], None]):
        self.run, self.env, self.episodes, self.seed, self.watch = run, env, episodes, seed, watch
        self.snapshots = sorted(int(path.stem.removeprefix("step-")) for path in (run / SNAPSHOTS).glob("step-*.npz"))
        self.known: dict[int, Measured] = {}

    def __call__(self, steps: int) -> Measured:
        if steps not in self.known:
            policy = load_policy(_snapshot(self.run, steps))
            returns = episode_returns(self.env, policy, self.episodes, seed=self.seed)
            self.known[steps] = Measured(steps, policy, returns)
            self.watch(f"{self.env} at {steps} steps: {returns.mean():.0f} ± {returns.std():.0f}")
        return self.known[steps]

    def summary(self, measured: Measured, *, deterministic: bool) -> dict[str, float]:
        """Mean and deviation of the returns, with mean actions as well if asked for."""
        summary = _mean_and_deviation("", measured.returns)
        if deterministic:
            policy = measured.policy.with_deterministic(True)
            returns = episode_returns(self.env, policy, self.episodes, seed=self.seed)
            summary |= _mean_and_deviation("deterministic_", returns)
        return summary


def _search(target: float, points: Sequence[tuple[int, float]], measure: _Measurer) -> None:
    """Measure snapshots with returns around the target: bisect where the (steps, return) points first pass it."""
    passing = next(i for i in range(1, len(points)) if points[i][1] >= target or i == len(points) - 1)
    first, last = points[passing - 1][0], points[passing][0]
    between = [steps for steps in measure.snapshots if first <= steps <= last]
    low, high = 0, len(between) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if measure(between[middle]).mean < target:
            low = middle
        else:
            high = middle
    for index in (low, high):
        measure(between[index])


def _assign(targets: Sequence[float], start: Measured, expert: Measured, pool: Sequence[Measured]) -> list[Measured]:
    """From the start to the expert, with the nearest snapshot of the pool for every target, each used once."""
    chosen = {start.steps: start, expert.steps: expert}
    for target in targets:
        left = [rung for rung in pool if rung.steps not in chosen and rung.mean < expert.mean]
        if left:
            nearest = min(left, key=lambda rung: abs(rung.mean - target))
            chosen[nearest.steps] = nearest
    return sorted(chosen.values(), key=lambda rung: rung.mean)


def _with_snapshots(run: RecordedRun) -> list[Evaluation]:
    curve = [point for point in run.curve if _snapshot(run.folder, point.steps).exists()]
    if len(curve) < 2:
        raise KoopaxError(f"{str(run.folder)!r} has {len(curve)} evaluated snapshots; train longer before exporting.")
    return curve


def _snapshot(run: Path, steps: int) -> Path:
    return run / SNAPSHOTS / f"step-{steps:09d}.npz"


def _mean_and_deviation(prefix: str, returns: np.ndarray) -> dict[str, float]:
    return {
        f"{prefix}return_mean": round(float(np.mean(returns)), 1),
        f"{prefix}return_deviation": round(float(np.std(returns)), 1),
    }


def _command(config: dict[str, Any]) -> str:
    """A command that trains the run again, with the environment, the seed and every setting that is not a default."""
    defaults = dataclasses.asdict(SACConfig())
    config = config | {"hidden_sizes": tuple(config["hidden_sizes"])}
    told = {name for name, value in config.items() if name in ("env", "seed") or value != defaults.get(name)}
    settings = ", ".join(f"{name}={value!r}" for name, value in config.items() if name in told)
    return f"python -c \"from koopax.agents import SACConfig, train_sac; train_sac(SACConfig({settings}), 'run')\""
