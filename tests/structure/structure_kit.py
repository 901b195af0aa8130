"""For the structural tests: each source is parsed once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

__all__ = ["nodes"]


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a source that import something, call something or define a class."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.Import, ast.ImportFrom, ast.Call, ast.ClassDef)
    return tuple(node for node in ast.walk(tree) if isinstance(node, kinds))
