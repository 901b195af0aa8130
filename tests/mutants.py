"""Measure the tests: change one place of the code at a time and see whether a test notices.

``python tests/mutants.py --record`` notes which test runs which line, for the test files that are
new or changed; ``python tests/mutants.py`` then draws places by a seed, the same number in each
package, and tries them in a copy in a temporary folder. Both keep what they learn in
``out/mutants``: a mutant that was killed is not tried again unless its module changes.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated

import pytest
import typer
from coverage import CoverageData

REPO = Path(__file__).resolve().parents[1]
KEPT = REPO / "out" / "mutants"
RECORD, KILLED = KEPT / "record.json", KEPT / "killed.txt"
PACKAGES = ("economy", "tape", "study", "assistant", "llm", "lab", "run", "others")
LEFT_OUT = {"structure", "browser", "benchmarks"}  # they read the code, or run it elsewhere
PYTEST = (
    *("-q", "-p", "no:cacheprovider", "-m", "not embedded and not process"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # for what FORKS imports before
)

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(  # importing them takes longer than most mutants' tests
    ["pandas", "matplotlib.figure", "scipy.stats", "ipywidgets", "httpx", "ollama", "mcp", "typer"]
)

OF_ALL_CLASSES = (  # it looks at classes that are there already, so it runs none of their lines
    "tests/test_models.py::test_no_value_that_users_are_given_can_be_changed_by_accident"
)

EQUIVALENT = {
    "8763dfd4": "economy/_macro.py, _MAX_GROWTH: only keeps exp from an overflow, far beyond it",
    "1cc93d72": "economy/_data.py, initial_state: the last of a list of one is its first",
    "a3a17eaa": "economy/_macro.py, slots: frozen raises already; slots save memory",
    "e1114372": "economy/_macro.py, _check: no level is off by the tolerance to the last bit",
    "522d659a": "types.py, CallSite: slots save memory",
    "75d8f154": "run/_turn.py, Turn: slots save memory",
}
"""Mutants that change no behaviour, by the id that is printed, and why."""

_OPERATORS = """
    Eq:NotEq NotEq:Eq Lt:LtE,GtE LtE:Lt,Gt Gt:GtE,LtE GtE:Gt,Lt Is:IsNot IsNot:Is In:NotIn NotIn:In
    Add:Sub Sub:Add Mult:Div Div:Mult FloorDiv:Mult Mod:Mult Pow:Mult And:Or Or:And
"""
OPERATORS = {
    getattr(ast, name): [getattr(ast, other) for other in others.split(",")]
    for name, _, others in (pair.partition(":") for pair in _OPERATORS.split())
}

# What is changed


@dataclass(frozen=True)
class Mutant:
    path: str
    """From the checkout's top."""

    line: int
    """In the copy, where every statement's head is one line."""

    scope: str
    """The classes and functions around the place."""

    change: str
    """The place's code before and after."""

    place: int
    number: int
    """Which of the module's places it is, and which of the place's changes."""

    @cached_property
    def id(self) -> str:
        return digest(f"{self.path} {self.scope} {self.change}")

    @property
    def killed_id(self) -> str:
        return f"{self.id}-{digest(plain(self.path))}"

    def text(self) -> str:
        """Return the whole changed module."""
        tree = ast.parse(plain(self.path))
        old, _ = list(places(tree))[self.place]
        new = list(changed(old))[self.number]

        class Replace(ast.NodeTransformer):
            def visit(self, node: ast.AST) -> ast.AST:
                return new if node is old else self.generic_visit(node)

        return ast.unparse(ast.fix_missing_locations(Replace().visit(tree)))


def digest(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()[:8]


def package_of(path: str) -> str:
    name = Path(path).parts[1]
    return name if name in PACKAGES else "others"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr | ast.Constant) and not isinstance(
        getattr(node, "value", ""), int | float
    )


def changed(node: ast.AST) -> Iterator[ast.AST]:  # noqa: C901 - a table of cases
    """Yield what may stand in a node's place."""
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                for other in OPERATORS[type(op)]:
                    ops = [*node.ops[:i], other(), *node.ops[i + 1 :]]
                    yield ast.Compare(node.left, ops, node.comparators)
        case ast.BinOp(left=left, right=right) if _is_text(left) or _is_text(right):
            pass  # a TypeError at once
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp() if type(node.op) in OPERATORS:
            new = copy(node)
            new.op = OPERATORS[type(node.op)][0]()  # type: ignore[assignment]
            yield new
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.IfExp() | ast.If() | ast.While() if not isinstance(node.test, ast.UnaryOp):
            new = copy(node)
            new.test = ast.UnaryOp(ast.Not(), node.test)
            yield new
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
            yield ast.parse(str(value - 1), mode="eval").body
        case ast.Constant(value=str(value)):
            yield ast.Constant(f"XX{value}XX")
        case ast.FormattedValue(format_spec=ast.JoinedStr([ast.Constant(str(spec))])):
            if re.search(r"\d", spec):  # .2f, .3f
                new = re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), spec)
                yield ast.FormattedValue(
                    node.value, node.conversion, ast.JoinedStr([ast.Constant(new)])
                )
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
            yield ast.Pass()
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))


def _stays(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()):  # a docstring
            return True
        case ast.If(test=ast.Name("TYPE_CHECKING")) | ast.Assign([ast.Name("__all__")]):
            return True
    return False


def places(node: ast.AST, scope: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Yield every node that may be changed, with the names of what is around it."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        scope = f"{scope}.{node.name}".lstrip(".")
    yield node, scope
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _stays(child) or field == "format_spec":
                continue
            if field in ("annotation", "returns"):  # types stay, but not Annotated's Field(ge=1)
                call = next((n for n in ast.walk(child) if isinstance(n, ast.Call)), None)
                yield from places(call, scope) if call else ()
            else:
                yield from places(child, scope)


def mutants(path: str, lines: set[int]) -> list[list[Mutant]]:
    """Return a module's mutants, in a list for each of these lines of the copy."""
    found: dict[int, list[Mutant]] = defaultdict(list)
    seen: Counter[str] = Counter()
    for place, (node, scope) in enumerate(places(ast.parse(plain(path)))):
        line = getattr(node, "lineno", 0)
        for number, new in enumerate(changed(node) if line in lines else ()):
            before, after = (ast.unparse(n).split("\n")[0] for n in (node, new))
            change = f"{before}  →  {after}"
            seen[scope + change] += 1
            if seen[scope + change] > 1:
                change += f" ({seen[scope + change]})"
            found[line].append(Mutant(path, line, scope, change, place, number))
    return list(found.values())


def draw(seed: int, count: int, packages: tuple[str, ...]) -> list[Mutant]:
    """Draw lines that tests run, as many in each package, and one mutant on each.

    What comes first depends on the seed and the place's own code, so a change elsewhere leaves the
    other mutants as they are.
    """

    def rank(mutant: Mutant, salt: str = "") -> float:
        return random.Random(f"{seed} {mutant.id}{salt}").random()

    drawn: dict[str, list[tuple[float, Mutant]]] = {package: [] for package in packages}
    for path in modules():
        if (package := package_of(path)) in drawn:
            lines = {line for data in recorded() for line in data.lines(path) or ()}
            for on_line in mutants(path, lines):
                # By the line's first place: the least of many would put long lines first.
                drawn[package].append((rank(on_line[0], " line"), min(on_line, key=rank)))
    share, more = divmod(count, len(packages))
    ordered = (sorted(found, key=lambda place: place[0]) for found in drawn.values())
    return [m for i, found in enumerate(ordered) for _, m in found[: share + (i < more)]]


# The copy


@cache
def modules() -> list[str]:
    return sorted(str(p.relative_to(REPO)) for p in (REPO / "llmsim_lab").rglob("*.py"))


@cache
def plain(path: str) -> str:
    """Return a module's text in the copy: what a mutant looks like without its change."""
    return ast.unparse(ast.parse((REPO / path).read_text("utf-8")))


def make_copy(folder: Path) -> Path:
    """Copy what git knows, and what is new and not ignored, with plain modules."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPO, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (REPO / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, folder / name)
    for path in modules():
        (folder / path).write_text(plain(path), "utf-8")
    return folder


def run_pytest(folder: Path, *args: str, timeout_s: float | None = None, **env: str) -> int | None:
    """Return pytest's exit code, or None if the time is up."""
    process = FORKS.Process(target=_pytest, args=(folder, args, env))
    process.start()
    process.join(timeout_s)
    code = process.exitcode
    with contextlib.suppress(ProcessLookupError):  # what the tests started ends with them
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    return code


def _pytest(folder: Path, args: tuple[str, ...], env: dict[str, str]) -> None:
    os.setsid()
    os.chdir(folder)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    paths = [str(folder), str(folder / "tests")]
    os.environ.update(env, PYTHONPATH=os.pathsep.join(paths))
    sys.path[:] = paths + [path for path in sys.path if Path(path) != REPO / "tests"]
    sys.exit(pytest.main([*PYTEST, *args]))


# Which test runs which line

_seconds: Counter[str] = Counter()
_failed: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep a test's time: this module is pytest's plugin while it records."""
    _seconds[report.nodeid] += report.duration
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write the times of the tests that pass in the copy."""
    passed = {test: round(s, 3) for test, s in _seconds.items() if test not in _failed}
    Path(os.environ["MUTANTS_SECONDS"]).write_text(json.dumps(passed), "utf-8")


def code_hash() -> str:
    return digest("".join(map(plain, modules())))


def record(folders: list[str]) -> None:
    """Measure the test files that are new or changed; all of them if the code has changed."""
    kept = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    if kept.get("code") != code_hash():
        for file in KEPT.glob(".coverage*"):
            file.unlink()
        kept = {"code": code_hash(), "files": {}}
    KEPT.mkdir(parents=True, exist_ok=True)
    stale: dict[Path, dict[str, str]] = defaultdict(dict)
    for file in sorted((REPO / "tests").rglob("test_*.py")):
        path, file_hash = file.relative_to(REPO), digest(file.read_text("utf-8"))
        wanted = LEFT_OUT.isdisjoint(path.parts) and (not folders or str(path.parent) in folders)
        if wanted and kept["files"].get(str(path), {}).get("hash") != file_hash:
            stale[path.parent][str(path)] = file_hash
    with tempfile.TemporaryDirectory() as temporary:
        copied = make_copy(Path(temporary, "copy"))
        rc, times = Path(temporary, "rc"), Path(temporary, "seconds.json")
        rc.write_text("[run]\nrelative_files = true\n", "utf-8")
        cov = ["--cov=llmsim_lab", f"--cov-config={rc}", "--cov-context=test", "--cov-append"]
        for folder, files in stale.items():
            typer.echo(f"{folder}: {len(files)} test files")
            times.unlink(missing_ok=True)
            code = run_pytest(
                copied,
                *("-p", "mutants", "--cov-report=", *cov, *files),
                COVERAGE_FILE=str(KEPT / f".coverage-{'-'.join(folder.parts)}"),
                MUTANTS_SECONDS=str(times),
            )
            if code not in (0, 1, 5):  # 1: a test failed, 5: none is left
                raise typer.BadParameter(f"pytest ended with {code} in {folder}; run it by itself")
            passed = json.loads(times.read_text("utf-8"))
            for path, file_hash in files.items():
                own = {test: s for test, s in passed.items() if test.startswith(f"{path}::")}
                kept["files"][path] = {"hash": file_hash, "seconds": own}
            RECORD.write_text(json.dumps(kept, indent=1), "utf-8")


@cache
def recorded() -> list[CoverageData]:
    found = [CoverageData(str(file)) for file in sorted(KEPT.glob(".coverage-*"))]
    for data in found:
        data.read()
    return found


@cache
def tests_by_line(path: str) -> dict[int, set[str]]:
    """Return the tests that run each line, as `tests/folder/test_file.py::test_name`."""
    found: dict[int, set[str]] = defaultdict(set)
    for data in recorded():
        for line, contexts in data.contexts_by_lineno(path).items():
            found[line].update(context.split("|")[0] for context in contexts)
    return found


@cache
def seconds_by_test() -> dict[str, float]:
    files = json.loads(RECORD.read_text("utf-8"))["files"].values()
    return {test: s for file in files for test, s in file["seconds"].items()}


def lines_that_show(mutant: Mutant) -> dict[str, set[int]]:
    """Return the lines to find tests by: its own, unless that is run by an import.

    For a default they are the function's; for a constant or a field, where its name is used.
    """
    tree = ast.parse(plain(mutant.path))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
            if mutant.line in body:
                return {mutant.path: {mutant.line}}
            if mutant.line == node.lineno:
                return {mutant.path: set(body)}
    targets = [
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno == mutant.line
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    names = {name.id for t in targets for name in ast.walk(t) if isinstance(name, ast.Name)}
    found: dict[str, set[int]] = defaultdict(set)
    for path in modules() if names else ():
        for node in ast.walk(ast.parse(plain(path))):
            if names & {getattr(node, field, None) for field in ("id", "attr", "arg")}:
                found[path].add(getattr(node, "lineno", 0))
    return found


def tests_of(mutant: Mutant, limit_s: float) -> tuple[list[str], int]:
    """Return the tests to try, of its own folder and quick ones first, and how many there are."""
    lines = lines_that_show(mutant)
    seconds = seconds_by_test()
    known = seconds.keys() & {
        test for path, used in lines.items() for line in used for test in tests_by_line(path)[line]
    }
    if not known:  # nothing uses the name by itself: whatever runs the module
        known = seconds.keys() & set[str]().union(*tests_by_line(mutant.path).values())
    if "" in tests_by_line(mutant.path)[mutant.line]:
        known |= seconds.keys() & {OF_ALL_CLASSES}
    own_folder = "/".join(("tests", *Path(mutant.path).parts[1:2]))

    def order(test: str) -> tuple[bool, bool, float, str]:
        return test != OF_ALL_CLASSES, not test.startswith(own_folder), seconds[test], test

    chosen, total_s = [], 0.0
    for test in sorted(known, key=order):
        total_s += seconds[test]
        if chosen and total_s > limit_s:
            break
        chosen.append(test)
    return chosen, len(known)


# Trying them


def attempt(mutant: Mutant, folder: Path, limit_s: float, *, change: bool = True) -> str:
    """Run a mutant's tests; return what became of it."""
    tests, number = tests_of(mutant, limit_s)
    if not tests:
        return "survived: no test runs it"
    module, asked = folder / mutant.path, folder.with_suffix(".txt")
    asked.write_text("\n".join(tests), "utf-8")
    compiled = Path(importlib.util.cache_from_source(str(module)))
    try:
        module.write_text(mutant.text() if change else plain(mutant.path), "utf-8")
        compiled.unlink(missing_ok=True)  # within a second it would look as new as the file
        code = run_pytest(folder, "-x", f"@{asked}", timeout_s=limit_s * 3 + 60)
    finally:
        module.write_text(plain(mutant.path), "utf-8")
        compiled.unlink(missing_ok=True)
    if code == 0:
        return f"survived: {len(tests)} of {number} tests tried"
    return "killed" if code else "killed: its time was up"


def main(
    *,
    seed: int = 1,
    count: int = 100,
    package: Annotated[list[str] | None, typer.Option()] = None,
    jobs: int = 1,
    limit_s: Annotated[float, typer.Option(help="seconds of tests for a mutant")] = 15,
    measure: Annotated[bool, typer.Option("--record", help="only note who runs what")] = False,
    folder: Annotated[list[str] | None, typer.Option(help="record only this, tests/llm")] = None,
) -> None:
    """Change one place of the code at a time and see whether a test notices."""
    if measure:
        record(folder or [])
        return
    if not RECORD.exists() or json.loads(RECORD.read_text("utf-8"))["code"] != code_hash():
        raise typer.BadParameter("the code has changed since the last --record; record it again")
    drawn = draw(seed, count, tuple(package or PACKAGES))
    killed = set(KILLED.read_text("utf-8").split()) if KILLED.exists() else set()
    results: list[tuple[Mutant, str]] = []
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for job in range(jobs):
            copies.put(make_copy(Path(temporary, f"copy{job}")))

        unchanged = attempt(drawn[0], Path(temporary, "copy0"), limit_s, change=False)
        if unchanged.startswith("killed"):
            raise typer.BadParameter("the tests fail in a copy of the unchanged code")

        def result_of(mutant: Mutant) -> str:
            if mutant.id in EQUIVALENT:
                return f"equivalent: {EQUIVALENT[mutant.id]}"
            if mutant.killed_id in killed:
                return "killed before"
            copied = copies.get()
            try:
                return attempt(mutant, copied, limit_s)
            finally:
                copies.put(copied)

        for mutant, result in zip(drawn, pool.map(result_of, drawn), strict=True):
            results.append((mutant, result))
            typer.echo(f"{mutant.id} {result}\n  {mutant.path}:{mutant.line} {mutant.scope}")
            typer.echo(f"  {mutant.change}")
            if result.startswith("killed"):
                killed.add(mutant.killed_id)
                KILLED.write_text("\n".join(sorted(killed)), "utf-8")
    for name in (*PACKAGES, "all"):
        own = [r for m, r in results if name in (package_of(m.path), "all")]
        counted = [r for r in own if not r.startswith("equivalent")]
        hits = sum(r.startswith("killed") for r in counted)
        if counted:
            rate = f"{hits} of {len(counted)} killed, {hits / len(counted):.0%}"
            typer.echo(f"{name:<12} {rate}; {len(own) - len(counted)} equivalent")


if __name__ == "__main__":
    typer.run(main)
