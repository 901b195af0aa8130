"""Tapes changed by somebody who knows their format, check sums included."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

from llmsim_lab._util.jsontext import dumps

__all__ = ["changed_manifest", "digest_of", "rewrite", "sealed"]


def digest_of(value: bytes) -> str:
    """Return the name of a text on a tape."""
    return blake2b(value, digest_size=8).hexdigest()


def sealed(lines: Iterable[bytes]) -> list[bytes]:
    """Return lines with the sums that they should have, as somebody would who computes them."""
    sums: dict[int, int] = {}
    found = []
    for raw in lines:
        if (parts := re.match(rb'(.*),"sum":"[0-9a-f]*"\}\n\Z', raw, re.DOTALL)) is None:
            found.append(raw)
            continue
        of = re.match(rb'\{"run":(\d{1,9}),', raw)
        run = int(of[1]) if of else 0
        own = crc32(parts[1], sums.get(run, run))
        if run:
            sums[run] = own
        found.append(b'%b,"sum":"%08x"}\n' % (parts[1], own))
    return found


def rewrite(path: Path, edit: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Write each line of a tape again as ``edit`` returns it, left out if None, with right sums."""
    names: dict[str, str] = {}
    lines = []
    for raw in path.read_bytes().split(b"\n")[:-1]:
        value = json.loads(raw)
        del value["sum"]
        if (changed := edit(value)) is None:
            continue
        if "text" in changed:
            digest = digest_of(dumps(changed["value"]).encode())
            names[changed["text"]] = digest
            changed = {**changed, "text": digest}
        text = dumps({**changed, "sum": ""})
        for old, new in names.items():
            text = text.replace(f'"{old}"', f'"{new}"')
        lines.append(f"{text}\n".encode())
    path.write_bytes(b"".join(sealed(lines)))


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
