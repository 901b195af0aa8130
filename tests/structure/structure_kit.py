"""For the structural tests: each source is parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["Source", "read_source"]


class Source(NamedTuple):
    """What the tests ask of a source; whole trees would take seconds of each collection of garbage.

    Attributes:
        imports: the nodes that import something, by statement or by ``import_module``.
        classes: the names of its classes.
    """

    imports: tuple[ast.AST, ...]
    classes: tuple[str, ...]


@cache
def read_source(path: Path) -> Source:
    """Return what a source imports and defines."""
    imports: list[ast.AST] = []
    classes: list[str] = []
    text = path.read_text(encoding="utf-8")
    # Most of a tree are expressions, which hold neither imports by statement nor classes.
    walk = ast.walk if "import_module" in text else _statements
    for node in walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            classes.append(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom) or _is_import(node):
            imports.append(node)
    return Source(tuple(imports), tuple(classes))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        nodes = getattr(node, block, ())
        for inner in nodes if isinstance(nodes, list) else ():  # a lambda's body is an expression
            yield inner
            yield from _statements(inner)


def _is_import(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
    return bool(name == "import_module")
