"""What users may rely on is what the packages offer, and each name says what it is for.

The reference of the site is written from it: ``scripts/build_docs.py``.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

from structure_kit import read_source

import llmsim_lab

PACKAGE = Path(llmsim_lab.__file__).parent
FRONT_PAGE, PACKAGES_IN_ALL, WHOLE_PAGE = 30, 136, 170
"""The most names; some modules have more: errors, what goes to a model, the contracts' values."""
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.name != "__main__.py"
}
PRIVATE = [name for name in MODULES if re.search(r"\._", name)]
# Behaviour modules are loaded by name from their folder, as a user's own are, not imported.
PUBLIC = [name for name in MODULES if name not in PRIVATE and ".definitions" not in name]
PACKAGES = [name for name in PUBLIC if MODULES[name].name == "__init__.py"]


def offered_by(name: str) -> list[str]:
    return list(getattr(importlib.import_module(name), "__all__", []))


def test_there_are_not_too_many_names() -> None:
    assert len(offered_by("llmsim_lab")) <= FRONT_PAGE
    assert len({name for module in PUBLIC for name in offered_by(module)}) <= WHOLE_PAGE
    assert len({name for package in PACKAGES for name in offered_by(package)}) <= PACKAGES_IN_ALL


def test_each_name_says_what_it_is_for() -> None:
    offered = {
        f"{module}.{name}": getattr(importlib.import_module(module), name)
        for module in PUBLIC
        for name in offered_by(module)
    }
    assert len(offered) > 150, "next to no name found"
    described = {
        name for name, item in offered.items() if inspect.isclass(item) or inspect.isroutine(item)
    }
    assert [name for name in sorted(described) if not inspect.getdoc(offered[name])] == []


def test_every_name_that_is_offered_exists() -> None:
    """Ruff takes an ``__init__`` at its word, since it may load names late."""
    offered = [(name, said) for name in PUBLIC for said in offered_by(name)]
    assert [
        pair for pair in offered if not hasattr(importlib.import_module(pair[0]), pair[1])
    ] == []


def test_private_modules_offer_nothing() -> None:
    assert len(PRIVATE) > 50, "next to no module found"
    texts = {name: MODULES[name].read_text(encoding="utf-8") for name in PRIVATE}
    assert [name for name in PRIVATE if re.search(r"^__all__", texts[name], re.MULTILINE)] == []


def test_what_people_read_uses_public_names_only(repo: Path) -> None:
    read = [
        repo / "README.md",
        *(repo / "docs").glob("*.md"),
        *(repo / "notebooks").glob("*.ipynb"),
    ]
    read += (repo / "data" / "templates").glob("*.py")
    assert len(read) > 10
    private = [
        (path.name, found)
        for path in read
        for found in re.findall(r"(?:from|import) llmsim_lab[\w.]*\._\w+", path.read_text("utf-8"))
    ]
    assert private == []


def test_the_map_names_modules_that_are_there(repo: Path) -> None:
    page = (repo / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w]+/)*[\w]+(?:\.py|/))`", page.partition("## Running")[0]))
    assert len(named) > 25
    here = [PACKAGE, repo, PACKAGE / "run"]
    assert [name for name in sorted(named) if not any((at / name).exists() for at in here)] == []


NAMED_BY_TWO_CONTRACTS = {
    "AgentState": "a nation in agent_llm_contract, a user's state in reasoner_contract",
    "Message": "of a conversation in agent_engine_contract; to and from a model in all others",
    "ToolCall": "one that was run in agent_engine_contract; one that a model wants in all others",
}


def test_no_two_classes_share_a_name_unless_contracts_ask_for_it() -> None:
    where: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        for class_name in read_source(path).classes:
            where.setdefault(class_name, []).append(name)
    assert len(where) > 200, "next to no class found"
    assert {name for name, found in where.items() if len(found) > 1} == set(NAMED_BY_TWO_CONTRACTS)


TESTED_AS_UNITS = {
    "assistant/test_confirmation.py": "which words are a yes: hundreds of texts",
    "assistant/test_lookup.py": "tools' results on a tape, live and replayed",
    "cli/test_doctor.py": "what a model can do, by scripted models",
    "faults/test_crashes.py": "a room's journal that was cut",
    "faults/test_tool_servers.py": "tools of servers that misbehave",
    "llm/test_limits.py": "how many requests at once, with a clock of its own",
    "page_kit.py": "the joined scripts of a room's pages",
    "room/seats_kit.py": "a room's state without a network",
    "room/test_news.py": "that the loop is woken once",
    "room/test_room.py": "what each round plays",
    "room/test_room_tables.py": "the cells of tables and the points of charts, by hand",
    "room/test_seats.py": "who has a seat, what is asked and who is told",
    "room/test_server.py": "how long a connection is waited for, with a clock of its own",
    "room/test_views.py": "what each page is told, whole",
    "study/test_charts.py": "charts of effects that no small study has",
    "study/test_likenesses.py": "comparisons with people that no few runs give",
    "tape/test_journal.py": "the journal of a tape, byte by byte",
    "tape/test_tape_miss.py": "how requests differ, setting by setting",
}
"""Tests that import modules with an underscore, and what they test there."""


def test_tests_use_public_modules_but_for_the_units_named_here(repo: Path) -> None:
    folder = repo / "tests"
    private = re.compile(r"^(?:from|import) llmsim_lab\.(?!_util)[\w.]*\._", re.MULTILINE)
    users = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if private.search(path.read_text("utf-8"))
    }
    assert users == set(TESTED_AS_UNITS)


def test_no_two_files_of_tests_share_a_name_by_which_pytest_imports_them(repo: Path) -> None:
    # In a folder that is a package their names are longer.
    paths = list((repo / "tests").rglob("test_*.py"))
    names = [path.name for path in paths if not (path.parent / "__init__.py").exists()]
    assert sorted({name for name in names if names.count(name) > 1}) == []
