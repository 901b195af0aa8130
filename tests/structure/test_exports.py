"""What a module offers is what its ``__all__`` says, in order."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import llmsim_lab

PACKAGE = Path(llmsim_lab.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if not any(part.startswith("_") for part in path.relative_to(PACKAGE).parts[:-1])
    and (path.name == "__init__.py" or not path.name.startswith("_"))
}
PACKAGES = [name for name, path in MODULES.items() if path.name == "__init__.py"]


def body_of(name: str) -> list[ast.stmt]:
    return ast.parse(MODULES[name].read_text(encoding="utf-8")).body


def test_every_module_says_what_it_offers() -> None:
    """Its order, its docstring and, but for packages, the names in it are ruff's to check."""
    exports = {name: getattr(importlib.import_module(name), "__all__", None) for name in MODULES}
    assert len(exports) > 100, "next to no module found"
    assert [name for name, said in exports.items() if not isinstance(said, list)] == []
    assert [name for name, said in exports.items() if len(said) != len(set(said))] == []


def test_every_name_that_a_package_offers_exists() -> None:
    """Ruff takes an ``__init__`` at its word, since it may load names late."""
    offered = [(name, said) for name in PACKAGES for said in importlib.import_module(name).__all__]
    assert [
        pair for pair in offered if not hasattr(importlib.import_module(pair[0]), pair[1])
    ] == []


def is_command(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Whether a decorator such as ``@app.command()`` has put it where it is called from."""
    return any(
        isinstance(part, ast.Attribute) and part.attr in ("command", "callback")
        for decorator in node.decorator_list
        for part in ast.walk(decorator)
    )


def test_public_functions_and_classes_are_in_all() -> None:
    forgotten = [
        (name, node.name)
        for name in MODULES
        for node in body_of(name)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not is_command(node)
        and node.name not in importlib.import_module(name).__all__
    ]
    assert forgotten == []


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_exports_what_it_imports_and_nothing_else(name: str) -> None:
    bound: set[str] = set()
    # Names behind TYPE_CHECKING count: a package that loads them late still offers them.
    for top in body_of(name):
        for node in [top, *(top.body if isinstance(top, ast.If) else [])]:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE.name):
                bound |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                bound.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                bound |= {target.id for target in targets if isinstance(target, ast.Name)}
    exported = set(importlib.import_module(name).__all__)
    assert {bound_name for bound_name in bound if not bound_name.startswith("_")} == {
        exported_name for exported_name in exported if not exported_name.startswith("__")
    }
