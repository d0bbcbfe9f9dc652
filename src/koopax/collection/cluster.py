"""Groups of episodes as tasks of a Ray cluster: the same episodes as on one machine, by the seed alone."""

import pickle
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from koopax._cluster import RETRIES, Cluster
from koopax._errors import KoopaxError
from koopax._untrusted import one_line
from koopax.collection.rollouts import Collector, EnvironmentInfo, Stage
from koopax.data.episode import Episode


class ClusterWorkers:
    """The interface of `koopax.collection.workers.Workers`; a group whose machine is lost is run again on another."""

    def __init__(self, cluster: Cluster, environment: str, stages: list[Stage], seed: int, image_size: int | None):
        import ray

        try:
            self._setup = pickle.dumps((environment, stages, seed, image_size))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise KoopaxError(f"the policy cannot go to a cluster ({error}): give it as module:function.") from error
        self._ray: Any = ray
        self._run = ray.remote(_run_group).options(max_retries=RETRIES, num_cpus=1)
        self.idle: list[int] = []
        self._slots = list(range(max(1, cluster.cpus)))
        self._stopping = False
        self._running: dict[Any, tuple[int, int]] = {
            ray.remote(_about).options(max_retries=RETRIES, num_cpus=1).remote(self._setup): (-1, -1)
        }

    def submit(self, stage: int, group: int) -> None:
        """Give a group to the cluster."""
        self.idle.pop()
        self._running[self._run.remote(self._setup, stage, group)] = (stage, group)

    def messages(self, timeout: float) -> Iterator[tuple[str, Any]]:
        """What has come back; waits for the first at most `timeout` seconds."""
        if not self._running:
            return
        ended, _ = self._ray.wait(list(self._running), timeout=timeout)
        for reference in ended:
            stage, group = self._running.pop(reference)
            try:
                content = self._ray.get(reference)
            except (self._ray.exceptions.RayError, KoopaxError) as error:
                if self._stopping:
                    continue
                cause = getattr(error, "cause", None)
                raise (
                    cause
                    if isinstance(cause, KoopaxError)
                    else KoopaxError(f"collection failed on the cluster ({one_line(cause or error)}).")
                ) from error
            if stage < 0:
                self.idle.extend(self._slots)
                yield "ready", content
            else:
                self.idle.append(0)
                yield "steps", sum(len(rollout.rewards) for rollout in content)
                yield "episodes", (stage, group, content)

    def stop(self) -> None:
        """Give up the groups that are under way; what has come back is kept."""
        self._stopping = True
        for reference in self._running:
            self._ray.cancel(reference, force=True)

    @property
    def busy(self) -> bool:
        """Whether a group is still under way."""
        return bool(self._running)

    def close(self) -> None:
        """Give up what is left."""
        self.stop()


@lru_cache(maxsize=2)
def _collector(setup: bytes) -> Collector:
    return Collector(*pickle.loads(setup))


def _about(setup: bytes) -> EnvironmentInfo:
    return _collector(setup).info


def _run_group(setup: bytes, stage: int, group: int) -> list[Episode]:
    return _collector(setup).run(stage, group, lambda: False, lambda steps: None)
