"""Puts measured results into the site as they stand in `results/`: no number is copied by hand.

A page asks for an experiment by a line `<!-- results: NAME -->`. It becomes the table that `koopax reproduce` wrote to
`results/NAME/cpu/table.md`, the figure beside it and where it was measured, or a note that it is not measured yet.
`<!-- results: NAME ROUND -->` is for an earlier measurement, kept in `results/NAME/ROUND`.
"""

import json
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

RESULTS = Path(__file__).parents[1] / "results"
MARKER = re.compile(r"^<!-- results: ([a-z-]+)(?: ([a-z-]+))? -->$", re.MULTILINE)
# Of a budget that costs hours; `smoke` only shows that an experiment runs.
BUDGET = "cpu"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the figures of all results to the site."""
    for figure in sorted(RESULTS.glob("*/*/figure.png")):
        name, budget = figure.parts[-3:-1]
        files.append(File.generated(config, f"figures/{name}-{budget}.png", abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the results that a page asks for."""
    return MARKER.sub(lambda match: section(match[1], match[2] or BUDGET), markdown)


def section(name: str, budget: str = BUDGET) -> str:
    """What is known of one experiment, as Markdown below a heading of the second level."""
    if name == "experts":
        return experts()
    if name == "reliability":
        return reliability()
    if name == "scaling":
        return scaling()
    folder = RESULTS / name / budget
    if not (folder / "table.md").is_file():
        return (
            f"!!! note\n    Not measured yet at the budget `{BUDGET}`: "
            f"`koopax reproduce {name} --budget {BUDGET}` writes the table that belongs here."
        )
    table = re.sub(r"^(#+) ", r"##\1 ", (folder / "table.md").read_text(), flags=re.MULTILINE)
    parts = [table.strip()]
    if (folder / "figure.png").is_file():
        parts.append(f"![{name}](figures/{name}-{budget}.png)")
    if (folder / "summary.json").is_file():
        parts.append(measured_on(json.loads((folder / "summary.json").read_text())))
    return "\n\n".join(parts)


def measured_on(summary: dict) -> str:
    """One line on where numbers come from."""
    machine, versions = summary.get("machine", {}), summary.get("versions", {})
    commit = (summary.get("commit") or "unknown")[:10]
    packages = ", ".join(f"{name} {versions[name]}" for name in ("jax", "mujoco", "python") if name in versions)
    return f"*Measured on {machine.get('processor')}, {machine.get('cores')} cores; {packages}; commit `{commit}`.*"


def experts() -> str:
    """The returns of the shipped policies."""
    lines = ["| environment | expert | medium | environment steps of the expert |", "|---|--:|--:|--:|"]
    for path in sorted((RESULTS / "experts").glob("*.json")):
        found = json.loads(path.read_text())
        expert, medium = found["policies"]["expert"], found["policies"]["medium"]
        returns = f"{expert['return_mean']:.0f} | {medium['return_mean']:.0f}"
        lines.append(f"| {found['config']['env']} | {returns} | {expert['steps']} |")
    return "\n".join(lines)


def reliability() -> str:
    """What the long runs of `make storm`, `fuzz`, `load` and `versions` found."""
    tables = {"storm": _storm, "fuzz": _fuzz, "load": _load, "versions": _versions}
    parts = []
    for name, table in tables.items():
        path = RESULTS / "reliability" / f"{name}.json"
        if path.is_file():
            found = json.loads(path.read_text())
            told = f"By `{found['command']}`, commit `{str(found['commit'])[:12]}`."
            parts += [f"### `make {name}`", table(found), told]
        else:
            parts += [f"### `make {name}`", "!!! note\n    Not measured yet."]
    return "\n\n".join(parts)


def _rows(head: tuple[str, ...], rows: list[list[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def scaling() -> str:
    """What `koopax bench disk` and `koopax bench hosts` found."""
    parts = []
    for name, told in {"disk": _disk, "hosts": _hosts}.items():
        path = RESULTS / "scaling" / f"{name}.json"
        if path.is_file():
            found = json.loads(path.read_text())
            parts += [told(found), f"Load of the machine {found['load_average']:.1f}. {measured_on(found)}"]
        else:
            parts.append(f"!!! note\n    Not measured yet: `koopax bench {name} --out results/scaling/{name}.json`.")
    return "\n\n".join(parts)


def _disk(found: dict) -> str:
    taken, settings = found["milliseconds"], found["settings"]
    rows = [["in memory", f"{taken['memory']:.1f}", "100 %"]]
    rows += [
        [f"{settings['bytes'] / 1e9:.1f} GB on disk", f"{taken['disk']:.1f}", f"{100 * found['speed_of_memory']:.0f} %"]
    ]
    note = (
        f"In a process that may take {settings['memory_gibibytes']:g} GiB, of which it held "
        f"{found['own_memory_bytes'] / 2**20:.0f} MiB; {found['read_from_disk_bytes'] / 1e6:.0f} MB came from the disk."
    )
    return _rows(("data", "ms per step", "speed"), rows) + f"\n\n{note}"


def _hosts(found: dict) -> str:
    rates, size = found["windows_per_second"], found["settings"]["batch_size"]
    rows = [["1", size, f"{rates['1']:.0f}", "100 %"]]
    rows += [["2", 2 * size, f"{rates['2']:.0f}", f"{100 * found['weak_scaling']:.0f} %"]]
    return _rows(("processes, a core each", "batch", "windows per second", "of that many alone"), rows)


def _storm(found: dict) -> str:
    rows = [
        [
            name,
            job["rounds"],
            *(job["ended_by"].get(each, 0) for each in ("SIGKILL", "SIGINT", "SIGTERM")),
            job["compared"],
        ]
        for name, job in found["jobs"].items()
    ]
    return _rows(("work", "rounds", "SIGKILL", "SIGINT", "SIGTERM", "equal to the undisturbed run"), rows)


def _fuzz(found: dict) -> str:
    columns = ("inputs", "read", "refused", "failed")
    rows = [[name, *(f"{loader[each]:,}" for each in columns)] for name, loader in found["loaders"].items()]
    rows.append(["**all**", *(f"**{found['totals'][each]:,}**" for each in columns)])
    table = _rows(("loader", "inputs", "read", "refused in a sentence", "anything else"), rows)
    if guided := found.get("guided"):
        count = sum(each["inputs"] for each in guided.values())
        table += f"\n\nBesides, atheris chose {count:,} inputs of {len(guided)} loaders by what they reach."
    if mended := sum(map(len, found.get("mended", {}).values())):
        table += f"\n\n{mended} of these inputs had come out as something else before they were mended."
    return table


def _load(found: dict) -> str:
    memory = found["megabytes"]
    return (
        f"{found['rollouts']:,} rollouts of {found['shapes']:,} shapes in {found['threads']} threads: "
        f"{found['programs_made']} programs; {found['megabytes_with_all_programs']:.0f} MB once all are there, "
        f"{memory[len(memory) // 2 - 1]:.0f} MB after half of the rollouts, {memory[-1]:.0f} MB at the end."
    )


def _versions(found: dict) -> str:
    tried = [name for name in ("lowest", "newest") if name in found]
    names = list(found[tried[0]]["versions"])
    table = _rows(("package", *tried), [[name, *(found[each]["versions"][name] for each in tried)] for name in names])
    if "demo" in found:
        table += f"\n\nThe demo ran from the wheel with {found['demo']['packages']} packages installed."
    return table
