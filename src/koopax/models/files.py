"""A model's file: a JSON header and the arrays, without any code.

    magic      14 bytes   b"koopax-model\\r\\n"
    version    uint32     of this format, little endian
    length     uint64     of the header
    header     UTF-8 JSON {"koopax": …, "config": {…}, "calibrated": steps, "arrays": [{"name", "shape", "dtype"}, …]}
    arrays     raw little-endian numbers, one after another
    digest     32 bytes   SHA-256 of everything before

Loading a stranger's file reads numbers and builds a known class, nothing more. The digest is why this is not one of
the common array formats: none of them notices a flipped byte in header and arrays alike.
"""

import dataclasses
import hashlib
import json
import math
import struct
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from koopax._atomic import new_file
from koopax._errors import KoopaxError
from koopax._untrusted import from_json, in_line, one_line
from koopax.data.normalisation import Normaliser
from koopax.models.config import ModelConfig
from koopax.models.dynamics import DynamicsModel
from koopax.models.intervals import Calibration

MAGIC = b"koopax-model\r\n"  # the line end shows a file that was mangled as text
FORMAT = 1
RUN_MODEL = "model.koopax"  # in a run folder
_SIZES = struct.Struct("<IQ")
_FEW, _SMALL = 100, 1_000
"""Layers, and widths of them, that any file may ask for, however small; a regression records some that it has not."""
_UNSEEN = ("reencode_every", "context")
"""What is not seen in the size of any array."""
_DIGEST = hashlib.sha256().digest_size


def save_model(model: DynamicsModel, path: str | Path) -> None:
    """Write a model; the file appears whole or not at all."""
    names, leaves = _named_arrays(model)
    arrays = [np.asarray(leaf) for leaf in leaves]
    header = json.dumps(
        {
            "koopax": version("koopax"),
            "config": dataclasses.asdict(model.config),
            "calibrated": None if model.calibration is None else model.calibration.horizon,
            "arrays": [
                {"name": name, "shape": array.shape, "dtype": array.dtype.name}
                for name, array in zip(names, arrays, strict=True)
            ],
        }
    ).encode()
    body = b"".join(
        [
            MAGIC,
            _SIZES.pack(FORMAT, len(header)),
            header,
            *(array.astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays),
        ]
    )
    with new_file(Path(path), overwrite=True) as temporary:
        temporary.write_bytes(body + hashlib.sha256(body).digest())


def load_model(path: str | Path) -> DynamicsModel:
    """Read a model written by `DynamicsModel.save`; of a run folder, the model that its training ended with."""
    path = Path(path)
    if path.is_dir():
        path = path / RUN_MODEL
        if not path.is_file():
            raise KoopaxError(
                f"the folder {str(path.parent)!r} holds no {RUN_MODEL}: pass a model file or a run folder."
            )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise KoopaxError(f"can't read the model file {str(path)!r}: {error.strerror}.") from error
    header, body = _open(path, data)
    try:
        listed = [_listed(item) for item in header["arrays"]]
        if len(body) != sum(math.prod(shape) * dtype.itemsize for _, shape, dtype in listed):
            raise ValueError("its arrays have another size than it says")
        _check_scale(header["config"], len(listed), sum(math.prod(shape) for _, shape, _ in listed))
        config = config_from_json(header["config"])
        # Every model has the same structure for the same config, so shapes come from building it without computing.
        skeleton = eqx.filter_eval_shape(
            lambda key: DynamicsModel(config, Normaliser.identity(config.state_size, config.action_size), key=key),
            jax.random.key(0),
        )
        if header.get("calibrated") is not None:  # earlier files don't say
            skeleton = skeleton.with_calibration(_calibration(header["calibrated"], config.state_size + 1))
    except Exception as error:  # a config may ask the parts of a model for anything
        raise _foreign(path, header, f"its header can't be understood ({one_line(error)})") from error
    names, leaves = _named_arrays(skeleton)
    expected = [(name, leaf.shape) for name, leaf in zip(names, leaves, strict=True)]
    if expected != [(name, shape) for name, shape, _ in listed]:
        raise _foreign(path, header, "its arrays are not those of this version's model")

    arrays, offset = [], 0
    for _, shape, dtype in listed:
        count = math.prod(shape)
        values = np.frombuffer(body, dtype.newbyteorder("<"), count, offset).astype(dtype)
        arrays.append(jnp.asarray(values.reshape(shape)))
        offset += count * dtype.itemsize
    structure = jax.tree.structure(skeleton)
    return jax.tree.unflatten(structure, arrays)


def _open(path: Path, data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the bytes of the arrays, once the file is known to be whole."""
    fixed = len(MAGIC) + _SIZES.size
    if not data.startswith(MAGIC) or len(data) < fixed + _DIGEST:
        raise KoopaxError(f"{str(path)!r} is not a koopax model file: pass one that DynamicsModel.save wrote.")
    number, length = _SIZES.unpack_from(data, len(MAGIC))
    whole = hashlib.sha256(data[:-_DIGEST]).digest() == data[-_DIGEST:]
    damaged = KoopaxError(f"the model file {str(path)!r} is damaged: copy it again or restore it from a backup.")
    if not whole and number <= FORMAT:  # a later format may end otherwise
        raise damaged
    if number > FORMAT:
        raise KoopaxError(
            f"the model file {str(path)!r} has format {number}, but this koopax reads up to {FORMAT}: update koopax."
        )
    try:
        header = json.loads(data[fixed : fixed + length])
    except (ValueError, RecursionError) as error:
        raise damaged from error
    if not isinstance(header, dict):
        raise damaged
    return header, data[fixed + length : -_DIGEST]


def _calibration(horizon: Any, columns: int) -> Any:
    """The shapes of intervals over so many steps."""
    if not isinstance(horizon, int) or horizon < 1:
        raise ValueError(f"it is calibrated over {horizon!r} steps")
    return eqx.filter_eval_shape(lambda: Calibration.unit(horizon, columns))


def _listed(item: dict[str, Any]) -> tuple[str, tuple[int, ...], np.dtype]:
    """Name, shape and type of an array in a header."""
    shape, dtype = tuple(item["shape"]), np.dtype(item["dtype"])
    if dtype.kind not in "biuf" or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"an array has the shape {shape} and the type {dtype}")
    return item["name"], shape, dtype


def _check_scale(config: Any, arrays: int, numbers: int, name: str = "config") -> None:
    """Raise unless a model of so many arrays and numbers can be what a config asks for; building it takes time."""
    if isinstance(config, dict):
        for key, value in config.items():
            _check_scale(value, arrays, numbers, key)
    elif isinstance(config, list):
        if len(config) > max(_FEW, arrays):
            raise ValueError(f"{name} has {len(config)} entries in a file of {arrays} arrays")
        for value in config:
            _check_scale(value, arrays, numbers, name)
    elif isinstance(config, int) and name not in _UNSEEN:
        most = max(_FEW, arrays) if "layers" in name else max(_SMALL, numbers)
        if config > most:
            raise ValueError(f"{name} is {config} in a file of {arrays} arrays with {numbers} numbers")


def config_from_json(fields: dict[str, Any]) -> ModelConfig:
    """A model's configuration as it was recorded."""
    return from_json(ModelConfig, fields)


def _named_arrays(model: DynamicsModel) -> tuple[list[str], list[Any]]:
    paths_and_leaves = jax.tree_util.tree_leaves_with_path(model)
    return [jax.tree_util.keystr(path) for path, _ in paths_and_leaves], [leaf for _, leaf in paths_and_leaves]


def _foreign(path: Path, header: dict[str, Any], problem: str) -> KoopaxError:
    writer, reader = in_line(header.get("koopax", "of an unknown version")), version("koopax")
    return KoopaxError(
        f"the model file {str(path)!r} was written by koopax {writer} and {problem}: "
        f"load it with that version (this is {reader})."
    )
