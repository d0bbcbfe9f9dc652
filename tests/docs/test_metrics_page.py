"""Every metric that is logged is explained."""

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from koopax.agents.run import Progress
from koopax.agents.tdmpc.config import LOSS_TERMS
from koopax.training.config import TrainConfig
from koopax.training.state import no_sums

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
AGENTS = ROOT / "src" / "koopax" / "agents"


def section(heading):
    found = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert found, heading
    return set(re.findall(r"`([a-z_]+)`", found[1]))


def keys(file, *functions):
    """The string keys of all dictionaries that these functions write out."""
    nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]
    chosen = [node for node in nodes if node.name in functions]
    assert len(chosen) == len(functions), functions
    dictionaries = [node for function in chosen for node in ast.walk(function) if isinstance(node, ast.Dict)]
    return {key.value for node in dictionaries for key in node.keys if isinstance(key, ast.Constant)}


@pytest.mark.parametrize(
    ("heading", "logged"),
    [
        (
            "Training a model",
            {"step", "seconds", *no_sums(TrainConfig()), "validation_state", "validation_reward"},
        ),
        (
            "Every agent",
            {
                *(field.name for field in dataclasses.fields(Progress)),
                *(name for name in keys(AGENTS / "sac" / "train.py", "_evaluate") if name.startswith("evaluation")),
                *(name for name in keys(AGENTS / "tdmpc" / "train.py", "_report") if name.startswith("evaluation")),
            },
        ),
        (
            "TD-MPC",
            {
                *keys(AGENTS / "tdmpc" / "train.py", "_remember"),
                *keys(AGENTS / "tdmpc" / "agent.py", "update"),
                *(f"{term}_loss" for term in LOSS_TERMS),
            },
        ),
        (
            "SAC",
            {
                *keys(AGENTS / "sac" / "agent.py", "update_critics", "update_actor"),
            },
        ),
        (
            "SAC in imagination",
            {
                *keys(AGENTS / "imagination" / "train.py", "_loop", "_dispatch"),
                *(keys(AGENTS / "imagination" / "agent.py", "_update_actor") - {"entropy", "temperature"}),
                "environment_steps",
            },
        ),
    ],
)
def test_logged_metrics_are_explained(heading, logged):
    assert len(logged) >= 5
    assert logged <= section(heading), sorted(logged - section(heading))
