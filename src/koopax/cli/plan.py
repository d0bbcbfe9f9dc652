"""koopax plan: control by a trained model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from koopax._errors import KoopaxError
from koopax.cli.output import errors, print_json, results

if TYPE_CHECKING:
    from koopax.planning.result import ControlProgress


def plan(
    run: Positional[Path],
    *,
    env: str,
    episodes: int = 10,
    planner: str = "icem",
    horizon: int | None = None,
    samples: int | None = None,
    iterations: int | None = None,
    reward: str | None = None,
    reencode_every: int | Literal["never"] | None = None,
    goal: tuple[float, ...] | None = None,
    state_cost: tuple[float, ...] | None = None,
    action_cost: tuple[float, ...] | None = None,
    best: bool = False,
    environments: int | None = None,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Control an environment by planning with a trained model, and report the returns beside those of random actions.

    Args:
        run: a run folder or a .koopax file.
        env: the environment, which must be the one that the model was trained on.
        episodes: how many whole episodes.
        planner: mppi, cem, icem, gradient or lqr.
        horizon: steps of a plan.
        samples: candidates in each iteration of a search.
        iterations: rounds of a search.
        reward: MODULE:FUNCTION of (states, actions, next_states) in jax.numpy, instead of the learned reward.
        reencode_every: decode and encode again after so many steps of a plan, or never; as the model does by default.
        goal: for lqr: the state to reach.
        state_cost: for lqr: weight of each component of the state's squared distance to the goal.
        action_cost: for lqr: weight of each component of the squared action, or one for all; 0.01 by default.
        best: the model with the lowest validation loss instead of the last one.
        environments: how many run in lock step; at most 10 by default.
        seed: of the environments and the planner.
        json: print one JSON document.
    """
    from koopax._provenance import provenance
    from koopax.cli.tables import control_table
    from koopax.planning.choice import QuadraticCost
    from koopax.planning.control import control_trained
    from koopax.training.tasks import load_trained

    cost = {"goal": goal, "state_cost": state_cost, "action_cost": action_cost}
    search = {"samples": samples, "iterations": iterations, "reward": reward, "reencode_every": reencode_every}
    for name, value in (search if planner == "lqr" else cost).items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise KoopaxError(f"{option} means nothing to the planner {planner!r}: leave it out, or choose another.")
    model = load_trained(run, best=best)
    with _progress(episodes) as watch:
        result = control_trained(
            model,
            env,
            planner=planner,
            episodes=episodes,
            seed=seed,
            environments=environments,
            reward=reward,
            cost=QuadraticCost(**{name: value for name, value in cost.items() if value is not None}),
            reencode_every=reencode_every,
            watch=watch,
            horizon=horizon,
            samples=samples,
            iterations=iterations,
        )
    if json:
        asked = {"env": env, "planner": planner, "seed": seed, "model": str(run), "best": best}
        print_json(result.to_json() | asked | provenance())
    else:
        results().print(control_table(result))
    if result.interrupted:
        errors().print(f"stopped after {len(result.returns)} of {episodes} episodes", style="yellow")
        raise SystemExit(130)


@contextmanager
def _progress(episodes: int) -> Iterator[Callable[["ControlProgress"], None]]:
    """A bar with the decisions taken, and a line for every finished episode, on standard error."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    told = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[steps]}"))
    with Progress(*columns, TimeRemainingColumn(), console=errors()) as bar:
        task = bar.add_task("episodes", total=episodes, steps="compiling")

        def watch(progress: "ControlProgress") -> None:
            nonlocal told
            for number, found in enumerate(progress.returns[told:], start=told + 1):
                bar.console.print(f"episode {number} of {progress.episodes}: return {found:.1f}", highlight=False)
            told = len(progress.returns)
            bar.update(task, completed=told, steps=f"step {progress.decisions}")

        yield watch
