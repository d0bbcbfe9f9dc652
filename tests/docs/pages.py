"""The code blocks of a Markdown page, and how each is run.

Blocks of a page run from top to bottom in one folder, as a reader would: Python blocks share their names, shell blocks
run in bash with the real command line, and a block with `title="name"` becomes the file of that name. Blocks marked
`text`, `json` or `bibtex` show output and are not run. A comment before a block changes how it is run here:

    <!-- test
    replace: --steps 2000 → --steps 4
    slow: trains for minutes
    skip: installs packages
    -->

`replace` makes it smaller and must match, `slow` leaves it to the slow tests, `skip` never runs it; the last two need
a reason. With KOOPAX_DOCS=full nothing is replaced.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OUTPUT = ("text", "json", "bibtex")
FENCE = re.compile(
    r"(?:^ *<!-- test\n(?P<directive>.*?)-->\n\s*?)?^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One block of code."""

    page: str
    line: int
    language: str
    title: str | None
    code: str
    replacements: tuple[tuple[str, str], ...] = ()
    slow: str | None = None
    skip: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def small(self) -> str:
        """The code as the tests run it."""
        code = self.code
        for old, new in self.replacements:
            if old not in code:
                raise ValueError(f"{self}: the directive replaces {old!r}, which the block does not have")
            code = code.replace(old, new)
        return self.code if os.environ.get("KOOPAX_DOCS") == "full" else code


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text, name = path.read_text(), str(path.relative_to(ROOT))
    return [_block(match, text, name) for match in FENCE.finditer(text)]


def _block(match: re.Match, text: str, name: str) -> Block:
    language, _, rest = match["info"].strip().partition(" ")
    title = re.search(r'title="([^"]+)"', rest)
    indent = len(match["indent"])
    code = "".join(line[indent:] if line.strip() else "\n" for line in match["body"].splitlines(keepends=True))
    line = text.count("\n", 0, match.start("info")) + 1
    options: dict = {}
    for given in filter(None, map(str.strip, (match["directive"] or "").splitlines())):
        kind, _, value = given.partition(": ")
        if kind == "replace" and " → " in value:
            old, _, new = value.partition(" → ")
            options["replacements"] = (*options.get("replacements", ()), (old, new))
        elif kind in ("slow", "skip") and value:
            options[kind] = value
        else:
            raise ValueError(f"{name}:{line}: {given!r} is not a directive")
    return Block(name, line, language, title and title[1], code, **options)


def without_blocks(path: Path) -> str:
    """The page's text with its blocks and comments taken out."""
    return re.sub(r"<!--.*?-->", "", FENCE.sub("", path.read_text()), flags=re.DOTALL)


class Reader:
    """Somebody who follows a page, in a folder."""

    def __init__(self, folder: Path, data: Path):
        self.folder = folder
        self.names: dict = {"__name__": "page"}
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "KOOPAX_DATA": str(data),
            "JAX_PLATFORMS": "cpu",
            # Pages train models of the same shapes, so that processes share what they compile.
            "JAX_COMPILATION_CACHE_DIR": str(data / "compilations"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
            "COLUMNS": "100",
        }

    def follow(self, block: Block) -> None:
        """Do what the block says."""
        if block.title is not None:
            (self.folder / block.title).write_text(block.small)
        elif block.language == "python":
            exec(compile(block.small, str(block), "exec"), self.names)
        elif block.language == "bash":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.small],
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=1800,
            )
            assert done.returncode == 0, f"{block}\n{block.small}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        elif block.language not in OUTPUT:
            raise ValueError(f"{block}: a block of {block.language!r} can't be run; mark output as {OUTPUT}")
