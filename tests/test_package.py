"""What `import koopax` gives."""

import importlib
import subprocess
import sys
from importlib.metadata import version

import pytest

import koopax
from koopax.collection import collect
from koopax.planning.trained import control_trained
from koopax.reporting.build import write_report


@pytest.mark.parametrize("name", koopax.__all__)
def test_every_public_name_is_there(name):
    assert getattr(koopax, name) is not None
    assert name in dir(koopax)


def test_names_are_what_they_say():
    assert koopax.__version__ == version("koopax")
    assert koopax.collect is collect
    assert koopax.plan is control_trained
    assert koopax.report is write_report
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        koopax.plans  # noqa: B018


def test_importing_it_imports_nothing_heavy():
    script = "import sys, koopax; print(sorted({'jax', 'numpy', 'rich', 'tyro'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize(
    "package", ["agents", "collection", "data", "evaluation", "models", "planning", "training"], ids=str
)
def test_every_name_of_a_package_is_there(package):
    exported = importlib.import_module(f"koopax.{package}")
    assert dir(exported) == sorted(exported.__all__)
    assert all(getattr(exported, name) is not None for name in exported.__all__)
    with pytest.raises(AttributeError, match=rf"module 'koopax\.{package}' has no attribute 'nothing'"):
        exported.nothing  # noqa: B018
