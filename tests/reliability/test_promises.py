"""Every test that the page on reliability names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", (ROOT / "docs" / "reliability.md").read_text())


def test_the_page_names_tests():
    assert len(NAMED) > 30


@pytest.mark.parametrize(("file", "test"), NAMED, ids=lambda part: part.rpartition("/")[2])
def test_the_test_exists(file, test):
    assert re.search(rf"^def {test}\(", (ROOT / file).read_text(), re.MULTILINE)
