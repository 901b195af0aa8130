"""Runs as one HTML page to mail: it loads nothing, and shows models' words as plain text.

The page is a fixed shell around the front end's module (``front/``) and a compressed ``Reading``.
It does not depend on the time of writing: the same runs give the same file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from markupsafe import Markup

from llmsim_lab._util.files import as_path, write_file
from llmsim_lab._util.html import safe
from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError
from llmsim_lab.run.reading import Reading

_FRONT = Path(__file__).parent / "front"
_MODULES = (
    "text",
    "dom",
    "reading",
    "fold",
    "chart",
    "calls",
    "network",
    "state",
    "turn",
    "compare",
    "form",
    "runs",
    "view",
)
_VIEWS = ("seat", "chat", "forest", "curve", "study", "prompts", "host")
"""In this order they are joined: a view uses those before it. A further view, which calls
``addView``, comes before ``host``; its style goes into ``_STYLES``."""
_STYLES = ("view", "form", "calls", "seat", "study")
_WINDOW = """<div id="page"></div>
<script type="application/octet-stream" id="reading">{reading}</script>
<script type="module">{script}</script>"""
_NO_SCRIPT = """<noscript><main>
  <p>A script in this page draws it, and none runs here: open the file in a browser.</p>
</main></noscript>"""
_MAIN = Markup('<main id="report">{}</main>')
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_COMMENT = re.compile(r"^ *(?://[^\n]*|/\*\*.*?\*/)\n", re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


# Cached, since each widget and each page has a copy.
@cache
def module() -> str:
    """Return the front end as one ES module: its files joined, without imports and comments.

    There is no build step: the files run as they are.
    """
    style = "".join(_front(f"{name}.css") for name in _STYLES)
    parts = [f"const CSS = {json.dumps(style)};"]
    for name in (*_MODULES, *_VIEWS):
        text = _front(f"{name}.js")
        # In one module the files see each other's names without imports and exports.
        text = _IMPORT.sub("", text)
        text = _EXPORT.sub("", text)
        # Comments on lines of their own would be a tenth of each page.
        parts.append(_COMMENT.sub("", text))
    return "\n".join(parts)


def write_page(
    path: str | Path,
    reading: Reading | None,
    *,
    start: int = 1,
    title: str = "",
    print_view: Markup | None = None,
) -> Path:
    """Write runs as one page, and return its path.

    Args:
        path: the file, which ends in ``.html``; an existing file is replaced.
        reading: the runs; None for a page with only the print view, which runs no script.
        start: the number of the run that is shown first.
        title: the title of the page; the reading's if not given.
        print_view: what is printed, and what is shown where no script runs. It must have no inline
            styles, which the page's policy forbids.

    Raises:
        ConfigError: the file cannot be written.
    """
    path = as_path("path", path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"a page is HTML, and {path.name!r} does not end in .html")
    if not title and reading is not None:
        title = reading.title
    # The page's policy allows only styles and scripts with these hashes.
    style = _front("page.css")
    if print_view is not None:
        style += _front("report.css")
    parts = {
        "title": safe(clip(title, 120)),
        "style": style,
        "style_hash": _hash(style),
        "version": version("llmsim-lab"),
        "images": "" if print_view is None else "; img-src data:",
        "print_view": _NO_SCRIPT if print_view is None else _MAIN.format(print_view),
        "script_source": "'none'",
        "window": "",
    }
    if reading is not None:
        script = f'{module()}\nmountPage(document.getElementById("page"));'
        parts["script_source"] = f"'{_hash(script)}'"
        parts["window"] = _WINDOW.format(
            reading=_packed(reading, start),
            script=script,
        )
    # All at once, since a text that is filled in may look like a place to fill.
    page = re.sub(
        r"{{ (\w+) }}",
        lambda match: str(parts[match[1]]),
        _front("page.html"),
    )
    # Complete before the file is opened, so that an error leaves the old file.
    return write_file(path, page.encode(errors="replace"))


def _front(name: str) -> str:
    return (_FRONT / name).read_text("utf-8")


def _packed(reading: Reading, start: int) -> str:
    """Return a reading, compressed, as letters that can stand in a page."""
    # All lines come first, since similar text compresses best side by side.
    lines: list[str] = []
    records: list[dict[str, object]] = []
    for record in reading.records:
        without_lines = dict(record)
        lines += without_lines.pop("lines", ())
        records.append(without_lines)
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)  # as gzip does, without a time
    # In pieces: a text of all would have four bytes for each letter if one is an emoji.
    pieces = _json_of(reading.title, start, lines, records)
    # Half characters are replaced, since no encoding has them.
    packed = [packer.compress(piece.encode(errors="replace")) for piece in pieces]
    return base64.b64encode(b"".join([*packed, packer.flush()])).decode()


def _json_of(
    title: str,
    start: int,
    lines: Sequence[str],
    records: Iterable[Mapping[str, object]],
) -> Iterator[str]:
    """Yield a reading as JSON, in pieces."""
    yield f'{{"title":{_encode(title)},"start":{start},"records":[{{"lines":['
    for number, line in enumerate(lines):
        comma = "," if number else ""
        yield f"{comma}{_encode(line)}"
    yield "]}"
    for record in records:
        yield f",{_encode(record)}"
    yield "]}"


def _hash(text: str) -> str:
    # In the form of a Content-Security-Policy.
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode()
