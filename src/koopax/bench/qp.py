"""Which solver the convex program of a constrained plan has: DAQP, OSQP, Clarabel and qpax on the same problems.

The problems are those of a double integrator on its way to a wall, with a speed limit that is active for most of the
way, one decision after another, as `koopax plan --planner qp` has them: matrices stay, the rest moves. DAQP and OSQP
begin at the last solution, the others anew. DAQP, which the planner uses, knows what a soft bound is; for the others
every soft bound becomes two, with a variable for how far it is left.
"""

import importlib
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
from koopax.planning.convex import DAQP, INFINITE, PENALTY, ROUNDING_WEIGHT, Program, Quadratic
from koopax.planning.protocol import Box

PLANT = "double-integrator"
BOUNDS = (-1.0, 1.0, -0.6, 0.6)
GOAL = (0.95, 0.0)
START = (-0.8, 0.0)
SOLVERS = ("daqp", "osqp", "clarabel", "qpax")
# OSQP's, with which its first actions are as exact as a plant can tell.
ACCURACY = 1e-6
MOST_ITERATIONS = 4_000
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
        solvers = {name: MAKERS[name](program, problems[0]) for name in SOLVERS if importlib.util.find_spec(name)}
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
    row: dict[str, Any] = {"solver": name, "horizon": horizon, "variables": program.actions, "bounds": program.rows}
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
    free = np.stack([np.linalg.matrix_power(A, step + 1) for step in range(horizon)])
    problems = []
    solver, state, last = DAQP(program.soft), np.array(START), np.full(1, np.nan)
    for number in range(count):
        q, low, high = program.vectors(jacobian, free @ state, last)
        problems.append(Quadratic(P, q, rows, low, high))
        force = solver.solve(problems[-1], np.zeros(program.rows)).x[0] * plant.force
        state = A @ state + B * force
        if number % 60 == 59:
            state = np.array(START) * (1 - 0.1 * (number // 60))
    return program, problems


def with_slacks(problem: Quadratic, soft: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """P, q, G and h of min ½ xᵀ P x + qᵀ x, G x ≤ h, with a variable ε ≥ 0 for each soft bound behind the others."""
    size, slacks = len(problem.q), int(soft.sum())
    P = np.zeros((size + slacks,) * 2)
    P[:size, :size], P[size:, size:] = problem.P, 2 * ROUNDING_WEIGHT * np.eye(slacks)
    rows = np.concatenate([np.eye(size), problem.A])
    left = np.zeros((len(rows), slacks))
    left[np.flatnonzero(soft), np.arange(slacks)] = -1.0
    above, below = np.isfinite(problem.high), np.isfinite(problem.low)
    positive = np.concatenate([np.zeros((slacks, size)), -np.eye(slacks)], axis=1)
    G = np.concatenate(
        [np.concatenate([rows, left], axis=1)[above], np.concatenate([-rows, left], axis=1)[below], positive]
    )
    h = np.concatenate([problem.high[above], -problem.low[below], np.zeros(slacks)])
    return P, np.concatenate([problem.q, np.full(slacks, PENALTY)]), G, h


def _daqp(program: Program, first: Quadratic) -> Solve:
    del first
    solver, dual = DAQP(program.soft), np.zeros(program.rows)

    def solve(problem: Quadratic) -> np.ndarray:
        nonlocal dual
        found = solver.solve(problem, dual)
        dual = found.dual
        return found.x

    return solve


def _osqp(program: Program, first: Quadratic) -> Solve:
    import osqp
    from scipy import sparse

    P, q, G, h = with_slacks(first, program.soft)
    solver = osqp.OSQP()
    matrices = sparse.csc_matrix(np.triu(P)), q, sparse.csc_matrix(G), np.full(len(h), -INFINITE), h
    solver.setup(*matrices, verbose=False, eps_abs=ACCURACY, eps_rel=ACCURACY, max_iter=MOST_ITERATIONS)

    def solve(problem: Quadratic) -> np.ndarray:
        _, q, _, h = with_slacks(problem, program.soft)
        solver.update(q=q, u=h)
        return np.asarray(solver.solve(raise_error=False).x)

    return solve


def clarabel_solution(problem: Quadratic, soft: np.ndarray) -> np.ndarray | None:
    """By an interior-point method, to many digits; None where there is no solution."""
    from scipy import sparse

    clarabel: Any = importlib.import_module("clarabel")  # which has no types
    P, q, G, h = with_slacks(problem, soft)
    options = clarabel.DefaultSettings()
    options.verbose = False
    matrices = sparse.csc_matrix(np.triu(P)), q, sparse.csc_matrix(G), h
    found = clarabel.DefaultSolver(*matrices, [clarabel.NonnegativeConeT(len(h))], options).solve()
    return np.asarray(found.x, float) if str(found.status) in ("Solved", "AlmostSolved") else None


def _clarabel(program: Program, first: Quadratic) -> Solve:
    del first

    def solve(problem: Quadratic) -> np.ndarray:
        found = clarabel_solution(problem, program.soft)
        assert found is not None, "soft bounds have a solution"
        return found

    return solve


def _qpax(program: Program, first: Quadratic) -> Solve:
    import qpax

    P, _, G, _ = with_slacks(first, program.soft)
    with jax.enable_x64(True):
        cost, rows = jnp.asarray(P, jnp.float64), jnp.asarray(G, jnp.float64)
        none = jnp.zeros((0, len(P))), jnp.zeros(0)
        compiled = jax.jit(lambda q, h: qpax.solve_qp(cost, q, *none, rows, h, solver_tol=ACCURACY)[0])

    def solve(problem: Quadratic) -> np.ndarray:
        _, q, _, h = with_slacks(problem, program.soft)
        with jax.enable_x64(True):
            return np.asarray(compiled(q, h))

    return solve


MAKERS: dict[str, Callable[[Program, Quadratic], Solve]] = {
    "daqp": _daqp,
    "osqp": _osqp,
    "clarabel": _clarabel,
    "qpax": _qpax,
}
