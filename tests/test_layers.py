"""Data flows one way: a package imports only from those to its left."""

import ast
from pathlib import Path

import pytest

import koopax
from koopax.models.latent import CORES

ROOT = Path(koopax.__file__).parent
LAYERS = [
    {"_cache", "_errors", "_types"},
    {"_atomic", "_compilations", "_imports", "_interrupt", "_lazy", "_plots", "_progress", "_provenance", "_untrusted"},
    {"_npz"},
    {"_checkpoint", "_claim", "_cluster"},
    {"data", "envs"},
    {"collection"},
    {"models"},
    {"evaluation"},
    {"training"},
    {"exporting", "planning"},
    {"simulation"},
    {"agents"},
    {"bench"},
    {"experiments", "reporting"},
    {"cli"},
]
RANK = {package: rank for rank, layer in enumerate(LAYERS) for package in layer}


def imported_packages(path):
    """The koopax packages that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            is_root = node.module == "koopax"
            names = [f"koopax.{alias.name}" for alias in node.names] if is_root else [node.module]
        for name in names:
            parts = name.split(".")
            if parts[0] == "koopax" and len(parts) > 1:
                yield parts[1]


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_left(path):
    package = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if package == "__init__":
        return
    for imported in imported_packages(path):
        allowed = imported == package or RANK[imported] < RANK[package]
        assert allowed, f"{path.relative_to(ROOT)} imports koopax.{imported}"


def test_planners_know_no_core():
    """What they ask of one is a method of `LatentDynamics`."""
    cores = {place.split(":")[0] for place in CORES.values()}
    assert "koopax.models.koopman" in cores
    for path in (ROOT / "planning").glob("*.py"):
        modules = {node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}
        assert not modules & cores, f"{path.name} imports {modules & cores}"
