"""Every code block of README and docs runs, at a small size, and every command they mention exists."""

import contextlib
import io
import re
import sys
from functools import cache
from unittest import mock

import pytest
from pages import OUTPUT, PAGES, ROOT, Reader, blocks, without_blocks

from koopax.cli import main
from koopax.models.latent import CORES

COMMAND = re.compile(r"^(?:\$ )?(?:koopax|python|pip|make|mkdocs) ", re.MULTILINE)
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]
# Pages whose quick blocks together take ten seconds or more; README stands for them.
LONG_PAGES = (
    "tutorial",
    "mathematics",
    *(f"howto/{name}" for name in ("sensors", "export", "control", "uncertainty", "simulator")),
    *(f"howto/{name}" for name in ("environment", "resume", "seeds")),
)
LONG = {f"docs/{page}.md" for page in LONG_PAGES}
SLOW = [name for name in NAMES if any(block.slow for block in blocks(ROOT / name))]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """One folder of datasets for all pages, so that each is collected once."""
    return tmp_path_factory.mktemp("data")


def follow(name, tmp_path, data, monkeypatch, *, slow):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KOOPAX_DATA", str(data))
    monkeypatch.syspath_prepend(tmp_path)
    reader, loaded, cores = Reader(tmp_path, data), set(sys.modules), dict(CORES)
    try:
        for block in blocks(ROOT / name):
            if not block.skip and (slow or not block.slow):
                reader.follow(block)
    finally:
        taken = [core for core in cores if CORES[core] != cores[core]]
        for core in set(CORES) - set(cores):  # a page registers one of its own
            del CORES[core]
        CORES.update(cores)
        for module in set(sys.modules) - loaded:
            if str(getattr(sys.modules[module], "__file__", None)).startswith(str(tmp_path)):
                del sys.modules[module]
    assert not taken, f"{name} takes the name of a core that koopax has: {taken}"


# Models that are trained for two steps have every reason to warn.
@pytest.mark.filterwarnings("default::koopax._errors.KoopaxWarning")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in NAMES if blocks(ROOT / name)],
)
def test_blocks(name, tmp_path, data, monkeypatch, unchecked_shapes):
    follow(name, tmp_path, data, monkeypatch, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_slow_blocks(name, tmp_path, data, monkeypatch, unchecked_shapes):
    follow(name, tmp_path, data, monkeypatch, slow=True)


@pytest.mark.parametrize("name", NAMES)
def test_no_block_is_left_out_in_silence(name):
    for block in blocks(ROOT / name):
        assert block.language in ("python", "bash", *OUTPUT), f"{block}: nobody runs {block.language!r}"
        assert block.small
        if block.language in OUTPUT:
            assert not COMMAND.search(block.code), f"{block}: a command is marked as output"
    indented = re.findall(r"^    +(?:koopax|python|pip|make) .*", without_blocks(ROOT / name), re.MULTILINE)
    assert not indented, f"{name}: put commands into a fenced block: {indented}"


def test_readme_has_blocks():
    languages = [block.language for block in blocks(ROOT / "README.md")]
    assert languages.count("python") >= 2
    assert languages.count("bash") >= 2


@cache
def help_of(words):
    """What `koopax WORDS --help` prints; that of a group, where there is no such command in it."""
    printed = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["koopax", *words, "--help"]),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        main()
    return printed.getvalue()


GROUPS = ("data", "bench", "agent")


def command_words(command):
    """The words of a command that name it: two in a group, three for `agent train`."""
    words = [word for word in command.split()[1:] if re.fullmatch("[a-z-]+", word) and not word.startswith("-")]
    count = 3 if words[:2] == ["agent", "train"] else 2 if words[:1] and words[0] in GROUPS else 1
    return tuple(words[:count])


def mentioned():
    """Every inline `koopax …` and every command line in a block, with its page."""
    found = []
    for path in PAGES:
        code = "\n".join(b.code for b in blocks(path) if b.language == "bash").replace("\\\n", " ")
        lines = re.findall(r"^koopax .*$", code, re.MULTILINE)
        inline = re.findall(r"`(koopax [^`\n]+)`", without_blocks(path).replace("\n", " "))
        found += [(str(path.relative_to(ROOT)), line) for line in (*lines, *inline)]
    return sorted(set(found))


@pytest.mark.parametrize(("page", "command"), mentioned())
def test_commands_exist_with_their_options(page, command):
    words = command_words(command)
    text = help_of(words)
    assert f"usage: {' '.join(('koopax', *words))} " in text, f"{page}: there is no such command"
    command = command.split(" #")[0]
    for option in re.findall(r"(?<= )--[a-z-]+", command):
        known = re.search(rf"{option}(?![a-z-])", text) or option in ("--help",)
        assert known, f"{page}: koopax {' '.join(words)} has no {option}"
