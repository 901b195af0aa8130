"""What README and the other pages tell people to type works.

Python blocks of one page run in order in one namespace, in an empty folder, without a network;
``connect("auto")`` finds a fake Ollama. A text block that follows one at once is what it prints.
Commands in shell blocks are checked, not run, but for those around a tape.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent

import jq
import pytest
from fake_ollama import FakeOllama

from llmsim_lab.cli import main
from llmsim_lab.llm import Tape

REPO = Path(__file__).resolve().parents[2]
PAGES = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"^( *)```(\w+)[^\n]*\n(.*?)^\1```\n(?:\n*^\1```text\n(.*?)^\1```)?", re.MULTILINE | re.DOTALL
)
PRINTED = "\x1e"
"""Printed between the blocks of a page."""

NO_NETWORK = """
import socket as _socket
def _only_here(self, address, _connect=_socket.socket.connect):
    internet = self.family in (_socket.AF_INET, _socket.AF_INET6)
    if internet and address[0] not in ("127.0.0.1", "::1"):
        raise SystemExit(f"a documented example connects to {address}")
    return _connect(self, address)
_socket.socket.connect = _only_here
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language, its text, and what it is to print."""

    page: Path
    line: int
    language: str
    code: str
    prints: str | None = None


def blocks(page: Path, *languages: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [
        Block(
            page,
            text.count("\n", 0, match.start()) + 2,
            match[2],
            dedent(match[3]),
            None if match[4] is None else dedent(match[4]),
        )
        for match in FENCE.finditer(text)
    ]
    return [block for block in found if block.language in languages]


def commands(page: Path) -> list[list[str]]:
    """Return the commands of a page's shell blocks, split into words; comments are left out."""
    return [
        words
        for block in blocks(page, "bash", "sh", "shell", "console")
        for line in block.code.replace("\\\n", " ").splitlines()
        for command in _split(line.removeprefix("$ "))
        if (words := shlex.split(command, comments=True))
    ]


def _split(line: str) -> list[str]:
    # A program of jq has pipes of its own.
    return [line] if line.startswith("jq ") else re.split(r"&&|;|\|", line)


def page_id(page: Path) -> str:
    return str(page.relative_to(REPO))


with_python = pytest.mark.parametrize(
    "page", [page for page in PAGES if page.exists() and blocks(page, "python")], ids=page_id
)
every_page = pytest.mark.parametrize("page", [p for p in PAGES if p.exists()], ids=page_id)


def run(command: list[str], folder: Path) -> str:
    """Run a command with a fake Ollama, without this machine's settings; return its output."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if "LLMSIM" not in name}
    with FakeOllama() as server:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment | {"OLLAMA_HOST": server.host, "PATH": programs, "MPLBACKEND": "Agg"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.process
@with_python
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    # Each block stands at its own line, so that tracebacks and sources are those of the page.
    code = ""
    for block in blocks(page, "python"):
        code += "\n" * (block.line - 1 - code.count("\n")) + block.code + f"print({PRINTED!r})\n"
    script = (
        f"{NO_NETWORK}\nexec(compile({code!r}, {str(page)!r}, 'exec'), {{'__name__': '__main__'}})"
    )
    printed = run([sys.executable, "-W", "error", "-c", script], tmp_path).split(PRINTED)
    for block, text in zip(blocks(page, "python"), printed, strict=False):
        if block.prints is not None:
            assert _plain(text) == _plain(block.prints), f"line {block.line} of {page.name}"


def _plain(printed: str) -> list[str]:
    return [line.rstrip() for line in printed.strip("\n").splitlines()]


def test_each_recipe_of_the_cookbook_shows_what_it_prints() -> None:
    setting_up, *recipes = blocks(REPO / "docs" / "cookbook.md", "python")
    assert setting_up.prints is None
    assert len(recipes) == 10
    assert all(block.prints and block.code.count("\n") <= 60 for block in recipes)


@pytest.mark.process
def test_the_commands_around_a_tape_follow_from_one_another(tmp_path: Path) -> None:
    [block] = [it for it in blocks(REPO / "docs" / "tapes.md", "bash") if "tape prune" in it.code]
    for name in ("data", "llmsim_lab"):
        (tmp_path / name).symlink_to(REPO / name)
    run(["bash", "-exc", block.code], tmp_path)
    with Tape(tmp_path / "my.tape", read_only=True) as tape:
        assert [(info.id, info.parent) for info in tape.runs()] == [(1, None), (3, 1)]
        prompts = tape.run(3).manifest["prompts"].values()
    assert [it["name"] for it in prompts if it["parent"] is not None] == ["agent_briefing"]


def test_a_tape_is_read_with_jq_as_its_page_says() -> None:
    [block] = [it for it in blocks(REPO / "docs" / "tapes.md", "bash") if it.code.startswith("jq ")]
    _, _, program, _ = shlex.split(block.code)
    path = REPO / "data" / "tapes" / "first_run.tape"
    rows = jq.compile(program).input_text(path.read_text(encoding="utf-8")).all()
    with Tape(path, read_only=True) as tape:
        calls = [call for run in tape.runs() for call in tape.calls(run.id, forgotten=True)]
    assert len(rows) == sum(call.attempt.reply is not None for call in calls)
    assert rows[0].startswith("1\t1\tUnited States\t")


@every_page
def test_make_targets_on_a_page_exist(page: Path) -> None:
    rules = set(re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text(), re.MULTILINE))
    named = {word for words in commands(page) if words[0] == "make" for word in words[1:]}
    named |= set(re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8")))
    assert {word for word in named if "=" not in word and not word.startswith("-")} <= rules


@every_page
def test_commands_on_a_page_are_understood(page: Path) -> None:
    for words in commands(page):
        program, *arguments = words
        if Path(program).name != "llmsim-lab":
            continue
        options = [word.partition("=")[0] for word in arguments if word.startswith("-")]
        known = _help_for(arguments)
        assert [option for option in options if not re.search(rf"(?<!\S){option}\b", known)] == []


def _help_for(arguments: list[str]) -> str:
    """Return the help text of the deepest subcommand that the arguments name."""
    path: list[str] = []
    text = _run_help(*path)
    for word in arguments:
        if word.startswith("-") or not re.search(rf"^\W*{re.escape(word)}\s", text, re.MULTILINE):
            break
        path.append(word)
        text = _run_help(*path)
    assert path or not arguments or arguments[0].startswith("-"), f"no such command: {arguments[0]}"
    return text


@cache
def _run_help(*path: str) -> str:
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setattr(sys, "argv", ["llmsim-lab", *path, "--help"])
        for name, value in {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code, printed.getvalue()
    return printed.getvalue()


@every_page
def test_links_and_files_named_on_a_page_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    named = {page.parent / link for link in links if "://" not in link}
    named |= {REPO / word for words in commands(page) for word in words if word.endswith(".yaml")}
    assert sorted(str(path) for path in named if not path.exists()) == []
