"""Recorded answers of real Ollama servers, played again with a test's values in their places.

``exchanges.json`` has them by version and by the name of the recording; of the older server only
what differs. Long lists are cut to one item, a stream has no lines here; the rest is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from fake_ollama._http import Response, dumps

FILE = resources.files("fake_ollama") / "exchanges.json"
_NEWER, _OLDER = json.loads(FILE.read_text(encoding="utf-8")).values()
_EXCHANGES = {False: _NEWER, True: _NEWER | _OLDER}


def recorded(name: str, *, old: bool = False) -> Any:
    """Return a recorded answer's body: a text or a JSON document."""
    return _EXCHANGES[old][name]["body"]


def filled(document: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a document with these values for its keys, nested ones too; None leaves a key out."""
    nested = {key: filled(item, values) for key, item in document.items() if isinstance(item, dict)}
    whole = {**document, **nested, **{key: values[key] for key in document if key in values}}
    return {key: item for key, item in whole.items() if item is not None or key not in values}


def play(name: str, body: Any = None, *, old: bool = False) -> Response:
    """Answer as recorded, or with another body; a list is the lines of a stream."""
    exchange = _EXCHANGES[old][name]
    body = exchange["body"] if body is None else body
    if isinstance(body, list):
        chunks = [dumps(line) + "\n" for line in body]
    else:
        chunks = [body if isinstance(body, str) else dumps(body)]
    return Response(
        status=exchange["status"],
        headers={"Content-Type": exchange["content_type"]},
        chunks=tuple(chunk.encode() for chunk in chunks),
        chunked=exchange.get("chunked", False),
    )


def refuse(name: str, words: Mapping[str, object], *, old: bool = False) -> Response:
    """Answer with a recorded error, some of its words replaced by others."""
    found = "|".join(map(re.escape, words))
    text = recorded(name, old=old)["error"]
    text = re.sub(found, lambda match: str(words[match[0]]), text)
    return play(name, {"error": text}, old=old)
