"""Episodes: the one container that everything downstream reads.

An episode of T steps is s_0, a_0, r_0, …, a_{T−1}, r_{T−1}, s_T. It takes T + 1 rows, so that one row index serves
every array: row t holds s_t, a_t and r_t, and the last row holds s_T with zeros for the action and reward that were
never taken. A state is a vector, or a frame of uint8 pixels, of which each is held once, however many a model stacks.
"""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike

from koopax._errors import KoopaxError
from koopax.data.episode import Episode
from koopax.data.images import frame_text
from koopax.data.metadata import Metadata, merge
from koopax.data.rows import Rows, is_mapped, stack_runs
from koopax.data.statistics import Statistics, episode_ranges, statistics
from koopax.data.validation import as_episode_array, check_finite, check_lists, check_sizes


@dataclass(frozen=True, eq=False)
class Episodes:
    """A set of episodes, in memory or memory-mapped, with the same interface and results.

    `len(episodes)` counts them, `episodes[3]` is an `Episode`, `episodes[:10]` and `episodes[[0, 2]]` are `Episodes`.
    """

    observations: Rows
    """States [rows, state], float32, or frames [rows, height, width, channels], uint8."""
    actions: Rows
    """Actions [rows, action], float32; zero in the last row of an episode."""
    rewards: Rows
    """Rewards [rows], float32; zero in the last row of an episode, and everywhere if there are none (`has_rewards`)."""
    starts: np.ndarray
    """First row of each episode, and the number of rows at the end [E + 1], int64."""
    terminated: np.ndarray
    """Whether an episode ended in a terminal state [E]."""
    sources: np.ndarray
    """Number of each episode's source in `metadata.source_names` [E]."""
    durations: Rows | None = None
    """Length of each step in nominal steps [rows], float32, 1 in the last row; None where all are 1."""
    metadata: Metadata = field(default_factory=Metadata)
    """Names, units and origin."""

    @classmethod
    def from_arrays(
        cls,
        observations: Sequence[ArrayLike] | np.ndarray,
        actions: Sequence[ArrayLike] | np.ndarray | None = None,
        rewards: Sequence[ArrayLike] | np.ndarray | None = None,
        *,
        durations: Sequence[ArrayLike] | np.ndarray | None = None,
        terminated: ArrayLike | None = None,
        sources: Sequence[str] | None = None,
        environment: str | None = None,
        state_names: Sequence[str] = (),
        action_names: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
        step_seconds: float | None = None,
        extra: Mapping[str, Any] | None = None,
        check: bool = True,
    ) -> "Episodes":
        """Episodes from lists with one array, or list of numbers, per episode.

        Args:
            observations: per episode [T + 1, state], one row more than the rest; of images
                [T + 1, height, width, channels], uint8.
            actions: per episode [T, action]; None for a system that nobody acts on.
            rewards: per episode [T]; None for data without rewards.
            durations: per episode [T], length of each step in nominal steps; None where all are 1.
            terminated: [E], whether the last state is terminal; False by default.
            sources: [E], a name for where each episode comes from.
            environment: id of the environment.
            state_names: one per state column.
            action_names: one per action column.
            units: by state or action name.
            step_seconds: seconds of a nominal step.
            extra: anything else that is JSON-able.
            check: raise on NaN and infinite values.
        """
        if actions is None:
            actions = [np.zeros((max(0, len(states) - 1), 0), np.float32) for states in observations]  # type: ignore[arg-type]
        given = {"observations": observations, "actions": actions, "rewards": rewards, "durations": durations}
        lists = {name: arrays for name, arrays in given.items() if arrays is not None}
        count = len(observations)
        if count == 0:
            raise KoopaxError("the set is empty: give at least one episode.")
        for name, arrays in (*lists.items(), ("sources", sources), ("terminated", terminated)):
            if arrays is not None and len(arrays) != count:  # type: ignore[arg-type]
                raise KoopaxError(f"{len(arrays)} {name} for {count} observation arrays: give one per episode.")  # type: ignore[arg-type]
        columns = {name: [as_episode_array(a, name, i) for i, a in enumerate(arrays)] for name, arrays in lists.items()}
        lengths = check_lists(columns)
        names = tuple(dict.fromkeys(sources)) if sources is not None else ("data",)
        episodes = cls(
            observations=_joined(columns["observations"]),
            actions=_pad(columns["actions"], 0.0),
            rewards=np.zeros(lengths.sum() + count, np.float32) if rewards is None else _pad(columns["rewards"], 0.0),
            durations=_pad(columns["durations"], 1.0) if durations is not None else None,
            starts=np.concatenate([[0], np.cumsum(lengths + 1)]).astype(np.int64),
            terminated=np.zeros(count, bool) if terminated is None else np.asarray(terminated, bool),
            sources=np.asarray([names.index(s) for s in sources] if sources is not None else [0] * count, np.int64),
            metadata=Metadata(
                environment=environment,
                state_names=tuple(state_names),
                action_names=tuple(action_names),
                units=dict(units or {}),
                source_names=names,
                step_seconds=step_seconds,
                has_rewards=rewards is not None,
                extra=dict(extra or {}),
            ),
        )
        episodes.validate(finite=check)
        return episodes

    def __len__(self) -> int:
        return self.num_episodes

    @overload
    def __getitem__(self, index: SupportsIndex) -> Episode: ...

    @overload
    def __getitem__(self, index: slice | Sequence[int] | np.ndarray) -> "Episodes": ...

    def __getitem__(self, index: Any) -> "Episode | Episodes":
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        return self.select(index) if np.ndim(index) else self.episode(operator.index(index))

    def __iter__(self) -> Iterator[Episode]:
        return (self.episode(i) for i in range(len(self)))

    def __repr__(self) -> str:
        sizes = [(len(self), "episode"), (self.num_steps, "step")]
        sizes += [(self.state_size, "state")] if self.image_shape is None else []
        sizes += [(self.action_size, "action")]
        told = [f"{size:,} {name}{'' if size == 1 else 's'}" for size, name in sizes]
        told += [] if self.image_shape is None else [f"frames of {frame_text(self.image_shape)}"]
        told += [] if self.has_rewards else ["no rewards"]
        told += [] if self.durations is None else ["irregular steps"]
        told += [] if self.metadata.environment is None else [self.metadata.environment]
        return f"Episodes({', '.join(told)})"

    @property
    def num_episodes(self) -> int:
        """Number of episodes E."""
        return len(self.starts) - 1

    @property
    def num_steps(self) -> int:
        """Number of transitions in all episodes."""
        return int(self.starts[-1]) - self.num_episodes

    @property
    def state_size(self) -> int:
        """Number of state columns; of images, numbers in a frame."""
        return math.prod(self.observations.shape[1:])

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """Height, width and channels of a frame; None where states are vectors."""
        height_width_channels = self.observations.shape[1:]
        return height_width_channels if len(height_width_channels) == 3 else None

    @property
    def action_size(self) -> int:
        """Number of action columns."""
        return self.actions.shape[1]

    @property
    def has_rewards(self) -> bool:
        """Whether the data has rewards; otherwise they are all zero and stand for nothing."""
        return self.metadata.has_rewards

    @property
    def lengths(self) -> np.ndarray:
        """Steps of each episode [E]."""
        return np.diff(self.starts) - 1

    @property
    def returns(self) -> np.ndarray:
        """Undiscounted return of each episode [E], float64."""
        sums = []
        for first, end in episode_ranges(self.starts):
            rewards = np.asarray(self.rewards[self.starts[first] : self.starts[end]], np.float64)
            sums.append(np.add.reduceat(rewards, self.starts[first:end] - self.starts[first]))
        return np.concatenate(sums)

    @property
    def is_memory_mapped(self) -> bool:
        """Whether the rows live on disk."""
        return is_mapped(self.observations)

    def episode(self, index: int) -> Episode:
        """Episode `index`, without padding; views where the set is in memory."""
        if not -self.num_episodes <= index < self.num_episodes:
            raise IndexError(f"episode {index} of {self.num_episodes}")
        index %= self.num_episodes
        first, last = int(self.starts[index]), int(self.starts[index + 1]) - 1
        return Episode(
            observations=self.observations[first : last + 1],
            actions=self.actions[first:last],
            rewards=self.rewards[first:last],
            durations=None if self.durations is None else self.durations[first:last],
            terminated=bool(self.terminated[index]),
            source=self.metadata.source_names[self.sources[index]],
        )

    def select(self, indices: ArrayLike) -> "Episodes":
        """The episodes of these indices, in this order."""
        indices = np.asarray(indices)
        if indices.dtype == bool:
            indices = np.flatnonzero(indices)
        if indices.size == 0:
            raise KoopaxError(f"no episode of {self.num_episodes} is selected: give at least one index.")
        if indices.min() < -self.num_episodes or indices.max() >= self.num_episodes:
            raise KoopaxError(f"episode {int(indices.max())} is asked for: the set has {self.num_episodes}.")
        indices = np.where(indices < 0, indices + self.num_episodes, indices)
        return _stack([self], np.zeros(len(indices), np.int64), indices, self.metadata, self.sources[indices])

    def split(self, fraction: float, seed: int) -> "tuple[Episodes, Episodes]":
        """Training and test episodes: shuffled by episode, in the same proportion in every source.

        A source with two episodes or more has at least one on each side; sources of one episode are split together.
        """
        if not 0 < fraction < 1:
            raise KoopaxError(f"a split fraction of {fraction} leaves one side empty: give one between 0 and 1.")
        if self.num_episodes < 2:
            raise KoopaxError(
                "a single episode cannot be split into training and test episodes: collect more or cut it into several."
            )
        counts = np.bincount(self.sources, minlength=len(self.metadata.source_names))
        strata = np.where(counts[self.sources] > 1, self.sources, -1)
        generator = np.random.default_rng(seed)
        train = np.zeros(self.num_episodes, bool)
        for stratum in np.unique(strata):
            members = generator.permutation(np.flatnonzero(strata == stratum))
            keep = round(fraction * len(members))
            train[members[: max(1, min(keep, len(members) - 1))]] = True
        return self.select(train), self.select(~train)

    @staticmethod
    def concatenate(parts: "Sequence[Episodes]") -> "Episodes":
        """All episodes of several sets in order; sources of the same name become one."""
        if not parts:
            raise KoopaxError("nothing to concatenate: give at least one set of episodes.")
        shapes = {part.image_shape for part in parts}
        if len(shapes) > 1:
            told = sorted("vectors" if shape is None else f"frames of {frame_text(shape)}" for shape in shapes)
            raise KoopaxError(f"sets of {' and '.join(told)} cannot be concatenated: give all states the same form.")
        sizes = {(part.state_size, part.action_size) for part in parts}
        if len(sizes) > 1:
            raise KoopaxError(f"sets of different (state, action) sizes {sorted(sizes)} cannot be concatenated.")
        metadata, numbers = merge([part.metadata for part in parts])
        which = np.repeat(np.arange(len(parts)), [part.num_episodes for part in parts])
        indices = np.concatenate([np.arange(part.num_episodes) for part in parts])
        sources = np.concatenate([np.asarray(n)[p.sources] for n, p in zip(numbers, parts, strict=True)])
        return _stack(parts, which, indices, metadata, sources)

    def statistics(self) -> Statistics:
        """Mean, standard deviation and range of every column, without padding."""
        return statistics(self)

    def in_memory(self) -> "Episodes":
        """The same set with its rows in memory, each array in one piece."""
        if isinstance(self.observations, np.ndarray) and not self.is_memory_mapped:
            return self
        load = {name: np.array(getattr(self, name)[:]) for name in ("observations", "actions", "rewards")}
        return replace(self, **load, durations=None if self.durations is None else np.array(self.durations[:]))

    def validate(self, *, finite: bool = True) -> None:
        """Raise `KoopaxError` on sizes that don't fit and, if `finite`, on the first NaN or infinite value."""
        check_sizes(self)
        if finite:
            check_finite(self)


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    """The arrays in one; the frames of a single episode as they are, so that sets of them are built without copies."""
    return arrays[0] if len(arrays) == 1 and arrays[0].dtype == np.uint8 else np.concatenate(arrays)


def _pad(arrays: list[np.ndarray], value: float) -> np.ndarray:
    padding = np.full((1, *arrays[0].shape[1:]), value, np.float32)
    return np.concatenate([piece for array in arrays for piece in (array, padding)])


def _stack(
    parts: Sequence[Episodes], which: np.ndarray, indices: np.ndarray, metadata: Metadata, sources: np.ndarray
) -> Episodes:
    """Episode `indices[k]` of set `parts[which[k]]` for every k."""
    first, rows, terminated = (np.empty(len(which), dtype) for dtype in (np.int64, np.int64, bool))
    for number, part in enumerate(parts):
        here = which == number
        first[here] = part.starts[:-1][indices[here]]
        rows[here] = part.lengths[indices[here]] + 1
        terminated[here] = part.terminated[indices[here]]
    arrays: dict[str, list] = {
        name: [getattr(p, name) for p in parts] for name in ("observations", "actions", "rewards")
    }
    if any(part.durations is not None for part in parts):
        arrays["durations"] = [np.ones(p.starts[-1], np.float32) if p.durations is None else p.durations for p in parts]
    return Episodes(
        **{
            name: stack_runs(values, which, first, rows, copy=name != "observations" or parts[0].image_shape is None)
            for name, values in arrays.items()
        },
        starts=np.concatenate([[0], np.cumsum(rows)]).astype(np.int64),
        terminated=terminated,
        sources=np.asarray(sources, np.int64),
        metadata=metadata,
    )
