"""Jobs on a Ray cluster: each has a folder, which travels with it.

A job is a function of a folder on the machine that runs it. What an earlier attempt has left there is put into it
first, and what is in it afterwards comes back to the driver, so no disk is shared. While the job runs, the folder is
sent to a keeper on the driver's machine whenever it holds a new checkpoint: if the machine is lost, Ray starts the job
on another one, where it goes on from there.
"""

import contextlib
import importlib.metadata
import importlib.util
import io
import os
import shutil
import socket
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from koopax._errors import KoopaxError
from koopax._untrusted import one_line

RETRIES = 5
"""How often a job is begun again after its machine or process was lost."""
CONNECT_SECONDS = 10
_SHIP_SECONDS = 1.0
_PACKAGE = "koopax"

Work = Callable[[Path], Any]


def _show_token() -> None:
    """Have Ray show its token, if there is one: a cluster that was started beside one asks for it, others don't mind.

    `ray start` looks for a token by itself, but whoever connects has to be told to, before Ray is imported.
    """
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if os.environ.get("RAY_AUTH_TOKEN") or path.is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


class StoppedError(Exception):
    """Ctrl-C while jobs ran: what is finished has come back, and so have the last checkpoints of the others."""


def has_ray() -> bool:
    """Whether the extra `cluster` is installed."""
    return importlib.util.find_spec("ray") is not None


class Cluster:
    """A connection to a Ray cluster, on every machine of which koopax is installed."""

    def __init__(self, address: str | None):
        """Connect to `address`: HOST:PORT, ray://HOST:PORT or auto; None starts Ray on this machine alone."""
        if not has_ray():
            raise KoopaxError("--cluster needs Ray, which is not installed: pip install 'koopax[cluster]'.")
        self.address = address or "this machine"
        if address is not None:
            _reach(address)
            _show_token()
        import ray

        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
        if address is None:
            settings["include_dashboard"] = False
        try:
            ray.init(address=address or "local", namespace=_PACKAGE, **settings)
        except Exception as error:
            raise KoopaxError(
                f"no Ray cluster answers at {self.address} ({one_line(error)}): start one by `ray start --head`, or "
                "give another address."
            ) from error
        self._ray = ray
        try:
            self._check()
            here = ray.get_runtime_context().get_node_id()
            self.keeper = ray.remote(Keeper).options(num_cpus=0, scheduling_strategy=_on(here)).remote()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the cluster."""
        self._ray.shutdown()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def cpus(self) -> int:
        """Processors of all machines."""
        return int(self._ray.cluster_resources().get("CPU", 1))

    def _check(self) -> None:
        """Raise unless every machine has this version of koopax."""
        ray = self._ray
        asking = ray.remote(importlib.metadata.version)  # which a machine without koopax has as well
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        asked = [asking.options(num_cpus=0, scheduling_strategy=_on(node["NodeID"])).remote(_PACKAGE) for node in nodes]
        mine = importlib.metadata.version(_PACKAGE)
        for node, answer in zip(nodes, asked, strict=True):
            try:
                found = ray.get(answer)
            except importlib.metadata.PackageNotFoundError:  # raised there, and so here
                found = None
            if found != mine:
                has = "no koopax" if found is None else f"koopax {found}"
                raise KoopaxError(
                    f"the machine {node['NodeManagerHostname']} of the cluster at {self.address} has {has}, and this "
                    f"one koopax {mine}: install the same on all, by pip install 'koopax[cluster]'."
                )

    def share(self, value: Any) -> Any:
        """Something large that many jobs use, sent to each machine once; a job has it by `fetch`."""
        return self._ray.put(value)

    def run(self, jobs: Mapping[str, Work], folders: Mapping[str, Path]) -> Iterator[tuple[str, Any]]:
        """Run all jobs; yields each name and what its function has returned, as they end.

        Args:
            jobs: functions of a folder, by name; they must be picklable (by cloudpickle).
            folders: where each job's folder is on this machine: what is in it goes with the job, and what the job has
                made is put there.
        """
        ray = self._ray
        remote = ray.remote(_work).options(max_retries=RETRIES, num_cpus=1)
        running = {remote.remote(name, work, self.keeper, pack(folders[name])): name for name, work in jobs.items()}
        try:
            while running:
                ended, _ = ray.wait(list(running), timeout=1.0)
                for reference in ended:
                    name = running.pop(reference)
                    result, content = _outcome(ray, reference, name)
                    unpack(content, folders[name])
                    ray.get(self.keeper.drop.remote(name))
                    yield name, result
        except KeyboardInterrupt:
            for reference in running:
                ray.cancel(reference, force=True)
            for name in running.values():
                unpack(ray.get(self.keeper.get.remote(name)), folders[name])
            raise StoppedError from None


def fetch(shared: Any) -> Any:
    """What `Cluster.share` was given, inside a job."""
    import ray

    return ray.get(shared)


def _outcome(ray: Any, reference: Any, name: str) -> tuple[Any, bytes]:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, KoopaxError):
            raise cause from None
        raise KoopaxError(f"{name!r} failed on the cluster ({type(cause).__name__}: {one_line(cause)}).") from error
    except ray.exceptions.RayError as error:
        raise KoopaxError(f"{name!r} was lost {RETRIES + 1} times on the cluster ({one_line(error)}).") from error


def _on(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def _reach(address: str) -> None:
    """Raise at once where nobody listens: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    if not host or not port.isdigit():
        raise KoopaxError(f"the cluster's address is {address!r}: give HOST:PORT, ray://HOST:PORT or auto.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise KoopaxError(
            f"no Ray cluster answers at {address} ({one_line(error)}): start one by `ray start --head`, or give "
            "another address."
        ) from error


class Keeper:
    """The newest checkpoint of every job that runs, on the driver's machine."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def put(self, name: str, content: bytes) -> None:
        """Keep a folder in the place of an earlier one."""
        self._kept[name] = content

    def get(self, name: str) -> bytes | None:
        """The folder that was kept last."""
        return self._kept.get(name)

    def drop(self, name: str) -> None:
        """Forget a job that is done."""
        self._kept.pop(name, None)


def _work(name: str, work: Work, keeper: Any, begun: bytes | None) -> tuple[Any, bytes]:
    """Run a job on this machine, from where it got to on another."""
    with working_folder(name, keeper, begun) as folder:
        return work(folder), pack(folder) or b""


@contextlib.contextmanager
def working_folder(name: str, keeper: Any, begun: bytes | None) -> Iterator[Path]:
    """A folder on this machine with what was kept of a job, whose checkpoints are sent to the keeper."""
    import ray

    folder = Path(tempfile.mkdtemp(prefix="koopax-job-"))
    try:
        unpack(ray.get(keeper.get.remote(name)) or begun, folder)
        over = threading.Event()
        shipping = threading.Thread(target=_ship, args=(folder, name, keeper, over), daemon=True)
        shipping.start()
        try:
            yield folder
        finally:
            over.set()
            shipping.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ship(folder: Path, name: str, keeper: Any, over: threading.Event) -> None:
    """Send the folder to the keeper whenever there is a new checkpoint in it."""
    import ray

    seen = _checkpoints(folder)
    while not over.wait(_SHIP_SECONDS):
        if (now := _checkpoints(folder)) == seen:
            continue
        try:
            content = pack(folder)
        except OSError:  # a file has gone while it was read: the next checkpoint is there already
            continue
        ray.get(keeper.put.remote(name, content))
        seen = now


def _checkpoints(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("checkpoints/*.npz")}


def pack(folder: Path) -> bytes | None:
    """The files of a folder in one piece; None where there is no folder."""
    if not folder.is_dir():
        return None
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                archive.add(path, str(path.relative_to(folder)))
    return out.getvalue()


def unpack(content: bytes | None, folder: Path) -> None:
    """Put packed files into a folder."""
    if content:
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(folder, filter="data")
