"""Runs as one HTML page to mail: it loads nothing, and what a model said stays text.

The page is a fixed shell around the front end's module (``front/``) and a ``Reading``, compressed.
Nothing in it depends on when it is written, so that the same runs give the same file.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from markupsafe import Markup

from llmsim_lab._util.files import write_file
from llmsim_lab._util.html import join, safe, styled
from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError
from llmsim_lab.run._reading import Reading

_FRONT = Path(__file__).parent / "front"
_MODULES = (
    "text",
    "dom",
    "reading",
    "chart",
    "calls",
    "compare",
    "view",
    "seat",
    "chat",
    "study",
    "prompts",
    "host",
)
"""In the order in which they are joined: each uses those before it. A further view, which calls
``addView``, comes between ``view`` and ``host``, and its style into ``_STYLES``."""
_STYLES = ("view", "calls", "seat", "study")
_MOST_STATIC = 300
"""Decisions in the part that is read where scripts do not run."""
_LONGEST_STATIC = 400
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


@cache
def module() -> str:
    """Return the front end as one ES module: its files joined, their imports of each other dropped.

    No build step: the files are what runs.
    """
    style = "".join((_FRONT / f"{name}.css").read_text("utf-8") for name in _STYLES)
    parts = [f"const CSS = {json.dumps(style)};"]
    for name in _MODULES:
        text = (_FRONT / f"{name}.js").read_text("utf-8")
        parts.append(_EXPORT.sub("", _IMPORT.sub("", text)))
    return "\n".join(parts)


def write_page(path: str | Path, reading: Reading, *, start: int) -> Path:
    """Write runs as one page, and return its path.

    Args:
        path: the file, which ends in ``.html``; one that is there is replaced.
        reading: the runs.
        start: the number of the run that is shown first.

    Raises:
        ConfigError: the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"a page is HTML, and {path.name!r} does not end in .html")
    # Whole before the file is opened, so that an error leaves what is there.
    page = page_html(reading, start=start).encode(errors="replace")
    return write_file(path, page)


def page_html(reading: Reading, *, start: int) -> str:
    """Return the page as ``write_page`` writes it."""
    script = f'{module()}\nmountPage(document.getElementById("page"));'
    style = (_FRONT / "page.css").read_text("utf-8")
    # Lines first, since like compresses best beside like.
    lines = [line for record in reading.records for line in record.get("lines", ())]
    rest = [{name: it[name] for name in it if name != "lines"} for it in reading.records]
    data = {"title": reading.title, "start": start, "records": [{"lines": lines}, *rest]}
    parts = {
        "title": safe(clip(reading.title, 120)),
        "style": Markup(style),
        "script": Markup(script),
        "style_hash": _hash(style),
        "script_hash": _hash(script),
        "static": _static(reading),
        "version": version("llmsim-lab"),
        "reading": packed(data),
    }
    shell = (_FRONT / "page.html").read_text("utf-8")
    # In one go, since a text may hold what looks like another's place.
    return re.sub(r"{{ (\w+) }}", lambda place: str(parts[place[1]]), shell)


def packed(value: object) -> str:
    """Return a value as base64 of gzip of JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Half a character fits no encoding.
    return base64.b64encode(gzip.compress(text.encode(errors="replace"), 9, mtime=0)).decode()


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# --- where scripts do not run --------------------------------------------------------------------


def _static(reading: Reading) -> Markup:
    """Return what is essential as plain HTML: the runs, what they changed, their decisions."""
    parts = [styled(clip(reading.title, 120), tag="h1")]
    left = _MOST_STATIC
    for run in reading.runs.values():
        came = f"{run['verb']} of run {run['parent']}" if run["parent"] else run["verb"]
        words = [run["name"], came, run["model"] or "no model", *run["changes"], *run["notes"]]
        parts.append(styled(clip(f"Run {run['id']}: {' · '.join(words)}", 1_000), tag="h2"))
        rows = list(_static_decisions(reading, run["id"], left))
        left -= len(rows)
        parts.append(_table(("turn", "player", "component", "status", "reasoning"), rows))
        if left <= 0:
            parts.append(styled("There is more; it is shown where scripts run.", tag="p"))
            break
    return join(parts, between="\n")


def _static_decisions(reading: Reading, run: int, most: int) -> Iterator[Sequence[object]]:
    turns = (record["turn"] for record in reading.records if "turn" in record)
    its = ((turn["n"], made) for turn in turns if turn["run"] == run for made in turn["decisions"])
    for _, (turn, made) in zip(range(most), its, strict=False):
        why = clip(reading.text(made["why"]), _LONGEST_STATIC)
        yield turn, made["player"], made["component"], made["status"], why


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    head = join(styled(name, tag="th") for name in header)
    body = join(
        styled(join(styled(str(it), tag="td", dir="auto") for it in row), tag="tr") for row in rows
    )
    return styled(join([styled(head, tag="tr"), body]), tag="table")
