"""Collecting episodes from an environment, in several processes, with the same outcome for any number of them."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from koopax._cluster import Cluster
from koopax._errors import KoopaxError
from koopax._progress import progress_bar
from koopax.collection.cluster import ClusterWorkers
from koopax.collection.policies import Policy
from koopax.collection.rollouts import EnvironmentInfo, Stage, group_size
from koopax.collection.workers import InProcess, Workers
from koopax.data.episode import Episode
from koopax.data.episodes import Episodes
from koopax.data.loading import resolve_destination, save

_STEPS_PER_WORKER = 1000
"""A process is not worth its start for fewer."""


def collect(
    environment: str,
    policy: str | Policy = "random",
    steps: int = 10_000,
    *,
    seed: int,
    workers: int | None = None,
    noise: float = 0.0,
    image_size: int | None = None,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    cluster: str | None = None,
    progress: bool = True,
) -> Episodes:
    """Roll a policy out until exactly `steps` steps are collected; the last episode is cut there.

    The result depends on environment, policy, steps, seed and noise, not on the number of workers. Ctrl-C ends the
    collection early: what was collected, the episodes under way included (as truncated), is kept and written, and
    `metadata.extra["interrupted"]` is set.

    Args:
        environment: a Gymnasium id (`HalfCheetah-v5`) or a dm_control task (`cheetah-run`).
        policy: `random`, a shipped policy, a policy's `.npz`, `module:function`, or a `Policy`.
        steps: number of steps.
        seed: of everything random.
        workers: processes; 0 runs in this one; by default one per core.
        noise: standard deviation of Gaussian noise on the actions, as a fraction of half their range.
        image_size: keep frames of so many pixels in height and width instead of states; the policy sees states.
        out: where to write the episodes, in any format that `save` knows.
        overwrite: replace what is there.
        cluster: address of a Ray cluster that collects in the place of processes of this machine.
        progress: show a bar on standard error.
    """
    if out is not None:
        resolve_destination(out, overwrite=overwrite)
    stage = Stage(policy, steps, noise, _policy_name(policy))
    episodes = collect_stages(
        environment,
        [stage],
        seed=seed,
        workers=workers,
        image_size=image_size,
        cluster=cluster,
        progress=progress,
    )
    if out is not None:
        save(episodes, out, overwrite=overwrite)
    return episodes


def collect_stages(
    environment: str,
    stages: Sequence[Stage],
    *,
    seed: int,
    workers: int | None = None,
    image_size: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Episodes:
    """Collect several stages one after the other, each with its own policy and source; see `collect`."""
    for stage in stages:
        if stage.steps < 1:
            raise KoopaxError(f"{stage.steps} steps are nothing to collect: give at least 1.")
        if not 0 <= stage.noise < float("inf"):
            raise KoopaxError(f"a noise of {stage.noise} is not a standard deviation: give 0 or more.")
    if seed < 0:
        raise KoopaxError(f"a seed of {seed} is negative: give 0 or more.")
    if image_size is not None and image_size < 1:
        raise KoopaxError(f"frames of {image_size} pixels hold nothing: give an image size of 1 or more, such as 64.")
    if workers is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = min(cores, -(-sum(stage.steps for stage in stages) // _STEPS_PER_WORKER))
    with Cluster(cluster) if cluster is not None else nullcontext() as connected, _interrupt_flag() as interrupted:
        pool: Workers | InProcess | ClusterWorkers
        if connected is not None:
            pool = ClusterWorkers(connected, environment, list(stages), seed, image_size)
        elif workers == 0:
            pool = InProcess(environment, list(stages), seed, interrupted.is_set, image_size)
        else:
            pool = Workers(workers, environment, list(stages), seed, image_size)
        try:
            plan, info = _run(pool, stages, interrupted, progress)
        finally:
            pool.close()
    return _assemble(environment, stages, plan, info, seed, interrupted.is_set())


class _Plan:
    """Which groups of a stage are given out and received, and whether they suffice."""

    def __init__(self, stage: Stage, limit: int) -> None:
        self.steps = stage.steps
        self.given = 0
        self.received: dict[int, list[Episode]] = {}
        self._total = 0
        self._first_missing = 0
        self._total_before = 0
        self._full_group = group_size(stage.steps, limit) * min(limit, stage.steps)

    def receive(self, group: int, rollouts: list[Episode]) -> None:
        self.received[group] = rollouts
        self._total += _count(rollouts)
        while self._first_missing in self.received:
            self._total_before += _count(self.received[self._first_missing])
            self._first_missing += 1

    @property
    def complete(self) -> bool:
        """Whether the groups up to the first one missing hold enough steps."""
        return self._total_before >= self.steps

    @property
    def expected(self) -> int:
        """Steps received, and what the groups under way will bring if they are like the others."""
        guess = self._total // len(self.received) if self.received else self._full_group
        return self._total + (self.given - len(self.received)) * max(1, guess)

    def rollouts(self) -> list[Episode]:
        """The episodes in order, cut to the number of steps."""
        kept, left = [], self.steps
        for group in sorted(self.received):
            for rollout in self.received[group]:
                piece = rollout.cut(left)
                if len(piece.rewards):
                    kept.append(piece)
                    left -= len(piece.rewards)
        return kept


def _count(rollouts: list[Episode]) -> int:
    return sum(len(rollout.rewards) for rollout in rollouts)


def _run(
    pool: Workers | InProcess | ClusterWorkers, stages: Sequence[Stage], interrupted: threading.Event, progress: bool
) -> tuple[list[_Plan], EnvironmentInfo]:
    plans: list[_Plan] = []
    info: EnvironmentInfo | None = None
    stopping = False
    done, total = 0, sum(stage.steps for stage in stages)
    with progress_bar("collecting", show=progress) as watch:
        while not plans or not all(plan.complete for plan in plans):
            if interrupted.is_set():
                if not stopping:
                    pool.stop()
                    stopping = True
                if not pool.busy:
                    break
            elif plans:
                _give_out(pool, plans)
            for kind, content in pool.messages(timeout=0.1):
                if kind == "ready":
                    info = content
                    plans = plans or [_Plan(stage, content.limit) for stage in stages]
                elif kind == "steps":
                    done += content
                    watch(min(done, total), total)
                else:
                    stage, group, rollouts = content
                    plans[stage].receive(group, rollouts)
    if info is None or not any(plan.received for plan in plans):
        raise KeyboardInterrupt("interrupted before the first step: nothing is kept")
    return plans, info


def _give_out(pool: Workers | InProcess | ClusterWorkers, plans: list[_Plan]) -> None:
    """A group for every idle worker, of the first stage that does not expect to have enough."""
    for number, plan in enumerate(plans):
        while pool.idle and not plan.complete and plan.expected < plan.steps:
            pool.submit(number, plan.given)
            plan.given += 1
            if isinstance(pool, InProcess):
                return


@contextmanager
def _interrupt_flag() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets; a second Ctrl-C raises as usual."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return
    previous = signal.getsignal(signal.SIGINT)

    def handler(*_: Any) -> None:
        flag.set()
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, handler)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, previous)


def _assemble(
    environment: str,
    stages: Sequence[Stage],
    plans: list[_Plan],
    info: EnvironmentInfo,
    seed: int,
    interrupted: bool,
) -> Episodes:
    rollouts = [
        (rollout, stage.source) for stage, plan in zip(stages, plans, strict=True) for rollout in plan.rollouts()
    ]
    if not rollouts:
        raise KeyboardInterrupt("interrupted before the first step: nothing is kept")
    extra: dict[str, Any] = {
        "seed": seed,
        "stages": [
            {"source": stage.source, "steps": stage.steps, "noise": stage.noise, "policy": _policy_name(stage.policy)}
            for stage in stages
        ],
        "versions": {package: v for package in ("gymnasium", "mujoco", "dm_control") if (v := _version(package))},
        **({"interrupted": True} if interrupted else {}),
    }
    if np.isfinite(info.low).all() and np.isfinite(info.high).all():
        extra |= {"action_low": info.low.tolist(), "action_high": info.high.tolist()}
    return Episodes.from_arrays(
        [rollout.observations for rollout, _ in rollouts],
        [rollout.actions for rollout, _ in rollouts],
        [rollout.rewards for rollout, _ in rollouts],
        terminated=[rollout.terminated for rollout, _ in rollouts],
        sources=[source for _, source in rollouts],
        environment=environment,
        state_names=info.names.state,
        action_names=info.names.action,
        units=info.names.units,
        step_seconds=info.step_seconds,
        extra=extra,
    )


def _policy_name(policy: str | Policy) -> str:
    return policy if isinstance(policy, str) else type(policy).__name__


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
