"""Files from anywhere: whatever is in them, reading them ends in a value or in one sentence, and runs nothing."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from koopax._errors import KoopaxError

T = TypeVar("T")
MOST_JSON = 64 << 20
"""Bytes of a JSON document; ours have kilobytes."""
_LONGEST_REASON = 200
# What is smaller than this may be as dense as it likes; data are never a hundredth of their size when compressed.
_SMALL = 256 << 20
# Versions 2 and 1 of Linux's control groups, as a container sees its own.
_GROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_DENSEST = 100


@contextmanager
def reading(path: Any, what: str, remedy: str) -> Iterator[None]:
    """Whatever is raised in the block becomes a `KoopaxError`: "'PATH' is not WHAT (…): REMEDY."

    The libraries that take files apart raise almost anything at bytes that are not what they expect.
    """
    try:
        yield
    except KoopaxError:
        raise
    except Exception as error:
        raise KoopaxError(f"{str(path)!r} is not {what} ({one_line(error)}): {remedy}.") from error


def one_line(error: BaseException) -> str:
    """What an error of a library says, on one line of bearable length, without control codes."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return in_line(f"no {text}" if isinstance(error, KeyError) else text) or type(error).__name__


def in_line(value: Any) -> str:
    """What a file says, on one line of bearable length, without control codes."""
    text = " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


def read_json(path: Path) -> Any:
    """A JSON document of moderate size; raises OSError or ValueError."""
    size = path.stat().st_size
    if size > MOST_JSON:
        raise ValueError(f"{size >> 20} MB are too many for a JSON document of koopax")
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def from_json(kind: type[T], document: Any) -> T:
    """A dataclass of the fields in a JSON document, in which tuples have become lists; raises TypeError or ValueError.

    Every value must be of the type that its field is annotated with.
    """
    if not isinstance(document, Mapping):
        raise TypeError(f"a {type(document).__name__} stands where settings belong")
    wanted = get_type_hints(kind)
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    values = {}
    for name, value in document.items():
        if name not in known:
            raise TypeError(f"{name!r} is no setting of this version")
        values[name] = _tuples(value)
        if get_origin(wanted[name]) is list and isinstance(value, list):
            values[name] = list(values[name])
        if not _fits(values[name], wanted[name]):
            raise TypeError(f"{name} is {value!r}")
    return kind(**values)


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    return {key: _tuples(item) for key, item in value.items()} if isinstance(value, dict) else value


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value from JSON is of an annotated type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = arguments[:1] * len(value) if arguments[-1:] == (Ellipsis,) else arguments
        return len(kinds) == len(value) and all(map(_fits, value, kinds))
    if origin is list:
        return isinstance(value, list) and all(_fits(item, arguments[0]) for item in value)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(_fits(item, arguments[1]) for item in value.values())
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(value, origin or kind)


def check_expansion(stored: int, expanded: int) -> None:
    """Raise unless so many bytes of a file may become so many bytes of memory."""
    if expanded > memory() / 2:
        raise ValueError(f"it takes {expanded / 1e9:.1f} GB, more than half of this machine's memory")
    if expanded > max(_SMALL, _DENSEST * stored):
        raise ValueError(f"{stored / 1e6:.1f} MB would expand to {expanded / 1e6:.0f} MB; store it uncompressed")


def memory() -> int:
    """Bytes of memory that this process may use: the machine's, or less where a container or a limit says so."""
    try:
        most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        most = sys.maxsize
    return min(most, *_limits(), sys.maxsize)


def _limits() -> Iterator[int]:
    """What control groups and `ulimit` allow."""
    for path in _GROUP_LIMITS:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            yield int(text)
    try:
        import resource
    except ImportError:
        return
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        if (limit := resource.getrlimit(kind)[0]) != resource.RLIM_INFINITY:
            yield limit
