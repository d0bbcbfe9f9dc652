"""Command lines without a process of their own, where all that matters is what they refuse."""

import sys

import pytest

from koopax.cli import main
from koopax.cli.output import errors, results


@pytest.fixture
def refused(monkeypatch, capsys, unchecked_shapes):
    """A function of a folder and arguments: the one sentence that `koopax ARGUMENTS` says there before exit code 2."""

    def sentence(folder, arguments):
        errors.cache_clear()  # they would keep the streams from before the capture
        results.cache_clear()
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["koopax", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        said = capsys.readouterr().err
        assert caught.value.code == 2, said
        return " ".join(said.split())

    yield sentence
    errors.cache_clear()
    results.cache_clear()
