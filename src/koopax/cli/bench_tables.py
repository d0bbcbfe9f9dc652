"""What `koopax bench` found, as tables for the terminal."""

from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table


def recurrence_table(found: dict[str, Any]) -> Table:
    """What `koopax bench recurrence` found, the fastest method of each horizon in bold."""
    ((platform, timings),) = found["platforms"].items()
    methods = next(iter(timings.values()))
    shown = Table("horizon", *(f"{method} (ms)" for method in methods), title=f"{found['what']}, {platform}")
    for horizon, by_method in timings.items():
        best = min(by_method.values())
        shown.add_row(horizon, *(f"[bold]{ms}[/]" if ms == best else str(ms) for ms in by_method.values()))
    return shown


def start_table(found: dict[str, Any]) -> Table:
    """What `koopax bench start` found: seconds by the clock, and of the processor, of a first and a second run."""
    shown = Table("command", "first run (s)", "second run (s)", "processor, first", "processor, second")
    for row in found["results"]:
        cells = [row[run][kind] for kind in ("seconds", "processor_seconds") for run in ("first", "second")]
        shown.add_row(row["command"], *(f"{seconds:.1f}" for seconds in cells))
    return shown


def rollout_table(found: dict[str, Any]) -> Table:
    """What `koopax bench rollout` found: milliseconds and their ratio to the MLP's, a line per core."""
    title = f"{found['results'][0]['samples']} action sequences from one state, latent size {found['latent_size']}"
    groups = list(dict.fromkeys((row["horizon"], row["decode"]) for row in found["results"]))
    shown = Table("core", *(f"{t} steps{', decoded' if d else ''}" for t, d in groups), "parameters", title=title)
    for core in dict.fromkeys(row["core"] for row in found["results"]):
        mine = {(row["horizon"], row["decode"]): row for row in found["results"] if row["core"] == core}
        cells = [
            f"{mine[g]['ms']:.3g} ms" + ("" if (r := mine[g]["time_over_mlp"]) is None else f" (× {r:.2g})")
            for g in groups
        ]
        shown.add_row(core, *cells, f"{mine[groups[0]]['parameters']:,}")
    return shown


def plan_table(found: dict[str, Any]) -> Group:
    """What `koopax bench plan` found: milliseconds per decision and their parts, a line per core and horizon."""
    return Group(_parts_table(found), *([_decisions_table(found["planners"])] if found["planners"] else []))


def _decisions_table(rows: list[dict[str, Any]]) -> Table:
    """Percentiles of a decision of every planner."""
    shown = Table("planner", "model", "p50", "p99", "processor p50", "p99", title="milliseconds, one environment")
    for row in rows:
        numbers = (row[name] for name in ("p50_ms", "p99_ms", "processor_p50_ms", "processor_p99_ms"))
        shown.add_row(row["planner"], row["model"], *(f"{number:.2f}" for number in numbers))
    shown.caption = f"load {rows[0]['load']}"
    return shown


def qp_table(found: dict[str, Any]) -> Table:
    """What `koopax bench qp` found."""
    shown = Table("solver", "steps", "p50", "p99", "processor p50", "p99", "first action", title="milliseconds")
    for row in found["results"]:
        numbers = (row[name] for name in ("p50_ms", "p99_ms", "processor_p50_ms", "processor_p99_ms"))
        away = row["first_action_from_clarabel"]
        told = "–" if away is None else f"{away:.1g}"
        shown.add_row(row["solver"], str(row["horizon"]), *(f"{number:.2f}" for number in numbers), told)
    shown.caption = "first action: how far from Clarabel's at most, in units of the bounds"
    return shown


def _parts_table(found: dict[str, Any]) -> Table:
    ratio, names = found["koopman_20_over_mlp_5"], list(found["results"][0]["parts"])
    shown = Table("core", "steps", "ms", *names, title="milliseconds per decision")
    for row in found["results"]:
        parts = (f"{row['parts'][part]:.2f}" for part in names)
        shown.add_row(row["core"], str(row["horizon"]), f"[bold]{row['ms_per_decision']:.2f}[/]", *parts)
    if ratio is not None:
        shown.caption = f"koopman with 20 steps takes {ratio:.2f} times as long as mlp with 5"
    return shown


def data_table(found: dict[str, Any]) -> Table:
    """What `koopax bench data` found."""
    settings = found["settings"]
    shown = Table("what", "median", box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_row(f"load a D4RL file of {settings['steps']} steps", f"{found['load_seconds']:.3g} s")
    shown.add_row(
        f"draw {settings['batch_size']} windows of {settings['horizon']} steps",
        f"{found['sample_milliseconds']:.3g} ms",
    )
    shown.add_row(f"a training step of {settings['model']} on them", f"{found['training_step_milliseconds']:.3g} ms")
    shown.add_row("drawing, as a share of the step", f"{100 * found['sample_share_of_step']:.2g} %")
    return shown


def gains_table(found: dict[str, Any]) -> Table:
    """What `koopax bench gains` found: a training step with each choice undone, and with it."""
    title = f"a training step, batch {found['batch_size']}, {found['horizon']} steps"
    shown = Table("choice", "undone", "as it is", title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in found["arms"].values():
        if row["what"]:
            after = row["milliseconds"] / row["slower_by"]
            shown.add_row(row["what"], f"{row['milliseconds']:.0f} ms", f"{after:.0f} ms")
    return shown


def sac_table(found: dict[str, Any]) -> Table:
    """What `koopax bench sac` found."""
    heads = ("environment", "critic norm", "updates per step", "updates per second", "spread", "in environments")
    shown = Table(*heads, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in found["results"]:
        low, high = row["spread"]
        rates = (
            f"{row['updates_per_second']:.0f}",
            f"{low:.0f} to {high:.0f}",
            f"{100 * row['environment_share']:.0f} %",
        )
        shown.add_row(row["env"], row["critic_norm"], f"{row['updates_per_step']:g}", *rates)
    return shown


def pixels_table(found: dict[str, Any]) -> Table:
    """What `koopax bench pixels` found."""
    heads = ("arm", "decision, ms", "act", "draw", "sample", "learn", "over sac", "100k steps, minutes")
    shown = Table(*heads, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in found["results"]:
        parts = [f"{row['parts_ms'][part]:.1f}" for part in ("act", "draw", "sample", "learn")]
        ratio = found["ratios"].get(f"{row['arm']} / sac")
        over = "" if ratio is None else f"{ratio:.2f}"
        shown.add_row(row["arm"], f"{row['decision_ms']:.1f}", *parts, over, f"{row['minutes_per_100k_steps']:.0f}")
    return shown


def simulator_table(found: dict[str, Any]) -> Table:
    """What `koopax bench simulator` found."""
    shown = Table("simulator", "copies", "steps per second", "spread", "× environment", box=box.SIMPLE_HEAD)
    for row in found["results"]:
        low, high = row["spread"]
        rates = (f"{row['steps_per_second']:,.0f}", f"{low:,.0f} to {high:,.0f}", f"{row['over_environment']:.2g}")
        shown.add_row(row["simulator"], str(row["copies"]), *rates)
    return shown


def export_speed_table(found: dict[str, Any]) -> Table:
    """What `koopax bench export` found."""
    heads = ("model", "form", "microseconds per step", "spread", "bytes of constants", "of stack")
    shown = Table(*heads, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in found["results"]:
        low, high = row["spread"]
        memory = [f"{row[name]:,}" if name in row else "" for name in ("constant_bytes", "stack_bytes")]
        shown.add_row(
            row["model"], row["form"], f"{row['microseconds_per_step']:.3g}", f"{low:.3g} to {high:.3g}", *memory
        )
    return shown
