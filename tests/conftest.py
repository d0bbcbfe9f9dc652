"""Settings for every test: deterministic hypothesis runs and shapes checked at run time by jaxtyping and beartype."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from jaxtyping import install_import_hook

# Before any koopax module is imported, so that every annotated shape is enforced in the tests.
install_import_hook("koopax", "beartype.beartype")

import jaxtyping  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("koopax", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("koopax")


@pytest.fixture
def unchecked_shapes():
    """Switch the run-time checks off, to see what a user sees who passes a wrong shape."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
