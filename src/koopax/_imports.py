"""Modules that a user names on the command line."""

import importlib
import os
import sys
from types import ModuleType


def import_here(name: str) -> ModuleType:
    """Import a module from the path or, which the path of a command does not have, the working directory.

    The working directory comes last: a file in it does not take the place of an installed package.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    return importlib.import_module(name)
