"""Ways to make a long plan pay: TD-MPC's Koopman arm with one option changed at a time.

In every arm but "short plans" plans reach 20 steps after 4750 decisions, so that most of a run is planned that far. The
options that go beyond the horizon (normalised latents, more Q heads, more updates, a smaller reward head, which makes
long plans cheaper, twice the windows with values at fewer of their steps) are tried on the MLP arm as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from koopax.agents import tdmpc_arm
from koopax.experiments.agent_grid import AgentCell, run_agents
from koopax.experiments.experiment import Experiment
from koopax.experiments.planning import TINY, curves
from koopax.experiments.returns import names
from koopax.experiments.summaries import Summary, markdown

# Where the search began. Written out, so that arms stay what they were when the defaults change.
WIDTHS = (("action_hidden", (128,)), ("action_embedding", 32))
CONTEXT = (("context_size", 64), ("pilot_modes", None), *WIDTHS)
PILOT = (("context_size", 0), ("pilot_modes", 32), *WIDTHS)
BATCHES = {"batch_size": 64, "value_steps": 5}
WIDE = {"batch_size": 128, "value_steps": 2}
FIXED = {
    "horizon": 20,
    "plan_growth": 250,
    "plan_lambda": 1.0,
    "value_points": 1,
    "value_at": None,
    "decay": 0.5,
    "reader": None,
    "latent_norm": "none",
    "latent_bound": None,
    "value_head": None,
    "loss_steps": None,
    "reward_hidden": (256,),
    "proposals": 24,
    "core_rate": 3.0,
    "core_options": CONTEXT,
}
"""What the arms of the Koopman core have in common, unless it is what they change."""
BEYOND = {
    "SimNorm": {"latent_norm": "simplex", "consistency_weight": 20.0},
    "5 critics": {"critics": 5},
    "2 updates a decision": {"updates_per_decision": 2.0},
    "thin reward": {"reward_hidden": (128,)},
    "wide batches": WIDE,
    "wide batches, returns of 3": {**WIDE, "return_steps": 3},
}
PILOTED: Mapping[str, Mapping[str, Any]] = {
    "": {},
    ", lambda 0.8": {"plan_lambda": 0.8, "value_points": 4},
    ", trusted length": {"plan_trust": 0.3},
    ", short plans": {"plan_growth": 6_250},
    ", H=5": {"plan_growth": 6_250, "horizon": 5},
    ", SimNorm": BEYOND["SimNorm"],
    ", small latent": {"core_options": (*PILOT, ("pilot_modes", 16)), "latent_size": 64},
}
"""What is tried on top of a pilot and wide batches."""
READ = {
    **WIDE,
    "core_options": (*PILOT, ("pilot_modes", 16), ("action_hidden", (64,))),
    "core_rate": 1.0,
    "reader": (128, 64),
    "reward_hidden": (128,),
}
SHORT = {"plan_growth": 6_250}
SEVERAL_LENGTHS = {"plan_lambda": 0.7, "value_at": (1, 3, 7, 20)}
READING: Mapping[str, Mapping[str, Any]] = {
    "linear H=5": {**WIDE, **SHORT, "horizon": 5, "core_rate": 1.0, "core_options": (*PILOT, ("pilot_modes", None))},
    "reader H=5": {**READ, **SHORT, "horizon": 5},
    "reader, short plans": {**READ, **SHORT, "loss_steps": 8},
    "reader, lambda 0.7": {**READ, **SEVERAL_LENGTHS, "loss_steps": 8},
    "reader, lambda 0.7, value head": {**READ, **SEVERAL_LENGTHS, "loss_steps": 8, "value_head": (128,)},
    "reader, lambda 0.7, every step": {**READ, **SEVERAL_LENGTHS},
    "reader, lambda 0.7, rho 0.9": {**READ, **SEVERAL_LENGTHS, "loss_steps": 8, "decay": 0.9},
}
"""What values see is the latent, or read off it by a network; with losses at some steps of a window, or at all."""
CHEAP = {
    **READ,
    **SEVERAL_LENGTHS,
    "loss_steps": 8,
    "value_head": (128,),
    "reward_hidden": (64,),
    "proposals": 16,
    "core_options": (("pilot_modes", 16), ("action_hidden", (64,)), ("action_embedding", 16)),
    "latent_norm": "layer",
}
BOUNDED = {"latent_norm": "none", "latent_bound": 4.0}
MULTISTEP: Mapping[str, Mapping[str, Any]] = {
    "cheap": CHEAP,
    "cheap, returns of 3": {**CHEAP, "return_steps": 3},
    "cheap, returns of 5": {**CHEAP, "return_steps": 5},
    "cheap, bounded": {**CHEAP, **BOUNDED},
    "cheap, bounded, returns of 3": {**CHEAP, **BOUNDED, "return_steps": 3},
}
"""The arm of the comparison, with targets of several rewards, and bounded instead of normalised."""
KOOPMAN: Mapping[str, Mapping[str, Any]] = {
    **MULTISTEP,
    **READING,
    "grown": {},
    "lambda 0.8": {"plan_lambda": 0.8, "value_points": 4},
    "rho 0.9": {"decay": 0.9},
    "smooth noise": {"noise_exponent": 2.0},
    "fading noise": {"std_decay": 0.85},
    "fading noise, lambda 0.8": {"std_decay": 0.85, "plan_lambda": 0.8, "value_points": 4},
    "short plans": {"plan_growth": 6_250},
    "trusted length": {"plan_trust": 0.3},
    "narrow start": {"std_limit": 0.5},
    "pilot": {"core_options": PILOT},
    "pilot, lambda 0.8": {"core_options": PILOT, "plan_lambda": 0.8, "value_points": 4},
    "pilot, fading noise": {"core_options": PILOT, "std_decay": 0.85},
    **{f"pilot, wide batches{name}": {"core_options": PILOT, **WIDE, **changes} for name, changes in PILOTED.items()},
    "pilot H=5": {"core_options": PILOT, "horizon": 5, "plan_growth": 6_250},
    "bilinear": {"core_options": (*CONTEXT, ("bilinear", True))},
    "context refreshed": {"refresh_every": 5, "refresh": "context"},
    "latent renewed": {"refresh_every": 5, "refresh": "latent"},
    **BEYOND,
    "thin path": {
        "reward_hidden": (128,),
        "core_options": (*CONTEXT, ("action_hidden", (64,)), ("action_embedding", 16)),
    },
}
ARMS: dict[str, tuple[str, Mapping[str, Any]]] = {
    **{f"koopman {name}": ("koopman", {**FIXED, **changes}) for name, changes in KOOPMAN.items()},
    "mlp H=5": ("mlp", {"horizon": 5}),
    **{f"mlp H=5 {name}": ("mlp", {"horizon": 5, **changes}) for name, changes in BEYOND.items()},
}
SHOWN_STEPS = (1, 5, 10, 20)
"""Steps of a window of which the model's error is told."""


@dataclass(frozen=True)
class OptionsBudget:
    """The size of the comparison."""

    steps: int
    """Environment steps of each run."""
    tasks: tuple[str, ...] = ("cheetah-run", "quadruped-walk")
    """The tasks, the first one run first."""
    seeds: int = 2
    """Runs of each arm in each task."""
    arms: tuple[str, ...] = tuple(ARMS)
    """Arms by name, those that matter most first."""
    published: bool = False
    """TD-MPC's published networks and planner, or those for one CPU core."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the agent."""


BUDGETS = {
    "smoke": OptionsBudget(
        steps=2_000,
        tasks=("cheetah-run",),
        seeds=1,
        arms=("koopman grown", "koopman lambda 0.8", "koopman context refreshed", "mlp H=5 SimNorm"),
        changes=TINY,
    ),
    "cpu": OptionsBudget(
        steps=30_000,
        changes={**BATCHES, "evaluate_every": 10_000, "final_episodes": 5, "checkpoint_seconds": 60.0},
    ),
    "paper": OptionsBudget(steps=100_000, seeds=3, published=True),
}


def cells(budget: OptionsBudget) -> list[AgentCell]:
    """Every arm before the next task, every task before the next seed."""
    return [
        _cell(task, label, seed, budget)
        for seed in range(budget.seeds)
        for task in budget.tasks
        for label in budget.arms
    ]


def _cell(task: str, label: str, seed: int, budget: OptionsBudget) -> AgentCell:
    dynamics, changes = ARMS[label]
    # The sizes of a budget stand behind what an arm changes.
    settings = {**budget.changes, **changes, "steps": budget.steps, "task": task, "seed": seed}
    config = tdmpc_arm(dynamics, published=budget.published, **settings)
    return AgentCell(
        f"{task}-{label.replace(' ', '-').replace(',', '')}-seed{seed}",
        {"task": task, "arm": label, "seed": seed},
        config,
    )


def summarise(found: list[dict[str, Any]]) -> Summary:
    """For each task and arm: returns, plans and the model's error over the horizon at the end, means over seeds."""
    sections, document = [], {}
    for task in names(found, "task"):
        rows = []
        for label in names(found, "arm"):
            runs = [cell for cell in found if (cell["labels"]["task"], cell["labels"]["arm"]) == (task, label)]
            if runs:
                told = _mean([outcome(cell) for cell in runs])
                document.setdefault(task, {})[label] = {**told, "seeds": len(runs)}
                rows.append([label, *_texts(told), str(len(runs))])
        header = ["arm", "last evaluation", "mean training return", "plan", *(f"error at {k}" for k in SHOWN_STEPS)]
        sections.append(f"{task}:\n\n" + markdown([*header, "minutes", "seeds"], rows))
    return Summary("TD-MPC: one option at a time", sections, document)


def outcome(cell: dict[str, Any]) -> dict[str, Any]:
    """What a run reached: returns, its last plans, its model's last errors and how long it took."""
    after = cell["made_of"]["config"]["seed_decisions"]
    learned = [line["return"] for line in cell["curve"] if line["decisions"] > after]
    last = cell["curve"][-1] if cell["curve"] else {}
    errors = last.get("consistency_errors", [])
    return {
        "return": cell["return"],
        "training_return": float(np.mean(learned)) if learned else 0.0,
        "plan_length": last.get("plan_length"),
        "errors": {k: errors[k - 1] for k in SHOWN_STEPS if k <= len(errors)},
        "minutes": cell.get("seconds", 0.0) / 60,
    }


def _mean(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """The means of outcomes; a step that one of them has no error of is left out."""
    told = {
        name: float(np.mean([one[name] for one in outcomes if one[name] is not None] or [np.nan]))
        for name in ("return", "training_return", "plan_length", "minutes")
    }
    shared = [k for k in SHOWN_STEPS if all(k in one["errors"] for one in outcomes)]
    return {
        **told,
        "returns": [one["return"] for one in outcomes],
        "errors": {str(k): float(np.mean([one["errors"][k] for one in outcomes])) for k in shared},
    }


def _texts(told: dict[str, Any]) -> list[str]:
    returns = f"{told['return']:.0f}"
    if len(told["returns"]) > 1:
        returns += f" ({', '.join(f'{value:.0f}' for value in told['returns'])})"
    errors = [f"{told['errors'][str(k)]:.2f}" if str(k) in told["errors"] else "–" for k in SHOWN_STEPS]
    length = f"{told['plan_length']:.0f}" if np.isfinite(told["plan_length"]) else "–"
    return [returns, f"{told['training_return']:.0f}", length, *errors, f"{told['minutes']:.1f}"]


EXPERIMENT = Experiment(
    name="planning-options",
    budgets=BUDGETS,
    run=lambda budget, place: run_agents(cells(budget), place),
    summarise=summarise,
    figure=curves,
)
