"""Every code block of the README runs."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_python_block(code, tmp_path, monkeypatch, unchecked_shapes):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KOOPAX_DATA", str(tmp_path / "data"))
    exec(compile(code, str(README), "exec"), {})


def test_there_are_blocks():
    assert len(BLOCKS) >= 2
