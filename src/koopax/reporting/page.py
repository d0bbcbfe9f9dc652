"""The page: one HTML file that asks nobody for anything."""

import base64
import hashlib
import html
import json
import re
from importlib import resources
from typing import Any

from koopax._errors import KoopaxError

LIMIT = 8_000_000
"""Bytes of a page, videos included."""


def page(document: dict[str, Any]) -> str:
    """The document as a self-contained page; where it would be too large, videos are left out, the last one first."""
    parts = {
        "title": html.escape(" and ".join(document["title"])),
        "heading": " and ".join(f'<span class="title-part">{html.escape(part)}</span>' for part in document["title"]),
        "subtitle": html.escape(document["subtitle"]),
        "reading": "\n".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in document["reading"]),
        "style": _asset("style.css"),
        "plotly": _plotly(),
        "script": "\n".join(["", '"use strict";', *map(_asset, ("elements.js", "charts.js", "sections.js"))]),
    }
    parts["hashes"] = " ".join(_hash(parts[name]) for name in ("plotly", "script"))
    empty = _fill(_asset("page.html"), parts | {"data": ""})
    room = LIMIT - len(empty.encode())
    while len((data := _embedded(document)).encode()) > room:
        filmed = [one for one in document["data"] if one.get("videos")]
        if not filmed:
            raise KoopaxError(f"the page would be larger than {LIMIT / 1e6:.0f} MB: report on fewer runs at once.")
        filmed[-1]["videos"].pop()
        filmed[-1]["video_note"] = f"A video was left out, to keep the page below {LIMIT / 1e6:.0f} MB."
    return _fill(_asset("page.html"), parts | {"data": data})


def _fill(template: str, parts: dict[str, str]) -> str:
    """Replace every {{name}} once; what is filled in is not searched again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _hash(script: str) -> str:
    """What the page's policy knows a script by: no other one may run, whatever names the data holds."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _embedded(document: dict[str, Any]) -> str:
    """JSON that can stand in a script element, whatever strings are in it."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _asset(name: str) -> str:
    return (resources.files("koopax.reporting") / "page" / name).read_text()


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise KoopaxError("the report needs plotly, which is not installed: pip install 'koopax[report]'.") from error
    return get_plotlyjs()
