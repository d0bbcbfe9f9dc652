"""What is attacked: every loader, with a small file that it reads and the ways in which that is spoilt."""

import contextlib
import hashlib
import io
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mutations import mutate_arrays, mutate_bytes, mutate_json

import koopax
from koopax._checkpoint import Checkpoint, Checkpoints, read_checkpoint
from koopax.agents.recorded import read_agent
from koopax.collection.policies import GaussianPolicy, load_policy
from koopax.data import Episodes, load, save, summarise
from koopax.models.files import _SIZES, FORMAT, MAGIC
from koopax.training.metrics import read_json_lines
from koopax.training.tasks import read_task

Spoil = Callable[[Path, np.random.Generator], None]


@dataclass(frozen=True)
class Target:
    """One loader."""

    make: Callable[[Path], Path]
    """Write something that can be read into an empty folder, and return its path."""
    read: Callable[[Path], Any]
    """What is under attack."""
    spoil: tuple[Spoil, ...]
    """Ways to spoil what was made, one of which is taken each time."""


def episodes() -> Episodes:
    rng = np.random.default_rng(0)
    lengths = (3, 5, 4)
    return Episodes.from_arrays(
        [rng.normal(size=(n + 1, 2)) for n in lengths],
        [rng.normal(size=(n, 1)) for n in lengths],
        [rng.normal(size=n) for n in lengths],
        state_names=["x", "v"],
        sources=["a", "b", "a"],
        environment="Pendulum-v1",
        units={"x": "m"},
        step_seconds=0.05,
    )


def inspected(path: Path) -> Any:
    """What `koopax data inspect` does."""
    return summarise(load(path, check=False))


def any_file(path: Path, rng: np.random.Generator) -> None:
    """Spoil the bytes of one file, or remove it."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    file = files[int(rng.integers(len(files)))]
    if path.is_dir() and rng.random() < 0.03:
        file.unlink()
    else:
        file.write_bytes(mutate_bytes(file.read_bytes(), rng))


def npz(save_arrays: Callable[..., None]) -> tuple[Callable[[Path], Path], Spoil]:
    def make(folder: Path) -> Path:
        path = save(episodes(), folder / "plain.npz")
        save_arrays(folder / "a.npz", **dict(np.load(path)))
        return folder / "a.npz"

    def spoil(path: Path, rng: np.random.Generator) -> None:
        arrays = mutate_arrays(dict(np.load(path)), rng)
        if "metadata" in arrays and rng.random() < 0.3:
            with contextlib.suppress(ValueError):
                arrays["metadata"] = np.array(json.dumps(mutate_json(json.loads(str(arrays["metadata"])), rng)))
        save_arrays(path, **arrays)

    return make, spoil


def make_d4rl(folder: Path) -> Path:
    import h5py

    rng = np.random.default_rng(0)
    with h5py.File(folder / "a.hdf5", "w") as file:
        file["observations"], file["actions"] = rng.normal(size=(12, 2)), rng.normal(size=(12, 1))
        file["next_observations"], file["rewards"] = rng.normal(size=(12, 2)), rng.normal(size=12)
        file["terminals"], file["timeouts"] = np.zeros(12, bool), np.arange(12) % 4 == 3
    return folder / "a.hdf5"


def spoil_d4rl(path: Path, rng: np.random.Generator) -> None:
    import h5py

    with h5py.File(path) as file:
        arrays = mutate_arrays({name: file[name][()] for name in file}, rng)
    path.unlink()
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            with contextlib.suppress(TypeError, ValueError):
                file[name or "nameless"] = array if array.dtype.kind not in "UM" else array.astype("S")
        if rng.random() < 0.1 and "x" not in file:
            file["x"] = h5py.ExternalLink("/etc/hostname", "/")
        if rng.random() < 0.1:
            file["observations_group/y"] = 1


def spoil_folder(path: Path, rng: np.random.Generator) -> None:
    header = json.loads((path / "header.json").read_text())
    header.pop("digests")
    arrays = mutate_arrays({file.stem: np.load(file) for file in path.glob("*.npy")}, rng)
    for file in path.glob("*.npy"):
        file.unlink()
    for name, array in arrays.items():
        if name and "/" not in name:
            np.save(path / f"{name}.npy", array)
    (path / "header.json").write_text(json.dumps(mutate_json(header, rng) if rng.random() < 0.5 else header))


def spoil_minari(path: Path, rng: np.random.Generator) -> None:
    file = path / "data" / "metadata.json"
    file.write_text(json.dumps(mutate_json(json.loads(file.read_text()), rng)))


def spoil_parquet(path: Path, rng: np.random.Generator) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(path).read()
    columns = mutate_arrays({name: np.asarray(table.column(name)) for name in table.column_names}, rng)
    made, size = {}, max(len(array) if array.ndim else 0 for array in columns.values())
    for name, array in columns.items():
        with contextlib.suppress(pyarrow.ArrowException, TypeError, ValueError):
            values = array.tolist() if array.ndim != 1 or array.dtype.kind == "c" else array
            made[name] = pyarrow.array(values if array.ndim else [values] * size)
    made = {name: array for name, array in made.items() if len(array) == size}
    metadata = json.loads(table.schema.metadata[b"koopax"])
    stored = {b"koopax": json.dumps(mutate_json(metadata, rng) if rng.random() < 0.3 else metadata).encode()}
    pyarrow.parquet.write_table(pyarrow.table(made).replace_schema_metadata(stored), path)


def model() -> koopax.DynamicsModel:
    import jax

    options = {"encoder_hidden": (4,), "decoder_hidden": (4,), "latent_size": 4}
    return koopax.DynamicsModel.create("koopman", episodes(), key=jax.random.key(0), **options)


def make_model(folder: Path) -> Path:
    model().save(folder / "a.koopax")
    return folder / "a.koopax"


def spoil_model(path: Path, rng: np.random.Generator) -> None:
    """Another header, or other bytes, with the right digest."""
    content, fixed = path.read_bytes()[:-32], len(MAGIC) + _SIZES.size
    _, length = _SIZES.unpack_from(content, len(MAGIC))
    header = json.dumps(mutate_json(json.loads(content[fixed : fixed + length]), rng)).encode()
    if rng.random() < 0.1:
        header = mutate_bytes(header, rng)
    spoilt = MAGIC + _SIZES.pack(FORMAT, len(header)) + header + content[fixed + length :]
    if rng.random() < 0.2:
        spoilt = mutate_bytes(content, rng)
    path.write_bytes(spoilt + hashlib.sha256(spoilt).digest())


def make_run(folder: Path) -> Path:
    """A run as `koopax train` leaves it, without the training."""
    from dataclasses import asdict

    from koopax.training.config import TrainConfig
    from koopax.training.run import write_config

    run = folder / "run"
    run.mkdir()
    data = {"source": "a.npz", "source_options": {}, "model": "koopman", "model_options": {}, "split": 0.8}
    write_config(run, model(), TrainConfig(steps=5), {"data": {**data, "split_seed": 0}, "fingerprint": "f"})
    model().save(run / "model.koopax")
    document = json.loads((run / "config.json").read_text())
    document |= {"outcome": {"step": 5, "seconds": 1.0, "stopped": "finished"}, "train": asdict(TrainConfig(steps=5))}
    (run / "config.json").write_text(json.dumps(document))
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n')
    return run


def read_run(path: Path) -> Any:
    from koopax.reporting.runs import read_run as read_for_report

    run = koopax.Run.load(path)
    return run, read_task(path), read_for_report(path)


def make_agent(folder: Path) -> Path:
    run = folder / "agent"
    run.mkdir()
    document = {"format": 1, "kind": "sac", "task": "Pendulum-v1", "agent": {"env": "Pendulum-v1", "seed": 0}}
    (run / "config.json").write_text(json.dumps(document))
    (run / "metrics.jsonl").write_text('{"environment_steps": 1, "seconds": 1.0, "evaluation_return": 2.0}\n' * 3)
    return run


def read_agent_run(path: Path) -> Any:
    from koopax.agents import SACConfig
    from koopax.agents.run import read_config

    run = read_agent(path)
    return run.name, run.curve, read_config(path, SACConfig)


def spoil_config(path: Path, rng: np.random.Generator) -> None:
    file = path / "config.json"
    file.write_text(json.dumps(mutate_json(json.loads(file.read_text()), rng)))


def make_checkpoint(folder: Path) -> Path:
    Checkpoints(folder).save(Checkpoint({"lines": 3}, {"a/0": np.arange(6.0), "b": np.zeros((0, 2))}))
    return folder / "000001.npz"


def spoil_arrays(path: Path, rng: np.random.Generator) -> None:
    np.savez(path, **mutate_arrays(dict(np.load(path)), rng))


def make_policy(folder: Path) -> Path:
    shapes = [(2, 4), (4, 2)]
    policy = GaussianPolicy(
        weights=tuple(np.ones(shape, np.float32) for shape in shapes),
        biases=tuple(np.ones(shape[1], np.float32) for shape in shapes),
        observation_mean=np.zeros(2, np.float32),
        observation_deviation=np.ones(2, np.float32),
        low=-np.ones(1, np.float32),
        high=np.ones(1, np.float32),
    )
    policy.save(folder / "policy.npz")
    return folder / "policy.npz"


def read_policy(path: Path) -> Any:
    return load_policy(path).act(np.zeros((3, 2), np.float32), np.random.default_rng(0))


def make_frames(folder: Path) -> Path:
    from PIL import Image

    place = folder / "drive"
    (place / "a").mkdir(parents=True)
    for i in range(3):
        Image.fromarray(np.full((16, 16, 3), i, np.uint8)).save(place / "a" / f"{i}.png")
    (place / "actions.csv").write_text("episode,action_u,reward\na,1,0\na,2,1\na,,\n")
    return place


ARGUMENTS = (
    "train a.npz --steps 0 --out run --model koopman",
    "evaluate a.koopax a.npz --horizon 2 --json",
    "spectrum a.koopax --json",
    "data inspect a.npz --json",
    "data convert a.npz b.csv --overwrite",
    "data list --json",
    "report run --out report.html",
    "plan run --env Pendulum-v1 --episodes 1",
    "agent train sac --task Nowhere-v0 --out agent --steps 1",
)


def make_arguments(folder: Path) -> Path:
    save(episodes(), folder / "a.npz")
    make_model(folder)
    (folder / "arguments").write_text(json.dumps(ARGUMENTS))
    return folder / "arguments"


def spoil_arguments(path: Path, rng: np.random.Generator) -> None:
    """One of the command lines with words that are spoilt, missing, doubled or of another command."""
    lines = [line.split() for line in ARGUMENTS]
    words = list(lines[int(rng.integers(len(lines)))])
    everything = [word for line in lines for word in line]
    for _ in range(int(rng.integers(1, 4))):
        at, kind = int(rng.integers(len(words))), rng.integers(5)
        if kind == 0:
            del words[at]
        elif kind == 1:
            words.insert(at, everything[int(rng.integers(len(everything)))])
        elif kind == 2:
            words[at] = mutate_bytes(words[at].encode(), rng).decode(errors="ignore").replace("\0", "")
        else:
            words[at] = str(rng.choice(["-1", "0", "nan", "1e9", "", "--", "/proc/x", ".", "a.koopax", "[", "--help"]))
        words = words or ["--help"]
    path.write_text(json.dumps(words))


class Refused(Exception):
    """The command line ended with a sentence, or with the help of its parser."""


def run_arguments(path: Path) -> None:
    """The command line in this process; anything but an exit that it means is raised."""
    from koopax import cli

    words = json.loads(path.read_text())
    output, arguments = io.StringIO(), sys.argv
    with contextlib.chdir(path.parent), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        sys.argv = ["koopax", *words]
        try:
            cli.main()
        except SystemExit as exit:
            if exit.code not in (0, 2, None):
                raise AssertionError(f"exit code {exit.code} of {words}") from exit
            if exit.code == 2:
                raise koopax.KoopaxError("refused") from exit
        finally:
            sys.argv = arguments


def lazily(name: str) -> Callable[..., Any]:
    """A function of `resuming`, which imports agents: other loaders need not wait for that."""

    def call(*arguments: Any) -> Any:
        import resuming

        return getattr(resuming, name)(*arguments)

    return call


PLAIN, COMPRESSED = npz(np.savez), npz(np.savez_compressed)
TARGETS = {
    "npz": Target(PLAIN[0], inspected, (any_file, PLAIN[1])),
    "npz compressed": Target(COMPRESSED[0], inspected, (any_file, COMPRESSED[1])),
    "episodes folder": Target(lambda f: save(episodes(), f / "a.episodes"), inspected, (any_file, spoil_folder)),
    "D4RL HDF5": Target(make_d4rl, inspected, (any_file, spoil_d4rl)),
    "Minari folder": Target(lambda f: save(episodes(), f / "minari"), inspected, (any_file, spoil_minari)),
    "Parquet": Target(lambda f: save(episodes(), f / "a.parquet"), inspected, (any_file, spoil_parquet)),
    "CSV": Target(lambda f: save(episodes(), f / "a.csv"), inspected, (any_file,)),
    "frames": Target(make_frames, inspected, (any_file,)),
    "model file": Target(make_model, koopax.load_model, (any_file, spoil_model, spoil_model, spoil_model)),
    "run folder": Target(make_run, read_run, (any_file, spoil_config, spoil_config)),
    "agent folder": Target(make_agent, read_agent_run, (any_file, spoil_config, spoil_config)),
    "metrics": Target(make_agent, lambda p: read_json_lines(p / "metrics.jsonl"), (any_file,)),
    "checkpoint": Target(make_checkpoint, read_checkpoint, (any_file, spoil_arrays)),
    "training resumed": Target(
        lazily("make_training"), lazily("resume_training"), (lazily("spoil_content"), lazily("spoil_content"), any_file)
    ),
    "agent resumed": Target(
        lazily("make_tdmpc"), lazily("resume_tdmpc"), (lazily("spoil_content"), lazily("spoil_content"), any_file)
    ),
    "policy": Target(make_policy, read_policy, (any_file, spoil_arrays)),
    "command line": Target(make_arguments, run_arguments, (spoil_arguments,)),
}

# Those in which bytes of a file decide what happens, so that coverage can guide their choice.
GUIDED = ("npz", "npz compressed", "D4RL HDF5", "Parquet", "CSV", "model file", "agent folder", "metrics", "checkpoint")
GUIDED += ("policy",)


def copy(made: Path, to: Path) -> Path:
    """A fresh copy of what was made; of a command line, with the files that it is about."""
    shutil.rmtree(to, ignore_errors=True)
    if made.name == "arguments":
        shutil.copytree(made.parent, to)
    elif made.is_dir():
        shutil.copytree(made, to / made.name)
    else:
        to.mkdir()
        shutil.copyfile(made, to / made.name)
    return to / made.name
