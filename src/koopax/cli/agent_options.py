"""What the commands of agents share: which agent a folder holds, and options that a resumed run may not change."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koopax._errors import KoopaxError, unknown_name
from koopax.cli.options import parse_options

if TYPE_CHECKING:
    from koopax.agents.config import AgentConfig


def kind_of(folder: Path) -> str | None:
    """Which agent a folder holds a run of; None where it is no run folder."""
    from koopax.agents.run import holds_run, read_document

    return read_document(folder).get("kind") if holds_run(folder) else None


def refuse_changes(asked: dict[str, Any], recorded: "AgentConfig", out: Path, task: str | None) -> None:
    """Raise if a run is asked to be another when it is resumed, or wants a module imported that nobody typed."""
    from koopax.envs import refuse_module

    for name, value in asked.items():
        was = getattr(recorded, name)
        if value != was:
            option = {"env": "task", "runs": "in"}.get(name, name).replace("_", "-")
            raise KoopaxError(
                f"--{option} {value} differs from the {was} of {str(out)!r}: a resumed run keeps its own, leave it out."
            )
    if task is None:
        name = recorded.environment
        refuse_module(name, f"the run {str(out)!r}", f"add --task {name} if you trust it")


def agent_options(flags: Sequence[Sequence[str]], flagged: Sequence[str]) -> dict[str, Any]:
    """Settings of `TDMPCConfig` by `--option`; those of the core are named core.NAME."""
    from koopax._untrusted import from_json
    from koopax.agents import TDMPCConfig

    refused = {name: f"use --{name.replace('_', '-')}, or core.NAME for the core's own" for name in flagged}
    options = parse_options(flags, example="plan_lambda=0.8", refused=refused)
    core = {name.removeprefix("core."): value for name, value in options.items() if name.startswith("core.")}
    own = {name: value for name, value in options.items() if not name.startswith("core.")}
    known = [field.name for field in dataclasses.fields(TDMPCConfig) if field.name not in flagged]
    for name, value in own.items():
        if name not in known:
            raise unknown_name("option", name, known)
        if type(value) is int and isinstance(getattr(TDMPCConfig, name), float):
            own[name] = float(value)
        try:
            from_json(TDMPCConfig, {name: own[name]})
        except TypeError as error:
            raise KoopaxError(f"--option {name}: {error}, which it can't be; write a value of its kind.") from error
    return own | ({"core_options": tuple(core.items())} if core else {})


def given_alone(options: dict[str, Any]) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}
