"""A model's file: a JSON header and the arrays, without any code.

    magic      14 bytes   b"koopax-model\\r\\n"
    version    uint32     of this format, little endian
    length     uint64     of the header
    header     UTF-8 JSON {"koopax": …, "config": {…}, "arrays": [{"name", "shape", "dtype"}, …]}
    arrays     raw little-endian numbers, one after another
    digest     32 bytes   SHA-256 of everything before

Loading a stranger's file reads numbers and builds a known class, nothing more. The digest is why this is not one of
the common array formats: none of them notices a flipped byte in header and arrays alike.
"""

import dataclasses
import hashlib
import json
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
from koopax.data.normalisation import Normaliser
from koopax.models.config import ModelConfig
from koopax.models.dynamics import DynamicsModel

MAGIC = b"koopax-model\r\n"  # the line end shows a file that was mangled as text
FORMAT = 1
RUN_MODEL = "model.koopax"  # in a run folder
_SIZES = struct.Struct("<IQ")
_DIGEST = hashlib.sha256().digest_size


def save_model(model: DynamicsModel, path: str | Path) -> None:
    """Write a model; the file appears whole or not at all."""
    names, leaves = _named_arrays(model)
    arrays = [np.asarray(leaf) for leaf in leaves]
    header = json.dumps(
        {
            "koopax": version("koopax"),
            "config": dataclasses.asdict(model.config),
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
        config = config_from_json(header["config"])
        listed = [(item["name"], tuple(item["shape"]), np.dtype(item["dtype"])) for item in header["arrays"]]
        # Every model has the same structure for the same config, so shapes come from building it without computing.
        skeleton = eqx.filter_eval_shape(
            lambda key: DynamicsModel(config, Normaliser.identity(config.state_size, config.action_size), key=key),
            jax.random.key(0),
        )
    except (KeyError, TypeError, ValueError, KoopaxError) as error:
        raise _foreign(path, header, f"its header can't be understood ({error})") from error
    names, leaves = _named_arrays(skeleton)
    expected = [(name, leaf.shape) for name, leaf in zip(names, leaves, strict=True)]
    if expected != [(name, shape) for name, shape, _ in listed]:
        raise _foreign(path, header, "its arrays are not those of this version's model")
    if len(body) != sum(int(np.prod(shape)) * dtype.itemsize for _, shape, dtype in listed):
        raise _foreign(path, header, "its arrays have another size than its header says")

    arrays, offset = [], 0
    for _, shape, dtype in listed:
        count = int(np.prod(shape))
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
    except ValueError as error:
        raise damaged from error
    if not isinstance(header, dict):
        raise damaged
    return header, data[fixed + length : -_DIGEST]


def config_from_json(fields: dict[str, Any]) -> ModelConfig:
    """A model's configuration as it was recorded."""
    return ModelConfig(**{name: _tuples(value) for name, value in fields.items()})


def _tuples(value: Any) -> Any:
    """JSON has lists where configurations have tuples."""
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return value


def _named_arrays(model: DynamicsModel) -> tuple[list[str], list[Any]]:
    paths_and_leaves = jax.tree_util.tree_leaves_with_path(model)
    return [jax.tree_util.keystr(path) for path, _ in paths_and_leaves], [leaf for _, leaf in paths_and_leaves]


def _foreign(path: Path, header: dict[str, Any], problem: str) -> KoopaxError:
    writer, reader = header.get("koopax", "an unknown version"), version("koopax")
    return KoopaxError(
        f"the model file {str(path)!r} was written by koopax {writer} and {problem}: "
        f"load it with that version (this is {reader})."
    )
