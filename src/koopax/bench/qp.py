"""Which solver the convex program of a constrained plan has: OSQP, Clarabel and qpax on the same problems.

The problems are those of a double integrator on its way to a wall, with a speed limit that is active for most of the
way, one decision after another, as `koopax plan --planner qp` has them: matrices stay, the rest moves. OSQP begins at
the last solution, the others anew. `planner` is what the planner does: OSQP without slacks, and Clarabel with them
where that fails.
"""

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from koopax._errors import KoopaxError
from koopax.bench.clock import Watch
from koopax.bench.document import document
from koopax.envs.plants import PLANTS
from koopax.planning.constraints import Constraints, limits_of
from koopax.planning.convex import OSQP, Clarabel, Program, Quadratic
from koopax.planning.protocol import Box

PLANT = "double-integrator"
BOUNDS = (-1.0, 1.0, -0.6, 0.6)
GOAL = (0.95, 0.0)
START = (-0.8, 0.0)
SOLVERS = ("planner", "osqp", "clarabel", "qpax")
Solve = Callable[[Quadratic], np.ndarray]


def measure(
    *, horizons: tuple[int, ...] = (20, 40), decisions: int = 200, watch: Watch = lambda done, total: None
) -> dict[str, Any]:
    """The document that `koopax bench qp --json` prints."""
    if not horizons or min(decisions, *horizons) < 1:
        raise KoopaxError(f"{decisions} decisions of horizons {horizons}: give one or more of each.")
    results = []
    for number, horizon in enumerate(horizons):
        program, problems = _problems(horizon, decisions)
        solvers = {
            name: MAKERS[name](problems[0]) for name in SOLVERS if name == "planner" or importlib.util.find_spec(name)
        }
        found: dict[str, list[np.ndarray]] = {name: [] for name in solvers}
        wall: dict[str, list[float]] = {name: [] for name in solvers}
        processor: dict[str, list[float]] = {name: [] for name in solvers}
        for solve in solvers.values():
            solve(problems[0])
        for step, problem in enumerate(problems):
            for name, solve in solvers.items():
                began, used = time.perf_counter(), time.process_time()
                found[name].append(solve(problem)[: program.actions])
                processor[name].append(1e3 * (time.process_time() - used))
                wall[name].append(1e3 * (time.perf_counter() - began))
            watch(number * decisions + step + 1, len(horizons) * decisions)
        results += [
            _row(name, horizon, program, wall[name], processor[name], found[name], found.get("clarabel"))
            for name in solvers
        ]
    return document("qp", {"horizons": horizons, "decisions": decisions}, {"results": results})


def _row(
    name: str,
    horizon: int,
    program: Program,
    wall: list[float],
    processor: list[float],
    plans: list[np.ndarray],
    exact: list[np.ndarray] | None,
) -> dict[str, Any]:
    row: dict[str, Any] = {"solver": name, "horizon": horizon, "variables": program.actions + program.slacks}
    row["constraints"] = program.rows
    for prefix, times in (("", wall), ("processor_", processor)):
        row[f"{prefix}p50_ms"], row[f"{prefix}p99_ms"] = (float(t) for t in np.percentile(times, (50, 99)))
    # The interior-point method's digits are the most; what differs in the first action is what reaches the plant.
    distance = None if exact is None else max(abs(a[0] - b[0]) for a, b in zip(plans, exact, strict=True))
    return {**row, "first_action_from_clarabel": None if distance is None else float(distance)}


def _problems(horizon: int, count: int) -> tuple[Program, list[Quadratic]]:
    """Programs along a way to the wall, all with the same matrices."""
    plant = PLANTS[PLANT]
    size, one = len(GOAL), np.ones(1)
    limits = limits_of(Constraints(BOUNDS), Box([-plant.force], [plant.force]), size, 1, goal=GOAL)
    program = Program(
        horizon,
        np.asarray(GOAL),
        np.asarray(plant.state_cost),
        plant.action_cost * one,
        0 * one,
        plant.force * one,
        limits,
    )
    A, B = jax.jacobian(lambda x, u: plant.advance(x, u, jnp), argnums=(0, 1))(jnp.zeros(size), jnp.zeros(()))
    A, B = np.asarray(A, float), np.asarray(B, float)
    jacobian = np.zeros((horizon, size, horizon))
    for later in range(horizon):
        for earlier in range(later + 1):
            jacobian[later, :, earlier] = np.linalg.matrix_power(A, later - earlier) @ B * plant.force
    P, rows = program.matrices(jacobian)
    P = P / program.unit
    free = np.stack([np.linalg.matrix_power(A, step + 1) for step in range(horizon)])
    problems = []
    solver, state, last = Clarabel(), np.array(START), np.full(1, np.nan)
    for number in range(count):
        q, low, high = program.vectors(jacobian, free @ state, last)
        problems.append(Quadratic(P, q / program.unit, rows, low, high))
        force = solver.solve(problems[-1]).x[0] * plant.force
        state = A @ state + B * force
        if number % 60 == 59:
            state = np.array(START) * (1 - 0.1 * (number // 60))
    return program, problems


def _planner(first: Quadratic) -> Solve:
    """The rows of the slacks come last, and so do they among the variables."""
    slacks = int(np.sum(first.q == first.q[-1]))
    size, rows = len(first.q) - slacks, len(first.low) - slacks
    P, A = first.P[:size, :size].copy(), first.A[:rows, :size].copy()
    quick, sure = OSQP(), Clarabel()

    def solve(problem: Quadratic) -> np.ndarray:
        found = quick.solve(Quadratic(P, problem.q[:size], A, problem.low[:rows], problem.high[:rows]))
        return found.x if found.solved else sure.solve(problem).x

    return solve


def _osqp(first: Quadratic) -> Solve:
    solver = OSQP(4_000)
    solver.solve(first)
    return lambda problem: solver.solve(problem).x


def _one_sided(problem: Quadratic) -> tuple[np.ndarray, np.ndarray]:
    """G and h of G x ≤ h."""
    above, below = np.isfinite(problem.high), np.isfinite(problem.low)
    G = np.concatenate([problem.A[above], -problem.A[below]])
    return G, np.concatenate([problem.high[above], -problem.low[below]])


def _clarabel(first: Quadratic) -> Solve:
    del first
    solver = Clarabel()
    return lambda problem: solver.solve(problem).x


def _qpax(first: Quadratic) -> Solve:
    import qpax

    with jax.enable_x64(True):
        P, G = jnp.asarray(first.P, jnp.float64), jnp.asarray(_one_sided(first)[0], jnp.float64)
        none = jnp.zeros((0, len(first.q))), jnp.zeros(0)
        compiled = jax.jit(lambda q, h: qpax.solve_qp(P, q, *none, G, h, solver_tol=1e-6)[0])

    def solve(problem: Quadratic) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(compiled(problem.q, _one_sided(problem)[1]))

    return solve


MAKERS: dict[str, Callable[[Quadratic], Solve]] = {
    "planner": _planner,
    "osqp": _osqp,
    "clarabel": _clarabel,
    "qpax": _qpax,
}
