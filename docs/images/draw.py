"""Draws the picture of the README from a trained run: `python docs/images/draw.py RUN [--out FILE]`.

Left: three state components over one test window, true and predicted from its first state and the actions alone.
Right: the normalised error at every step of the horizon over many test windows, beside predicting no change.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from koopax._plots import BLUE, INK, ORANGE, tidy
from koopax.reporting.predictions import choose_windows, errors_by_window, predict
from koopax.training import model_and_test_episodes

# Of MuJoCo's HalfCheetah: what a reader can imagine.
COMPONENTS = {1: "body angle (rad)", 4: "back foot angle (rad)", 8: "forward speed (m/s)"}


def draw(run: Path, out: Path, *, horizon: int, windows: int) -> None:
    """Predict test windows of a run and draw the one of median error."""
    model, episodes = model_and_test_episodes(run, None)
    chosen = choose_windows(episodes, horizon=horizon, count=windows)
    errors = errors_by_window(model, chosen)
    error = errors["model"].state
    typical = int(np.argsort(error.mean(1))[len(error) // 2])
    true = chosen.fixed.take(slice(typical, typical + 1))
    predicted = predict(model, true)

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.7, 1))
    axes = left.subplots(len(COMPONENTS), 1, sharex=True)
    steps = np.arange(horizon + 1)
    for axis, (component, name) in zip(axes, COMPONENTS.items(), strict=True):
        axis.plot(steps, true.states[:, 0, component], color=INK, linewidth=2.4, alpha=0.35, label="true")
        axis.plot(steps[1:], predicted.states[:, 0, component], color=BLUE, linewidth=1.4, label="predicted")
        axis.set_ylabel(name, fontsize=8)
        tidy(axis)
    axes[0].legend(loc="upper right", frameon=False, ncols=2, fontsize=8)
    axes[-1].set_xlabel("steps after the start, 0.05 s each")
    left.suptitle("one test window of median error: predicted from its first state and the actions", fontsize=10)

    axis = right.subplots()
    axis.plot(steps[1:], error.mean(0), color=BLUE, label="Koopman model")
    unchanged = errors["constant"].state.mean(0)
    axis.plot(steps[1:], unchanged, color=ORANGE, linestyle="--", label="no change")
    axis.axhline(1.0, color=INK, linestyle=":", linewidth=1, label="variance of the data")
    axis.set(yscale="log", xlabel="steps ahead", ylabel="normalised mean squared error")
    axis.legend(frameon=False, fontsize=8)
    tidy(axis)
    right.suptitle(f"mean over {len(error)} windows of unseen episodes", fontsize=10)
    figure.savefig(out, dpi=130)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a run on HalfCheetah, as `koopax train` leaves it")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("prediction.png"))
    parser.add_argument("--horizon", type=int, default=100)
    parser.add_argument("--windows", type=int, default=500)
    arguments = parser.parse_args()
    draw(arguments.run, arguments.out, horizon=arguments.horizon, windows=arguments.windows)
