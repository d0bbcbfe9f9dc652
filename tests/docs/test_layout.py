"""The drawing of the layers in CONTRIBUTING is the tree, and pages import only what a user imports."""

import ast
import re

import pytest
from pages import PAGES, ROOT, blocks

from test_layers import LAYERS

SOURCE = ROOT / "src" / "koopax"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PUBLIC = {"agents", "collection", "data", "evaluation", "models", "planning", "training"}


def drawn_layers(text):
    """The layers of the drawing, left to right: the indented lines after the sentence that introduces it."""
    drawing = re.search(r"imports only from those to its left.*?:\n\n((?: {4}.*\n)+)", text)
    assert drawing
    return [set(re.findall(r"\w+", layer)) for layer in drawing[1].split("→")]


def test_the_drawing_is_the_tree():
    drawn = drawn_layers((ROOT / "CONTRIBUTING.md").read_text())
    assert drawn == LAYERS
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert set().union(*drawn) == modules | packages


def deep_imports(code):
    """What the code imports from koopax beyond the package and its public sub-packages."""
    for node in ast.walk(ast.parse(code)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            package, *inner = name.split(".")
            if package == "koopax" and inner and (len(inner) > 1 or inner[0] not in PUBLIC):
                yield name


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_import_what_a_user_imports(path):
    if path.suffix == ".py":
        assert not list(deep_imports(path.read_text()))
    else:
        for block in blocks(path):
            assert block.language != "python" or not list(deep_imports(block.code)), block


def test_deep_imports_are_found():
    code = "from koopax.models import preset\nfrom koopax.models.presets import preset\nimport koopax, koopax.cli"
    assert list(deep_imports(code)) == ["koopax.models.presets", "koopax.cli"]
