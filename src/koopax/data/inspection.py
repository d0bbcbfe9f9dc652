"""What is in a set of episodes: as a JSON-able summary and as a figure."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from koopax.data.episodes import Episodes
from koopax.data.images import channel_names
from koopax.data.statistics import Columns, iterate_chunks

_WINDOW = 100


def summarise(episodes: Episodes) -> dict[str, Any]:
    """Counts, lengths, returns, and range, mean and deviation of every column; plain JSON types.

    Of images, the columns of the state are the channels, and `moving_pixels` is the share of pixels that ever change.

    Values that are not finite are counted in `nonfinite` and left out of the other figures. Without rewards, returns
    and the reward's figures are None.
    """
    found = episodes.statistics()
    metadata = episodes.metadata
    lengths = episodes.lengths
    returns = episodes.returns if episodes.has_rewards else np.full(len(episodes), np.nan)
    durations = _durations(episodes)
    shape, states, state_names = episodes.image_shape, found.state, metadata.state_names
    if shape is not None:
        states, state_names = _channels(found.state, shape), channel_names(shape[2])
    columns = (states, found.action, found.reward)
    irregular = int(durations["nonfinite"]) if durations else 0
    return {
        "environment": metadata.environment,
        "episodes": episodes.num_episodes,
        "steps": episodes.num_steps,
        "state_size": episodes.state_size,
        "image_shape": None if shape is None else list(shape),
        "action_size": episodes.action_size,
        "has_rewards": episodes.has_rewards,
        "lengths": _spread(lengths),
        "returns": _spread(returns),
        "terminated": int(episodes.terminated.sum()),
        "nonfinite": sum(int(c.nonfinite.sum()) for c in columns) + irregular,
        "windows": {
            "horizon": _WINDOW,
            "count": int(np.maximum(0, lengths - _WINDOW + 1).sum()),
            "episodes_too_short": int((lengths < _WINDOW).sum()),
        },
        "sources": {
            name: {
                "episodes": int((episodes.sources == i).sum()),
                "steps": int(lengths[episodes.sources == i].sum()),
                "mean_return": _number(returns[episodes.sources == i].mean())
                if (episodes.sources == i).any()
                else None,
            }
            for i, name in enumerate(metadata.source_names)
        },
        "state": _columns(states, state_names, "state", metadata.units),
        "moving_pixels": None if shape is None else _moving(found.state, shape),
        "action": _columns(found.action, metadata.action_names, "action", metadata.units),
        "reward": _reward(found.reward, episodes),
        "durations": durations,
        "step_seconds": metadata.step_seconds,
        "bytes": sum(a.nbytes for a in (episodes.observations, episodes.actions, episodes.rewards)),
        "memory_mapped": episodes.is_memory_mapped,
    }


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _spread(values: np.ndarray) -> dict[str, float | None]:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return dict.fromkeys(("min", "mean", "median", "max", "std"))
    functions = {"min": np.min, "mean": np.mean, "median": np.median, "max": np.max, "std": np.std}
    return {name: float(function(finite)) for name, function in functions.items()}


def _durations(episodes: Episodes) -> dict[str, Any] | None:
    if episodes.durations is None:
        return None
    values = np.concatenate([c.durations[c.steps] for c in iterate_chunks(episodes) if c.durations is not None])
    return _spread(values) | {"nonfinite": int((~np.isfinite(values)).sum())}


def _columns(columns: Columns, names: Sequence[str], kind: str, units: Any) -> list[dict[str, Any]]:
    labels = names or [f"{kind}_{i}" for i in range(len(columns.mean))]
    return [
        {
            "name": name,
            "unit": units.get(name),
            "min": _number(columns.minimum[i]),
            "max": _number(columns.maximum[i]),
            "mean": _number(columns.mean[i]),
            "std": _number(columns.std[i]),
            "constant": bool(columns.constant[i]),
            "nonfinite": int(columns.nonfinite[i]),
        }
        for i, name in enumerate(labels)
    ]


def _channels(pixels: Columns, shape: tuple[int, int, int]) -> Columns:
    """What is known of all pixels of a channel together."""
    mean, variance, minimum, maximum = (
        values.reshape(-1, shape[2]) for values in (pixels.mean, pixels.std**2, pixels.minimum, pixels.maximum)
    )
    std = np.sqrt(variance.mean(0) + mean.var(0))
    return Columns(mean.mean(0), std, minimum.min(0), maximum.max(0), np.zeros(shape[2], np.int64))


def _moving(pixels: Columns, shape: tuple[int, int, int]) -> float:
    return float((~pixels.constant).reshape(-1, shape[2]).any(axis=1).mean())


def _reward(column: Columns, episodes: Episodes) -> dict[str, Any]:
    found = _columns(column, ("reward",), "reward", episodes.metadata.units)[0]
    return found if episodes.has_rewards else found | dict.fromkeys(("min", "max", "mean", "std", "constant"))


def plot_trajectories(episodes: Episodes, *, count: int = 3, columns: int = 12, steps: int = 200) -> Any:
    """A matplotlib figure: the first state columns, the first actions and the reward of a few episodes over time.

    Only the first `steps` of an episode are drawn, or fast movements would be a blur.

    The episodes are spread evenly over the order of their returns, so that good and bad ones are seen; without rewards,
    over the whole set. Of images, `columns` frames of each episode are drawn, with equal steps between them.
    """
    from matplotlib.figure import Figure

    order = np.argsort(episodes.returns, kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int))]
    if episodes.image_shape is not None:
        return _plot_frames(episodes, chosen, columns, steps)
    names = [*_labels(episodes, "state")[:columns], *_labels(episodes, "action")[: columns // 2]]
    names += ["reward"] if episodes.has_rewards else []
    width = min(4, len(names))
    height = -(-len(names) // width)
    figure = Figure(figsize=(3.2 * width, 1.9 * height), layout="constrained")
    axes = figure.subplots(height, width, squeeze=False).ravel()
    for index in chosen:
        episode = episodes.episode(int(index))
        told = f", return {episode.rewards.sum():.4g}" if episodes.has_rewards else ""
        series = [*episode.observations.T[:columns], *episode.actions.T[: columns // 2], episode.rewards]
        for axis, values in zip(axes, series, strict=False):
            axis.plot(values[: steps + 1], linewidth=0.8, label=f"episode {index}{told}")
    for axis, name in zip(axes, names, strict=False):
        axis.set_title(name, fontsize=9)
        axis.tick_params(labelsize=7)
    for axis in axes[len(names) :]:
        axis.set_axis_off()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(chosen), fontsize=8)
    figure.supxlabel("step", fontsize=9)
    return figure


def _plot_frames(episodes: Episodes, chosen: np.ndarray, columns: int, steps: int) -> Any:
    """A row of frames per episode."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.3 * columns, 1.6 * len(chosen)), layout="constrained")
    axes = figure.subplots(len(chosen), columns, squeeze=False)
    for row, index in zip(axes, chosen, strict=True):
        episode = episodes.episode(int(index))
        shown = np.linspace(0, min(steps, len(episode.rewards)), columns).round().astype(int)
        for axis, step in zip(row, shown, strict=True):
            frame = np.asarray(episode.observations[step])
            axis.imshow(frame if frame.shape[2] in (3, 4) else frame[..., 0], cmap="gray", vmin=0, vmax=255)
            axis.set_title(f"step {step}", fontsize=7)
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel(f"episode {index}", fontsize=8)
    return figure


def _labels(episodes: Episodes, kind: str) -> list[str]:
    names, size = {
        "state": (episodes.metadata.state_names, episodes.state_size),
        "action": (episodes.metadata.action_names, episodes.action_size),
    }[kind]
    units = episodes.metadata.units
    return [f"{n} [{units[n]}]" if n in units else n for n in names or [f"{kind}_{i}" for i in range(size)]]
