"""Tapes changed by somebody who knows their format, check sums included."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

from llmsim_lab._util.jsontext import dumps
from llmsim_lab.tape._journal import text_digest

__all__ = ["changed_manifest", "rewrite"]


def rewrite(path: Path, edit: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Write each line of a tape again as ``edit`` returns it, left out if None, with right sums."""
    sums: dict[int, int] = {}
    names: dict[str, str] = {}
    lines = []
    for raw in path.read_bytes().split(b"\n")[:-1]:
        value = json.loads(raw)
        del value["sum"]
        changed = edit(value)
        if changed is None:
            continue
        if "text" in changed:
            digest = text_digest(dumps(changed["value"]).encode()).decode()
            names[changed["text"]] = digest
            changed = {**changed, "text": digest}
        text = dumps(changed)
        for old, new in names.items():
            text = text.replace(f'"{old}"', f'"{new}"')
        run = changed.get("run")
        before = 0 if run is None else sums.get(run, run)
        own = crc32(text[:-1].encode(), before)
        if run is not None:
            sums[run] = own
        lines.append(f'{text[:-1]},"sum":"{own:08x}"}}\n')
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def changed_manifest(path: Path, run: int, **changes: Any) -> None:
    """Change parts of a run's manifest; one that is ``...`` is left out."""

    def edit(line: dict[str, Any]) -> dict[str, Any]:
        if line.get("run") != run or "manifest" not in line:
            return line
        parts = {**line["manifest"], **changes}
        texts = {name: digest for name, digest in line["texts"].items() if name not in changes}
        kept = {name: part for name, part in parts.items() if part is not ...}
        return {**line, "manifest": kept, "texts": texts}

    rewrite(path, edit)
