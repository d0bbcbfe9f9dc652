"""Ways to spoil a file: its bytes, the arrays in it, or the values of a JSON document."""

import json
from typing import Any

import numpy as np

STRANGE_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)
STRANGE_VALUES = (
    None,
    True,
    -1,
    0,
    3,
    10**9,
    10**30,
    0.5,
    -1e308,
    float("nan"),
    float("inf"),
    "",
    "koopman",
    "../../x",
    "evil:Nice-v0",
    "\x1b[31m\x07",
    "<script>",
    "two\nlines",
    "ä" * 300,
    [],
    [1, "a", None],
    {},
    {"a": {"b": []}},
)


def mutate_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """Some flips, cuts, insertions, copies and strange numbers."""
    spoilt = bytearray(content)
    for _ in range(int(rng.choice([1, 1, 1, 2, 3, 8]))):
        at = int(rng.integers(0, len(spoilt) + 1))
        kind = rng.integers(8)
        if kind == 0 and spoilt:
            spoilt[at % len(spoilt)] ^= 1 << int(rng.integers(8))
        elif kind == 1 and spoilt:
            spoilt[at % len(spoilt)] = int(rng.integers(256))
        elif kind == 2:
            del spoilt[at:]
        elif kind == 3:
            del spoilt[at : at + int(rng.integers(1, 40))]
        elif kind == 4:
            spoilt[at:at] = rng.bytes(int(rng.integers(1, 40)))
        elif kind == 5:
            size = int(rng.choice([1, 2, 4, 8]))
            number = int(rng.choice(np.array(STRANGE_NUMBERS, object))) & (2 ** (8 * size) - 1)
            spoilt[at : at + size] = number.to_bytes(size, rng.choice(["little", "big"]))
        elif kind == 6:
            spoilt[at:at] = b"[" * int(rng.choice([1, 10_000]))
        else:
            start, length = int(rng.integers(0, len(spoilt) + 1)), int(rng.integers(1, 200))
            spoilt[at : at + length] = spoilt[start : start + length]
    return bytes(spoilt)


def mutate_json(document: Any, rng: np.random.Generator) -> Any:
    """A document in which one value is another, missing or moved."""
    document = json.loads(json.dumps(document))
    node = document
    while isinstance(node, dict | list) and node:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        key = keys[int(rng.integers(len(keys)))]
        if isinstance(node[key], dict | list) and node[key] and rng.random() < 0.7:
            node = node[key]
            continue
        kind = rng.integers(4)
        if kind == 0:
            del node[key]
        elif kind == 1 and isinstance(node, dict):
            node[str(strange_value(rng))] = node.pop(key)
        else:
            node[key] = strange_value(rng)
        break
    return document


def strange_value(rng: np.random.Generator) -> Any:
    return STRANGE_VALUES[int(rng.integers(len(STRANGE_VALUES)))]


def mutate_arrays(arrays: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The arrays with one of them of another type, shape, name or content, or missing."""
    arrays = dict(arrays)
    name = list(arrays)[int(rng.integers(len(arrays)))]
    array, kind = arrays[name], rng.integers(8)
    if kind == 0:
        del arrays[name]
    elif kind == 1:
        arrays[str(rng.choice(["rewards", "lengths", "terminals", "x/y", ""]))] = arrays.pop(name)
    elif kind == 2 and array.dtype.kind in "biufc":
        types = [np.float64, np.int8, np.uint8, np.uint64, np.complex64, bool, "S3", "U3", "M8[s]", np.float16]
        with np.errstate(all="ignore"):
            arrays[name] = array.astype(types[int(rng.integers(len(types)))], casting="unsafe")
    elif kind == 3:
        arrays[name] = array[: int(rng.integers(0, max(1, len(array)) + 1))] if array.ndim else array[None]
    elif kind == 4:
        arrays[name] = array[..., None] if rng.random() < 0.5 else array.reshape(-1)
    elif kind == 5 and array.size and array.dtype.kind in "biuf":
        spoilt = array.astype(np.float64).reshape(-1)
        values = [np.nan, np.inf, -1, 0, 1e30, 2**62, -0.5]
        spoilt[int(rng.integers(spoilt.size))] = values[int(rng.integers(len(values)))]
        with np.errstate(all="ignore"):
            arrays[name] = spoilt.reshape(array.shape).astype(array.dtype)
    elif kind == 6:
        arrays[name] = np.array(rng.choice([0.0, np.nan, -1.0]))
    else:
        arrays[name] = np.concatenate([array, array]) if array.ndim else array
    return arrays
