"""CSV and Parquet tables with a row per observation and a column that tells episodes apart.

The last row of an episode is the state in which it ends, so its action, reward and duration are not used and usually
left empty. Rows of an episode stay in file order and need not be next to each other.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from koopax._errors import KoopaxError, unknown_name
from koopax._untrusted import check_expansion, one_line, reading
from koopax.data.episodes import Episodes
from koopax.data.images import frame_text
from koopax.data.metadata import Metadata
from koopax.data.statistics import iterate_chunks

_EPISODE_NAMES = ("episode", "episode_id", "trajectory", "trajectory_id")
_STATE_PREFIXES = ("state_", "obs_", "observation_")
_METADATA_KEY = b"koopax"
_LONGEST_HEADER = 1 << 24
Names = str | Sequence[str] | None


@dataclass(frozen=True)
class _Choice:
    """The columns that play each part."""

    episode: str
    state: list[str]
    action: list[str]
    reward: str | None
    time: str | None
    duration: str | None
    terminated: str | None
    source: str | None

    @property
    def numeric(self) -> list[str]:
        optional = (self.reward, self.time, self.duration)
        return [*self.state, *self.action, *(name for name in optional if name)]


def read(
    path: Path,
    *,
    episode: str | None = None,
    state: Names = None,
    action: Names = None,
    reward: str | None = None,
    time: str | None = None,
    step_seconds: float | None = None,
) -> Iterator[Episodes]:
    """Episodes of a table; columns that are not named are guessed.

    Args:
        path: a `.csv` or `.parquet` file.
        episode: column that tells episodes apart; guessed: `episode`, `episode_id`, `trajectory`.
        state: state columns, a list or one string with commas; guessed: those that begin with `state_` or `obs_`.
        action: action columns, or "none" for a system that nobody acts on; guessed: those that begin with `action_`.
        reward: reward column, or "none" for a table without rewards; guessed: `reward`.
        time: column with the time of each row in seconds, from which the durations of the steps follow; without it a
            column `duration` in nominal steps is used if there is one.
        step_seconds: seconds of a nominal step; by default the median step of the time column.
    """
    yield read_named(path, episode, state, action, reward, time, step_seconds)[0]


def read_named(
    path: Path,
    episode: str | None,
    state: Names,
    action: Names,
    reward: str | None,
    time: str | None,
    step_seconds: float | None,
) -> tuple[Episodes, list[str]]:
    """What `read` reads, and what the episodes are called in the table."""
    is_csv = path.suffix.lower() == ".csv"
    names, stored = _header(path, is_csv)
    if reward is None and stored is not None and not stored.has_rewards:
        reward = "none"
    if action is None and stored is not None and not any(name.startswith("action_") for name in names):
        action = "none"
    choice = _choose(path, names, episode, state, action, reward, time)
    columns = _columns(path, is_csv, choice)
    order, starts, episode_names = _episode_rows(columns[choice.episode], str(path), choice.episode)
    last = starts[1:] - 1
    data = {name: _numbers(columns[name], str(path), name)[order] for name in choice.numeric}
    durations = data[choice.duration].astype(np.float32) if choice.duration else None
    if choice.time:
        durations, step_seconds = _durations(data[choice.time], starts, step_seconds)
    arrays: dict[str, Any] = {
        "observations": _stack(data, choice.state, len(order)),
        "actions": _stack(data, choice.action, len(order)),
        "rewards": data[choice.reward].astype(np.float32) if choice.reward else np.zeros(len(order), np.float32),
        "durations": durations,
    }
    for name, value in (("actions", 0), ("rewards", 0), ("durations", 1)):
        if arrays[name] is not None:
            arrays[name][last] = value
    metadata, sources = _sources(columns, choice, order, starts, stored)
    metadata = replace(metadata, has_rewards=choice.reward is not None)
    if step_seconds is not None:
        metadata = replace(metadata, step_seconds=float(step_seconds))
    ended = choice.terminated
    terminated = _numbers(columns[ended], str(path), ended)[order] > 0 if ended else None
    episodes = Episodes(
        **arrays,
        starts=starts,
        terminated=np.zeros(len(last), bool) if terminated is None else np.logical_or.reduceat(terminated, starts[:-1]),
        sources=sources,
        metadata=metadata,
    )
    return episodes, episode_names


def _header(path: Path, is_csv: bool) -> tuple[list[str], Metadata | None]:
    """Column names, and the metadata if we wrote the file."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    with reading(path, "a readable table", "write it again"):
        if is_csv:
            with pyarrow.csv.open_csv(path, _csv_blocks(path)) as reader:
                return reader.schema.names, None
        file = pyarrow.parquet.ParquetFile(path)
        check_expansion(path.stat().st_size, 8 * file.metadata.num_rows * file.metadata.num_columns)
        schema = file.schema_arrow
        stored = (schema.metadata or {}).get(_METADATA_KEY)
        return schema.names, None if stored is None else Metadata.from_json(json.loads(stored))


def _csv_blocks(path: Path) -> Any:
    """Blocks that hold the header, however many columns it names, and rows several times as long."""
    import pyarrow.csv

    with path.open("rb") as file:
        header = len(file.readline(_LONGEST_HEADER))
    return pyarrow.csv.ReadOptions(block_size=max(1 << 20, 8 * header))


def _choose(path: Path, names: list[str], episode, state, action, reward, time) -> _Choice:
    def missing(part: str, no_need: str = "") -> KoopaxError:
        return KoopaxError(
            f"{str(path)!r} has no {part} column: name it by {part}= (on the command line --{part}), of "
            f"{', '.join(names)}{no_need}."
        )

    def one(part: str, given: str | None, guesses: Sequence[str] = ()) -> str | None:
        if given is not None and given not in names:
            raise unknown_name(f"{part} column", given, names)
        found = given if given is not None else next((name for name in guesses if name in names), None)
        if found is not None and names.count(found) > 1:
            raise KoopaxError(
                f"{str(path)!r} has {names.count(found)} columns called {found!r}: give each its own name, so that it "
                f"is clear which is meant as {part}."
            )
        return found

    def several(part: str, given: Names, prefixes: Sequence[str]) -> list[str]:
        if given == "none":
            return []
        if given is None:
            chosen = [name for name in names if name.startswith(tuple(prefixes)) or name == part]
            if not chosen:
                raise missing(part, ", or say `none` if nobody acts on the system" if part == "action" else "")
        else:
            chosen = [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)
        found = [one(part, name) or name for name in chosen]
        if twice := [name for name in found if found.count(name) > 1]:
            raise KoopaxError(f"the {part} column {twice[0]!r} is named {found.count(twice[0])} times: name it once.")
        return found

    chosen_episode = one("episode", episode, _EPISODE_NAMES)
    if chosen_episode is None:
        raise missing("episode")
    chosen_reward = None if reward == "none" else one("reward", reward, ("reward",))
    choice = _Choice(
        episode=chosen_episode,
        state=several("state", state, _STATE_PREFIXES),
        action=several("action", action, ("action_",)),
        reward=chosen_reward,
        time=one("time", time),
        duration=None if time else one("duration", None, ("duration",)),
        terminated=one("terminated", None, ("terminated", "terminal")),
        source=one("source", None, ("source",)),
    )
    if chosen_reward is None and reward != "none":
        raise missing("reward", ", or say `none` if the data has no rewards")
    return choice


def _columns(path: Path, is_csv: bool, choice: _Choice) -> dict[str, Any]:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    named = [choice.episode, *choice.numeric, *(n for n in (choice.terminated, choice.source) if n)]
    wanted = list(dict.fromkeys(named))
    with reading(path, "a table of numbers", "correct it, or name other columns"):
        if is_csv:
            types = dict.fromkeys(choice.numeric, pyarrow.float32())
            types |= {choice.episode: pyarrow.string()}
            types |= {choice.time: pyarrow.float64()} if choice.time else {}
            types |= {choice.source: pyarrow.string()} if choice.source else {}
            options = pyarrow.csv.ConvertOptions(include_columns=wanted, column_types=types)
            table = pyarrow.csv.read_csv(path, _csv_blocks(path), convert_options=options)
        else:
            table = pyarrow.parquet.ParquetFile(path).read(columns=wanted)
    if table.num_rows == 0:
        raise KoopaxError(f"{str(path)!r} is empty: it has no row.")
    return {name: table.column(name) for name in wanted}


def _episode_rows(column: Any, path: str, name: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Rows in episode order (of first appearance), where each episode begins, and what it is called."""
    import pyarrow

    if column.null_count:
        raise KoopaxError(
            f"column {name!r} of {path!r} has {column.null_count} empty cells: give every row an episode."
        )
    if pyarrow.types.is_nested(column.type):
        raise KoopaxError(
            f"column {name!r} of {path!r} has {column.type} in its cells: give a name or a number to each."
        )
    encoded = column.combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes)
    if (short := np.flatnonzero(counts < 2)).size:
        value = encoded.dictionary[int(short[0])]
        raise KoopaxError(f"episode {value} of {path!r} has a single row: an episode needs two states or more.")
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return order, starts, [str(value) for value in encoded.dictionary.to_pylist()]


def _numbers(column: Any, path: str, name: str) -> np.ndarray:
    """A column as float64 or float32, NaN where it is empty."""
    import pyarrow

    kind = pyarrow.float32() if column.type == pyarrow.float32() else pyarrow.float64()
    try:
        return column.cast(pyarrow.int8() if pyarrow.types.is_boolean(column.type) else kind).cast(kind).to_numpy()
    except pyarrow.ArrowException as error:
        told = f"column {name!r} of {path!r} is not made of numbers ({one_line(error)})"
        raise KoopaxError(f"{told}: name columns of numbers.") from error


def _stack(data: dict[str, np.ndarray], names: list[str], rows: int) -> np.ndarray:
    out = np.empty((rows, len(names)), np.float32)
    with np.errstate(over="ignore"):
        for i, name in enumerate(names):
            out[:, i] = data[name]
    return out


def _durations(
    times: np.ndarray, starts: np.ndarray, step_seconds: float | None
) -> tuple[np.ndarray | None, float | None]:
    """Durations in nominal steps, None where they are all 1 to a thousandth; and the nominal step."""
    steps = np.diff(times, append=times[-1] + 1)
    inside = np.ones(len(times), bool)
    inside[starts[1:] - 1] = False
    nominal = float(np.median(steps[inside])) if step_seconds is None else step_seconds
    if not nominal > 0:
        raise KoopaxError(f"the nominal step is {nominal} s: times must increase within an episode.")
    durations = (steps / nominal).astype(np.float32)
    regular = bool(np.all(np.abs(durations[inside] - 1) < 1e-3))
    return None if regular else durations, nominal


def _sources(
    columns: dict[str, Any], choice: _Choice, order: np.ndarray, starts: np.ndarray, stored: Metadata | None
) -> tuple[Metadata, np.ndarray]:
    sources = np.zeros(len(starts) - 1, np.int64)
    metadata = stored or Metadata()
    if choice.source:
        values = [str(v) for v in columns[choice.source].take(order[starts[:-1]]).to_pylist()]
        known = tuple(dict.fromkeys([*(metadata.source_names if stored else ()), *values]))
        sources = np.asarray([known.index(v) for v in values], np.int64)
        metadata = replace(metadata, source_names=known)
    names = (_short(choice.state, _STATE_PREFIXES), _short(choice.action, ("action_",)))
    return replace(metadata, state_names=names[0], action_names=names[1]), sources


def _short(names: list[str], prefixes: Sequence[str]) -> tuple[str, ...]:
    """Names without their prefix; none where they are only numbered."""
    prefix = next((p for p in prefixes if all(name.startswith(p) for name in names)), "")
    short = tuple(name.removeprefix(prefix) for name in names)
    return () if short == tuple(str(i) for i in range(len(short))) else short


def write(episodes: Episodes, path: Path, *, suffix: str) -> None:
    """Write a table, some episodes at a time; `suffix` tells CSV from Parquet."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    if episodes.image_shape is not None:
        raise KoopaxError(
            f"a table can't hold frames of {frame_text(episodes.image_shape)}: write an .npz, an .episodes folder or a "
            "Minari dataset."
        )
    schema = _schema(episodes)
    open_writer = pyarrow.csv.CSVWriter if suffix == ".csv" else pyarrow.parquet.ParquetWriter
    with open_writer(path, schema) as writer:
        for chunk in iterate_chunks(episodes):
            writer.write_table(pyarrow.table(_written_columns(episodes, chunk, schema), schema=schema))


def _schema(episodes: Episodes) -> Any:
    import pyarrow

    metadata = episodes.metadata
    states = metadata.state_names or [str(i) for i in range(episodes.state_size)]
    actions = metadata.action_names or [str(i) for i in range(episodes.action_size)]
    fields = [("episode", pyarrow.int64()), ("step", pyarrow.int64())]
    fields += [(f"state_{name}", pyarrow.float32()) for name in states]
    fields += [(f"action_{name}", pyarrow.float32()) for name in actions]
    fields += [("reward", pyarrow.float32())] if episodes.has_rewards else []
    fields += [("duration", pyarrow.float32())] if episodes.durations is not None else []
    fields += [("terminated", pyarrow.bool_()), ("source", pyarrow.string())]
    stored = json.dumps(metadata.to_json(), sort_keys=True).encode()
    return pyarrow.schema(fields, metadata={_METADATA_KEY: stored})


def _written_columns(episodes: Episodes, chunk: Any, schema: Any) -> list[Any]:
    import pyarrow

    lengths = np.diff(chunk.starts)
    numbers = chunk.first_episode + np.arange(len(lengths))
    last = ~chunk.steps
    columns = [
        pyarrow.array(np.repeat(numbers, lengths)),
        pyarrow.array(np.arange(len(last)) - np.repeat(chunk.starts[:-1], lengths)),
        *(pyarrow.array(column) for column in chunk.observations.T),
        *(pyarrow.array(column, mask=last) for column in chunk.actions.T),
    ]
    if episodes.has_rewards:
        columns.append(pyarrow.array(chunk.rewards, mask=last))
    if chunk.durations is not None:
        columns.append(pyarrow.array(chunk.durations, mask=last))
    names = np.asarray(episodes.metadata.source_names, object)[episodes.sources[numbers]]
    columns.append(pyarrow.array(last & np.repeat(episodes.terminated[numbers], lengths)))
    columns.append(pyarrow.array(np.repeat(names, lengths), pyarrow.string()))
    return columns
