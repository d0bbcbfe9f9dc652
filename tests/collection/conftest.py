import pytest


@pytest.fixture(autouse=True)
def _own_folders(own_folders):
    """For every test here."""
