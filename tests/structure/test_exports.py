"""What a module offers is what its ``__all__`` says, in order."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import llmsim_lab

PACKAGE = Path(llmsim_lab.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.name == "__init__.py" or not path.name.startswith("_")
}
PACKAGES = [name for name, path in MODULES.items() if path.name == "__init__.py"]

every_module = pytest.mark.parametrize("name", MODULES)


def body_of(name: str) -> list[ast.stmt]:
    return ast.parse(MODULES[name].read_text(encoding="utf-8")).body


def ruff_order(name: str) -> tuple[int, list[object]]:
    """Return the sort key of ruff's rule RUF022: CONSTANTS, Classes, functions; 2 before 10."""
    rank = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return rank, [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", name)]


@every_module
def test_a_module_says_what_it_is_and_what_it_offers(name: str) -> None:
    module = importlib.import_module(name)
    assert (module.__doc__ or "").strip(), f"{name} has no docstring"
    assert isinstance(getattr(module, "__all__", None), list), f"{name} has no __all__"


@every_module
def test_all_is_sorted_and_every_name_in_it_exists(name: str) -> None:
    module = importlib.import_module(name)
    assert list(module.__all__) == sorted(set(module.__all__), key=ruff_order)
    assert [missing for missing in module.__all__ if not hasattr(module, missing)] == []


def is_command(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Whether a decorator such as ``@app.command()`` has put it where it is called from."""
    return any(
        isinstance(part, ast.Attribute) and part.attr in ("command", "callback")
        for decorator in node.decorator_list
        for part in ast.walk(decorator)
    )


@every_module
def test_public_functions_and_classes_are_in_all(name: str) -> None:
    defined = [
        node.name
        for node in body_of(name)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not is_command(node)
    ]
    exported = importlib.import_module(name).__all__
    assert [name for name in defined if name not in exported] == []


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
