"""``llmsim-lab-tasks`` as a program, and what it says when it cannot serve."""

from __future__ import annotations

import json
import logging
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab.assistant.tasks.__main__ import main
from llmsim_lab.assistant.tasks._store import TaskStore

COMMAND = [sys.executable, "-m", "llmsim_lab.assistant.tasks"]


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def request(number: int, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"


HELLO = request(
    1,
    "initialize",
    protocolVersion="2025-06-18",
    capabilities={},
    clientInfo={"name": "by hand", "version": "0"},
)
READY = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n"


class Program:
    """The command as a process of its own, spoken to in lines."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, line: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["result"]

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def ended(self) -> tuple[int, str, str]:
        """Close its input; return its code and the rest of its output."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.mark.process
def test_a_client_of_a_few_lines_can_use_it(tmp_path: Path) -> None:
    program = Program("--db", str(tmp_path / "tasks.db"), "--user", "ann")
    assert program.ask(HELLO)["serverInfo"]["name"] == "llmsim-lab-tasks"
    program.tell(READY)
    arguments = {"description": "Buy milk"}
    result = program.ask(request(2, "tools/call", name="add_task", arguments=arguments))
    assert result["structuredContent"] == {"id": 1, "description": "Buy milk", "done": False}
    arguments = {"task_id": "1"}
    refused = program.ask(request(3, "tools/call", name="delete_task", arguments=arguments))
    assert refused["isError"] is True
    assert refused["_meta"]["llmsim-lab/error_code"] == "INVALID_PARAMETERS"
    assert "task_id must be a whole number" in refused["content"][0]["text"]
    assert program.ended() == (0, "", "")


@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="another program's Ctrl-C cannot be sent there")
def test_ctrl_c_ends_it_although_it_waits_for_input(tmp_path: Path) -> None:
    program = Program("--db", str(tmp_path / "tasks.db"), "--user", "ann")
    program.ask(HELLO)
    program.tell(READY)
    program.ask(request(2, "tools/call", name="add_task", arguments={"description": "Milk"}))
    program.process.send_signal(signal.SIGINT)
    assert program.process.wait(timeout=60) == -signal.SIGINT
    assert program.ended()[1:] == ("", "")
    store = TaskStore(tmp_path / "tasks.db")
    assert [task.description for task in store.list("ann")] == ["Milk"]
    store.close()


def test_help_says_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "MCP clients start this command themselves" in " ".join(said.split())
    assert "--db FILE" in said


def test_it_runs_as_a_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tasks", "--help"])
    monkeypatch.delitem(sys.modules, "llmsim_lab.assistant.tasks.__main__")  # runpy minds it
    with pytest.raises(SystemExit):
        runpy.run_module("llmsim_lab.assistant.tasks", run_name="__main__")
    assert capsys.readouterr().out.startswith("usage: llmsim-lab-tasks")


def test_a_wrong_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--database", "tasks.db"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --database" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--db", "no/such/tasks.db"], "cannot keep tasks in no/such/tasks.db: unable to open"),
        (["--db", "folder"], "cannot keep tasks in folder: unable to open"),
        (["--db", "letter.txt"], "cannot keep tasks in letter.txt: file is not a database"),
        (["--db", "/proc/tasks.db"], "/proc/tasks.db: unable to open database file"),
        (["--user", ""], "user='' has 0 characters; it must have 1 to 200"),
    ],
)
def test_what_keeps_it_from_serving_is_said_in_a_line(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "letter.txt").write_text("Dear Ann, " * 100)
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("llmsim-lab-tasks: ")
    assert said in err


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "llmsim_lab.assistant.tasks._server", None)
    assert main([]) == 1
    assert "pip install 'llmsim-lab[tools]'" in capsys.readouterr().err


@dataclass
class Served:
    """What a client of the command in this process saw."""

    answers: list[Any] = field(default_factory=list)
    ctrl_c: set[Any] = field(default_factory=set)
    """What Ctrl-C did meanwhile."""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    """The command, run in this process until its input ended."""
    (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
    seen = Served()

    def use_it() -> None:
        with os.fdopen(read_out) as out, os.fdopen(write_in, "w", buffering=1) as into:
            for line in (HELLO, READY + request(2, "tools/list")):
                into.write(line)
                into.flush()
                seen.answers.append(json.loads(out.readline())["result"])
                seen.ctrl_c.add(signal.getsignal(signal.SIGINT))

    client = threading.Thread(target=use_it)
    client.start()
    with os.fdopen(read_in) as stdin, os.fdopen(write_out, "w") as stdout:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main(["--db", str(tmp_path / "tasks.db"), "--user", "ann"]) == 0
    client.join()
    return seen


def test_it_serves_until_its_input_ends(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert served.answers[0]["serverInfo"]["name"] == "llmsim-lab-tasks"
    assert len(served.answers[1]["tools"]) == 5
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("ctrl_c")  # before it serves
def test_serving_leaves_the_programs_own_ctrl_c_as_it_was(served: Served) -> None:
    assert served.ctrl_c == {signal.SIG_DFL}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
