"""The decision log survives a crash, hides secrets and reads as frames."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from assistant_kit import call, context, engine

from llmsim_lab.assistant import DecisionLog
from llmsim_lab.assistant.redaction import Redactor
from llmsim_lab.errors import ConfigError, DataError

ROW: dict[str, Any] = {
    "decision_id": "d1",
    "conversation_id": "c1",
    "user_id": "ann",
    "message": "Add milk",
    "intent_type": "LLM_PROCESSING",
    "decision_type": "PENDING",
    "outcome_category": "PENDING",
    "duration_ms": 0,
}
TOOL: dict[str, Any] = {
    "decision_id": "d1",
    "tool_name": "add_task",
    "parameters": {"title": "Milk"},
    "result": {"id": 1},
    "success": True,
    "error_code": None,
    "error_message": None,
    "duration_ms": 1.5,
}


async def test_a_message_leaves_its_decision_and_its_tools(tmp_path: Path) -> None:
    with DecisionLog(tmp_path / "log.db") as log:
        made = engine(call("add_task", title="Milk"), "Added.", log=log)
        await made.process_message(context("Add milk"))
        decisions, tools = log.decisions_frame(), log.invocations_frame()
    [row] = decisions.to_dict("records")
    assert (row["decision_type"], row["outcome"], row["kind"]) == (
        "INVOKE_TOOL",
        "SUCCESS",
        "TOOL_DONE",
    )
    assert (row["user_id"], row["message"], row["tools"]) == ("ann", "Add milk", 1)
    assert row["created"] <= row["updated"]
    [tool] = tools.to_dict("records")
    assert tool["decision_id"] == row["decision_id"]
    assert tool["parameters"] == {"title": "Milk"}
    assert tool["result"] == {"id": 3, "title": "Milk"}
    assert tool["success"] is True


async def test_a_row_is_pending_first_and_then_has_its_outcome(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.db")
    await log.write_decision_log(**ROW)
    assert log.decisions_frame()["outcome"].tolist() == ["PENDING"]
    done = {"decision_type": "RESPOND_ONLY", "outcome_category": "REFUSAL:DECLINED"}
    await log.write_decision_log(**ROW | done | {"duration_ms": 12.5})
    [row] = log.decisions_frame().to_dict("records")
    assert (row["outcome"], row["kind"], row["duration_ms"]) == ("REFUSAL", "DECLINED", 12.5)
    log.close()


async def test_an_unknown_outcome_is_refused(tmp_path: Path) -> None:
    with DecisionLog(tmp_path / "log.db") as log:
        with pytest.raises(ConfigError, match="outcome_category='FINE' must begin with SUCCESS"):
            await log.write_decision_log(**ROW | {"outcome_category": "FINE"})
        assert len(log.decisions_frame()) == 0


def test_a_killed_program_leaves_the_pending_row(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    script = f"""
        import asyncio, os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from assistant_kit import MemoryTasks, ScriptedAdapter, context
        from llmsim_lab.assistant import DecisionLog, LLMAgentEngine

        class Deadly(ScriptedAdapter):
            async def generate(self, *args, **options):
                os.kill(os.getpid(), signal.SIGKILL)

        log = DecisionLog({str(path)!r})
        engine = LLMAgentEngine(Deadly(""), MemoryTasks(), "Help.", decision_log=log)
        asyncio.run(engine.process_message(context("Add milk")))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], check=False, env=dict(os.environ)
    )
    assert done.returncode == -signal.SIGKILL
    with DecisionLog(path) as log:
        [row] = log.decisions_frame().to_dict("records")
    assert (row["message"], row["decision_type"], row["outcome"], row["kind"]) == (
        "Add milk",
        "PENDING",
        "PENDING",
        "",
    )


async def test_many_messages_at_once_are_all_kept(tmp_path: Path) -> None:
    with DecisionLog(tmp_path / "log.db") as log:
        made = engine("Fine.", log=log)
        await asyncio.gather(*(made.process_message(context(f"m{n}")) for n in range(40)))
        frame = log.decisions_frame()
    assert sorted(frame["message"]) == sorted(f"m{n}" for n in range(40))
    assert set(frame["outcome"]) == {"SUCCESS"}


async def test_the_tools_of_one_decision_can_be_asked_for(tmp_path: Path) -> None:
    with DecisionLog(tmp_path / "log.db") as log:
        for name in ("d1", "d2"):
            await log.write_decision_log(**ROW | {"decision_id": name})
            await log.write_tool_invocation_log(**TOOL | {"decision_id": name})
        assert log.invocations_frame("d2")["decision_id"].tolist() == ["d2"]
        assert len(log.invocations_frame()) == 2


async def test_secrets_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with DecisionLog(path, redact=["password", "pin"]) as log:
        await log.write_decision_log(**ROW | {"message": "my password is hunter2, add milk"})
        await log.write_tool_invocation_log(
            **TOOL
            | {
                "parameters": {"PIN": 4711, "deep": [{"dbPassword": "hunter2"}], "pins": 3},
                "result": {"note": "password=hunter2"},
                "success": False,
                "error_code": "NO",
                "error_message": 'the "password": "hunter2" is wrong',
            }
        )
        [row] = log.invocations_frame().to_dict("records")
        message = log.decisions_frame()["message"][0]
    assert message == "my password is ***, add milk"
    assert row["parameters"] == {"PIN": "***", "deep": [{"dbPassword": "***"}], "pins": 3}
    assert row["result"] == {"note": "password=***"}
    assert row["error_message"] == 'the "password": *** is wrong'
    assert b"hunter2" not in path.read_bytes()


@pytest.mark.parametrize(
    ("key", "hidden"),
    [
        ("token", True),
        ("github_token", True),
        ("API-Key", True),
        ("apiKey", True),
        ("password2", True),
        ("prompt_tokens", False),
        ("key", False),
        ("Authorization", True),
    ],
)
def test_names_of_secrets_are_found_in_any_spelling(key: str, hidden: bool) -> None:
    assert (Redactor().value({key: "x"})[key] == "***") is hidden


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("API key: abc123", "API key: ***"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: ***"),
        ('{"password": "a\\"b c"}', '{"password": ***}'),
        ('{\\"password\\": \\"two words\\"}', '{\\"password\\": ***}'),
        ("password1=x y", "password1=*** y"),
        ("token='a b'; rest", "token=***; rest"),
        ("the tokens are many", "the tokens are many"),
        ("a secret is a secret", "a secret is *** secret"),
    ],
)
def test_secrets_in_text_follow_their_name(text: str, shown: str) -> None:
    assert Redactor().text(text) == shown


def test_nothing_is_hidden_where_nothing_is_named() -> None:
    assert Redactor([]).value({"password": "password=x"}) == {"password": "password=x"}


def test_a_secrets_name_without_letters_is_refused() -> None:
    with pytest.raises(ConfigError, match="must have letters"):
        Redactor(["--"])


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    path.write_text("this is a letter, not a database " * 40)
    with pytest.raises(DataError, match="as a decision log"):
        DecisionLog(path)


def test_a_newer_files_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(DataError, match=r"another version \(9\)"):
        DecisionLog(path)


async def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.db")
    log.close()
    with pytest.raises(DataError, match="cannot write to the decision log"):
        await log.write_decision_log(**ROW)
    assert "log.db" in repr(log)


async def test_a_write_waits_for_another_process_without_holding_up_the_loop(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.db"
    other = sqlite3.connect(path, isolation_level=None)
    with DecisionLog(path) as log:
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(log.write_decision_log(**ROW))
        await asyncio.sleep(0.03)
        assert not writing.done()
        other.execute("COMMIT")
        other.close()
        await writing
        assert len(log.decisions_frame()) == 1


async def test_a_file_that_stays_held_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.db"
    with DecisionLog(path) as log:
        monkeypatch.setattr("llmsim_lab.assistant.decision_log._WAIT_S", 0.02)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DataError, match="locked"):
            await log.write_decision_log(**ROW)
        other.close()
