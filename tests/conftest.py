"""Settings for every test: deterministic hypothesis runs and shapes checked at run time by jaxtyping and beartype."""

import os
import re
import shutil
import signal
import tempfile

# In the background a shell has Ctrl-C ignored, and programs hand that on to those they start: tests press it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of a test's time is compilation: code that runs once need not be the fastest.
QUICKLY = ("backend_optimization_level=0", "llvm_disable_expensive_passes=true", "cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(f"--xla_{flag}" for flag in QUICKLY))
# Workers and command lines compile much the same: what one has compiled, the others load.
SHARED = None if "JAX_COMPILATION_CACHE_DIR" in os.environ else tempfile.mkdtemp(prefix="koopax-tests-")
if SHARED is not None:
    os.environ |= {"JAX_COMPILATION_CACHE_DIR": SHARED, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}

from jaxtyping import install_import_hook  # noqa: E402

# Before any koopax module is imported, so that every annotated shape is enforced in the tests.
install_import_hook("koopax", "beartype.beartype")

import jax  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("koopax", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("koopax")


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(items):
    """`quick(pattern)` leaves the parameters whose ids don't match to the slow suite."""
    for item in items:
        mark = item.get_closest_marker("quick")
        if mark is not None and not re.search(mark.args[0], item.callspec.id):
            item.add_marker("slow")


@pytest.fixture
def unchecked_shapes():
    """Switch the run-time checks off, to see what a user sees who passes a wrong shape."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def own_folders(tmp_path_factory, monkeypatch):
    """Datasets and the working folder are the test's own: nothing of the user's is touched or left in the checkout."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("minari")))
    monkeypatch.setenv("KOOPAX_DATA", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.chdir(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module", autouse=True)
def forget_compilations():
    """A process may map only so many pieces of compiled code, and the whole suite makes more than that."""
    yield
    jax.clear_caches()


def pytest_sessionfinish():
    """The process that started the workers made the folder, outlives them and takes it away."""
    if SHARED is not None:
        shutil.rmtree(SHARED, ignore_errors=True)
