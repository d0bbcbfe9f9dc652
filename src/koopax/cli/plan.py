"""koopax plan: control by a trained model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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
    risk: float = 0.0,
    goal: tuple[float, ...] | None = None,
    state_cost: tuple[float, ...] | None = None,
    action_cost: tuple[float, ...] | None = None,
    state_bounds: tuple[float, ...] | None = None,
    action_bounds: tuple[float, ...] | None = None,
    rate_bounds: tuple[float, ...] | None = None,
    hard: bool = False,
    best: bool = False,
    environments: int | None = None,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Control an environment by planning with a trained model, and report the returns beside those of random actions.

    Args:
        run: a run folder or a .koopax file; or the folder of a training with --seeds, whose seeds plan together.
        env: the environment, which must be the one that the model was trained on.
        episodes: how many whole episodes.
        planner: mppi, cem, icem, gradient, lqr or qp.
        horizon: steps of a plan.
        samples: candidates in each iteration of a search.
        iterations: rounds of a search, or programs of a qp.
        reward: MODULE:FUNCTION of (states, actions, next_states) in jax.numpy, instead of the learned reward.
        reencode_every: decode and encode again after so many steps of a plan, or never; as the model does by default.
        risk: for the folder of a training with --seeds: weight on the disagreement of the seeds, 0 for their mean.
        goal: for lqr and qp: the state to reach.
        state_cost: for lqr and qp: weight of each component of the state's squared distance to the goal.
        action_cost: for lqr and qp: weight of each component of the squared action, or one for all; 0.01 by default.
        state_bounds: for qp: a pair LOW HIGH for each component of the state, with -inf and inf for none.
        action_bounds: for qp: a pair for each component of the action, or one for all, besides the environment's own.
        rate_bounds: for qp: of the change of the action from step to step, likewise, or one number for ± it.
        hard: for qp: fail where the state can't be kept within its bounds, instead of leaving them as little as can be.
        best: the model with the lowest validation loss instead of the last one.
        environments: how many run in lock step; at most 10 by default.
        seed: of the environments and the planner.
        json: print one JSON document.
    """
    from koopax._provenance import provenance
    from koopax.cli.tables import control_table
    from koopax.planning.choice import QuadraticCost
    from koopax.planning.constraints import Constraints
    from koopax.planning.trained import control_trained
    from koopax.training.trained import load_trained

    cost = {"goal": goal, "state_cost": state_cost, "action_cost": action_cost}
    limits = {"state_bounds": state_bounds, "action_bounds": action_bounds, "rate_bounds": rate_bounds}
    _refuse(
        planner,
        lqr=cost | {"horizon": horizon},
        qp={**cost, **limits, "hard": hard or None, "horizon": horizon, "iterations": iterations}
        | {"reencode_every": reencode_every},
        search={"horizon": horizon, "samples": samples, "iterations": iterations}
        | {"reward": reward, "reencode_every": reencode_every},
    )
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
            constraints=Constraints(**limits, hard=hard),
            reencode_every=reencode_every,
            risk=risk,
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


def _refuse(planner: str, **options: dict[str, Any]) -> None:
    """Refuse options that were given and that this planner has no use for."""
    known = options.get(planner, options["search"])
    for name, value in {name: value for each in options.values() for name, value in each.items()}.items():
        if value is not None and name not in known:
            option = f"--{name.replace('_', '-')}"
            raise KoopaxError(f"{option} means nothing to the planner {planner!r}: leave it out, or choose another.")


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
