"""A film of an agent at play, with the future that its plan foresees drawn beside what happened.

A latent has no picture of its own. What a plan foresees is shown by the frame of the episode whose latent is nearest to
the predicted one, and by the rewards that it expects, above those that came.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from koopax._atomic import new_file
from koopax.agents.tdmpc.demonstration import Demonstration
from koopax.envs.renderers import Renderers
from koopax.reporting.film_parts import CHART, PANEL, put_label, reward_chart
from koopax.reporting.mp4 import FILM_RATE, write_mp4
from koopax.reporting.rendering import PAPER


def write_plan_film(played: Demonstration, path: Path) -> None:
    """Write the MP4 of the first episode."""
    pictures = film(played, draw(played))
    with new_file(path, overwrite=True) as temporary:
        write_mp4(temporary, pictures, (3 * PANEL[0], PANEL[1] + CHART), rate=FILM_RATE)


def draw(played: Demonstration) -> np.ndarray:
    """Pictures of the environment before the first decision and after each `[time + 1, height, width, 3]`."""
    renderers = Renderers(played.task, 1, size=16, action_repeat=played.action_repeat)
    try:
        renderers.reset({0: played.reset_seed})
        pictures = [renderers.draw(0, *PANEL)]
        for action in played.episodes[0].actions:
            renderers.step({0: action})
            pictures.append(renderers.draw(0, *PANEL))
    finally:
        renderers.close()
    return np.stack(pictures)


def film(played: Demonstration, pictures: np.ndarray) -> Iterator[np.ndarray]:
    """One picture per decision: now, later as it happened, later as planned, and rewards below."""
    rewards, length, last = played.episodes[0].rewards, played.plan_length, len(pictures) - 1
    nearest = nearest_moments(played.features, played.foreseen_features[:, -1])
    steps = f"{length} decision{'s' if length > 1 else ''}"
    for now in range(last):
        later = now + length
        picture = Image.new("RGB", (3 * PANEL[0], PANEL[1] + CHART), PAPER)
        shown = (
            (f"now: decision {now} of {last}", now),
            (f"{steps} later, as it happened", later if later <= last else None),
            (f"{steps} later, as the plan foresees", nearest[now]),
        )
        for number, (label, moment) in enumerate(shown):
            panel = Image.new("RGB", PANEL, PAPER) if moment is None else Image.fromarray(pictures[moment])
            put_label(panel, label, "" if moment is not None else "the episode is over by then")
            picture.paste(panel, (PANEL[0] * number, 0))
        foreseen = played.foreseen_rewards[now]
        picture.paste(reward_chart(rewards, now, ahead=len(foreseen), foreseen=foreseen), (0, PANEL[1]))
        yield np.asarray(picture)


def nearest_moments(features: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The moments of an episode whose features `[points, F]` are nearest to those wanted `[time, F]`."""
    scale = features.std(axis=0) + 1e-6
    seen, sought = features / scale, np.nan_to_num(wanted / scale)
    distances = (seen**2).sum(axis=1) - 2 * sought @ seen.T
    return distances.argmin(axis=1)
