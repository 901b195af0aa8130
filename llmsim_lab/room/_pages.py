"""The three pages of a room: static, the same for everybody, each with only its own modules.

A page is a shell with one script and one style. Their addresses contain digests of their content,
so browsers can keep them, and the page's policy allows only these two addresses.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llmsim_lab._util.files import as_path, bounded_text
from llmsim_lab._util.html import safe
from llmsim_lab._util.text import brief, closest, whole_text
from llmsim_lab.errors import ConfigError

_FRONTS = (
    Path(__file__).parent / "front",
    Path(__file__).parents[1] / "run" / "front",
)
"""The folders of modules and styles; the room's own comes first."""
_IMPORT = re.compile(r'^import\b[^;]*?from "(?:[^"]*/)?(\w+)\.js";\n', re.MULTILINE)
# Joined modules are one script, which has no imports and exports.
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
_MOST_BYTES = 2**22
_FORM = re.compile(r"_(zero|one|two|few|many)$")
"""The end of a sentence's name for the plural forms of ``Intl.PluralRules``."""
_SHELL = """<!DOCTYPE html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{style}">
</head>
<body>
<div id="page" data-page="{name}"></div>
<script type="module" src="{script}" integrity="{integrity}"></script>
</body>
</html>
"""

Words = Mapping[str, str]
"""The interface's sentences, by name."""


@dataclass(frozen=True)
class PageFile:
    """A file as it is served.

    Attributes:
        path: its address; empty for a shell, which has several addresses.
        media_type: its media type.
        content: the compressed content.
        tag: a digest of the content.
    """

    path: str
    media_type: str
    content: bytes
    tag: str


@dataclass(frozen=True)
class RoomPage:
    """One of the pages, with its script and its style."""

    shell: PageFile
    script: PageFile
    style: PageFile

    def policy(self, host: str) -> str:
        """Return the page's policy: it may load its two files, and ask its own server.

        Args:
            host: the server's name in the browser; a policy has paths only for named hosts.
        """
        return (
            f"default-src 'none'; script-src {host}{self.script.path}; "
            f"style-src {host}{self.style.path}; connect-src 'self'; img-src 'self' data: blob:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )


def room_page(
    name: str,
    title: str,
    words: Words,
) -> RoomPage:
    """Return a page.

    Args:
        name: the page's first module: ``guest``, ``teacher`` or ``projector``.
        title: the title of the browser's tab, unless the words have one.
        words: the interface's sentences.
    """
    # The sentences are part of the script, so that the page needs no further request.
    parts = [f"const WORDS = {json.dumps(dict(words), ensure_ascii=False)};"]
    styles = [_front_path("room.css").read_text("utf-8")]
    for module in _modules(name):
        without_imports = _IMPORT.sub("", module.read_text("utf-8"))
        parts.append(_EXPORT.sub("", without_imports))
        style_of_module = module.with_suffix(".css")
        if style_of_module.is_file():
            styles.append(style_of_module.read_text("utf-8"))
    # Joined, as in pages to mail: on a crowded Wi-Fi, a phone makes two requests and not ten.
    parts.append('mount(document.getElementById("page"));')
    code = "\n".join(parts)
    script = _kept_file(f"{name}.js", "text/javascript", code)
    style = _kept_file(f"{name}.css", "text/css", "\n".join(styles))
    digest = hashlib.sha256(code.encode()).digest()
    # With the script's digest, so that a proxy in between cannot replace the script.
    html = _SHELL.format(
        lang=safe(words["lang"]),
        title=safe(words["title"] or title),
        style=style.path,
        script=script.path,
        integrity=f"sha256-{base64.b64encode(digest).decode()}",
        name=name,
    )
    shell = PageFile(
        "",
        "text/html",
        _packed(html),
        _digest(html),
    )
    return RoomPage(shell, script, style)


def _kept_file(
    name: str,
    media_type: str,
    text: str,
) -> PageFile:
    """Return a file whose address changes with its content, so that browsers can keep it."""
    tag = _digest(text)
    return PageFile(f"/{tag}/{name}", media_type, _packed(text), tag)


def _packed(text: str) -> bytes:
    # Without a time, so that equal content has the same digest in each process.
    return gzip.compress(
        text.encode(),
        9,
        mtime=0,
    )


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return digest[:16]


def _modules(entry: str) -> list[Path]:
    """Return a module and all its imports; each comes after those it uses."""
    # A dict and not a set, for its order.
    modules: dict[Path, None] = {}

    def add(module: Path) -> None:
        for used in _IMPORT.findall(module.read_text("utf-8")):
            path = _front_path(f"{used}.js")
            if path not in modules:
                add(path)
        modules[module] = None

    add(_front_path(f"{entry}.js"))
    return list(modules)


def _front_path(name: str) -> Path:
    # A page shares modules, such as its form, with the notebook's window.
    for folder in _FRONTS:
        if (folder / name).is_file():
            return folder / name
    raise ConfigError(f"the installed package lacks {name} of its pages; install it again")


# --- the interface's sentences -------------------------------------------------------------------


def read_text(argument: str, path: str | Path) -> str:
    """Return what a file says that somebody wrote for a room.

    Raises:
        ConfigError: it cannot be read, or is far longer than anybody writes.
    """
    try:
        return bounded_text(as_path(argument, path), _MOST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{argument}={brief(str(path))} cannot be read: {error}; name a text file"
        ) from error


def read_words(given: str | Path | Words | None) -> Words:
    """Return the interface's sentences, with given ones in place of the English ones.

    Args:
        given: sentences by name, or a JSON file of them; the others stay English.

    Raises:
        ConfigError: the file cannot be read, or a name is unknown.
    """
    text = _front_path("words.json").read_text("utf-8")
    words: dict[str, str] = json.loads(text)
    if given is None:
        return words
    sentences = given if isinstance(given, Mapping) else _words_of_file(given)
    for name, sentence in sentences.items():
        plain = _FORM.sub("", name)
        # A language may have more plural forms than English: joined_few belongs to joined.
        if name not in words and plain not in words:
            raise ConfigError(
                f"words= has {name!r}{closest(name, words)}, which is not a sentence of the room; "
                f"the names are those of {_FRONTS[0] / 'words.json'}"
            )
        if not isinstance(sentence, str):
            raise ConfigError(f"words= has {brief(sentence)} for {name!r}; give a text")
    # Pages are sent as UTF-8, which has no half characters.
    return {**words, **{name: whole_text(sentence) for name, sentence in sentences.items()}}


def _words_of_file(path: str | Path) -> Words:
    text = read_text("words", path)
    try:
        sentences = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"words={str(path)!r} cannot be read as JSON: {error}") from error
    if not isinstance(sentences, dict):
        raise ConfigError(f'words={str(path)!r} is not an object; write {{"join": "Mitmachen"}}')
    return sentences
