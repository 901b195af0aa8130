"""Imports point downwards only, and never in a circle."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from structure_kit import read_source

import llmsim_lab

PACKAGE = Path(llmsim_lab.__file__).parent

# Lowest first; the parts on one line do not know each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("_util",),
    ("spans",),
    ("types",),
    ("prompts",),
    ("people",),
    ("tape",),
    ("llm",),
    ("models",),
    ("run", "economy"),
    ("agents", "validators", "engines", "study"),
    ("simulation", "context", "statechart"),
    ("assistant",),
    ("lab", "room", "lessons"),
    ("cli",),
)
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}


@dataclass(frozen=True)
class Import:
    """One import of a module of ours by another."""

    source: str
    target: str
    line: int

    def __str__(self) -> str:
        return f"{self.source}, line {self.line}, imports {self.target}"


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _named_by(node: ast.AST) -> list[str]:
    """Return the modules that a statement or call imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert not node.level, f"import {node.module} by its whole name"
        # `from package import name` means a submodule, where there is one of that name.
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call):
        values = [*node.args, *(it.value for it in node.keywords)]
        return [it.value for it in values if isinstance(it, ast.Constant)]
    return []


def imports_of(root: Path) -> list[Import]:
    """Return all imports among the modules of the package at ``root``.

    Those in functions and for types only count; ``import_module("llmsim_lab.name")`` is one too.
    """
    paths = {module_name(path, root): path for path in sorted(root.rglob("*.py"))}
    found = []
    for source, path in paths.items():
        for node in read_source(path).imports:
            names = (name if name in paths else name.rpartition(".")[0] for name in _named_by(node))
            found += [
                Import(source, target, getattr(node, "lineno", 0))
                for target in dict.fromkeys(names)
                if target in paths and target != source
            ]
    return found


def part_of(module: str) -> str:
    """Return the part of the package a module belongs to; empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def wrong_way(imports: list[Import]) -> list[str]:
    """Return the imports that do not point to a lower layer, in words."""
    faults = []
    for item in imports:
        source, target = part_of(item.source), part_of(item.target)
        if source == target or source == "cli":
            continue
        if target == "":
            faults.append(f"{item}: below the command line, import from the module itself")
        elif source == "":
            if target == "cli":
                faults.append(f"{item}: the package does not import {target}")
        elif source in LEVEL and target in LEVEL and LEVEL[target] >= LEVEL[source]:
            faults.append(f"{item}: {target} is not below {source}")
    return faults


def circle(imports: list[Import]) -> list[str]:
    """Return the modules of an import circle, or nothing; imports for types only count too."""
    graph: dict[str, set[str]] = {}
    for item in imports:
        graph.setdefault(item.source, set()).add(item.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_part_of_the_package_has_a_place_in_the_layers() -> None:
    parts = {part_of(module_name(path, PACKAGE)) for path in PACKAGE.rglob("*.py")} - {""}
    assert parts, "no modules found"
    assert parts <= set(LEVEL), f"add to LAYERS: {sorted(parts - set(LEVEL))}"


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    return imports_of(PACKAGE)


def test_imports_point_downwards(imports: list[Import]) -> None:
    assert len(imports) > 10, "the parser found next to nothing"
    assert wrong_way(imports) == []


def test_a_module_that_another_part_imports_has_no_underscore(imports: list[Import]) -> None:
    crossing = [item for item in imports if part_of(item.source) != part_of(item.target)]
    private = [str(item) for item in crossing if item.target.rpartition(".")[2].startswith("_")]
    # `_util` is the whole package's own.
    assert [item for item in private if "imports llmsim_lab._util" not in item] == []


def test_no_module_imports_itself_through_others(imports: list[Import]) -> None:
    assert circle(imports) == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import llmsim_lab.agents", "imports llmsim_lab.agents: agents is not below llm"),
        ("def f():\n    from llmsim_lab import agents", "agents is not below llm"),
        ("x = importlib.import_module(name='llmsim_lab.agents')", "agents is not below llm"),
        ("from llmsim_lab import Agent", "imports llmsim_lab: below the command line"),
    ],
)
def test_an_import_upwards_and_a_circle_are_named(tmp_path: Path, code: str, message: str) -> None:
    root = tmp_path / "llmsim_lab"
    for module in ("__init__", "llm/__init__", "agents/__init__", "llm/bad"):
        (root / module).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{module}.py").write_text(code if module == "llm/bad" else "")
    [fault] = wrong_way(imports_of(root))
    assert fault.startswith("llmsim_lab.llm.bad, line ")
    assert message in fault
    assert circle(imports_of(root)) == []
    for one, other in (("one", "two"), ("two", "one")):
        code = f"def f():\n    from llmsim_lab.{other} import g\n"
        (root / f"{one}.py").write_text(code)
    assert set(circle(imports_of(root))) == {"llmsim_lab.one", "llmsim_lab.two"}


# `make` starts the command line where these are not installed yet, to fetch a model.
NOT_YET_THERE = {"numpy", "pandas", "matplotlib", "scipy"}


def _run_at_import(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements that importing a module runs, also those in blocks."""
    found: list[ast.stmt] = []
    for statement in body:
        is_for_types = isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test)
        if is_for_types or isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        found.append(statement)
        for block in ("body", "orelse", "handlers", "finalbody"):
            found += _run_at_import(getattr(statement, block, []))
    return found


def test_the_command_line_starts_without_what_is_not_installed_yet() -> None:
    paths = {module_name(path, PACKAGE): path for path in PACKAGE.rglob("*.py")}
    left, reached, faults = ["llmsim_lab.cli._app"], set[str](), []
    while left:
        source = left.pop()
        if source in reached or source not in paths:
            continue
        reached.add(source)
        left.append(source.rpartition(".")[0])  # its package is imported first
        for statement in _run_at_import(ast.parse(paths[source].read_text("utf-8")).body):
            for name in _named_by(statement):
                if name.partition(".")[0] in NOT_YET_THERE:
                    faults.append(f"{source}, line {statement.lineno}, imports {name}")
                left += [name, name.rpartition(".")[0]]
    assert len(reached) > 100
    assert faults == []
