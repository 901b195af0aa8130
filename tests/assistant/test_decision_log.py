"""The decision log survives a crash, hides secrets and reads as frames."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from assistant_kit import call, context, engine

from llmsim_lab.assistant import DecisionLog
from llmsim_lab.assistant._decision_log import Redactor
from llmsim_lab.assistant.tasks._store import TaskStore
from llmsim_lab.errors import ConfigError, DataError
from llmsim_lab.llm import Tape

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


@pytest.mark.process
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


@pytest.mark.parametrize("results", [[1, None], [1, 2], [1, 2.5], [True, False], [[1], {"a": 2}]])
async def test_results_keep_their_types_in_a_frame(tmp_path: Path, results: list[Any]) -> None:
    with DecisionLog(tmp_path / "log.db") as log:
        await log.write_decision_log(**ROW)
        for result in results:
            await log.write_tool_invocation_log(**TOOL | {"result": result})
        column = log.invocations_frame()["result"]
    assert column.dtype == "object"
    assert repr(column.tolist()) == repr(results)


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
        ("tokens", True),
        ("github_token", True),
        ("API-Key", True),
        ("apiKey", True),
        ("apikey", True),
        ("APIKEY", True),
        ("API_KEY_ID", True),
        ("password2", True),
        ("passwordHash", True),
        ("password_confirmation", True),
        ("userpassword", True),
        ("secretKey", True),
        ("Authorization", True),
        ("secretary", False),
        ("key", False),
    ],
)
def test_names_of_secrets_are_found_in_any_spelling(key: str, hidden: bool) -> None:
    assert (Redactor().value({key: "x"})[key] == "***") is hidden


@pytest.mark.parametrize(
    ("key", "value", "hidden"),
    [
        ("prompt_tokens", 12, False),
        ("token_count", 12, False),
        ("max_tokens", 12.5, False),
        ("tokens", ["a"], True),
        ("prompt_tokens", "a1", True),
        ("token", 12, True),
        ("password", {"value": "x"}, True),
    ],
)
def test_counts_of_what_is_secret_are_none(key: str, value: Any, hidden: bool) -> None:
    assert Redactor().value({key: value}) == {key: "***" if hidden else value}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ([["Authorization", "Bearer x"]], [["Authorization", "***"]]),
        ({"name": "api_key", "value": "x"}, {"name": "api_key", "value": "***"}),
        ({"name": "milk", "value": "x"}, {"name": "milk", "value": "x"}),
        (b"password=x", "b'password=***"),
        ((None, True, 1.5), [None, True, 1.5]),
    ],
)
def test_pairs_of_name_and_value_and_what_is_no_json_hide_secrets_too(
    value: Any, shown: Any
) -> None:
    assert Redactor().value(value) == shown


@pytest.mark.parametrize("name", ["pin", "Пароль"])
def test_names_are_words_of_any_script_and_short_ones_are_whole_words(name: str) -> None:
    redactor = Redactor([name])
    assert redactor.value({name: "x", f"db_{name}": "x"}) == {name: "***", f"db_{name}": "***"}
    assert redactor.text(f"the {name}: x") == f"the {name}: ***"
    assert Redactor(["pin"]).text("spin: 4") == "spin: 4"
    assert Redactor(["pin"]).value({"spin": 4}) == {"spin": 4}


@pytest.mark.parametrize("levels", [101, 2000])
def test_what_is_nested_too_deeply_is_replaced_by_a_remark(levels: int) -> None:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    assert "more than 100 levels deep" in str(Redactor().value(value))


@pytest.mark.parametrize(("levels", "shown"), [(99, '"***"]'), (100, "more than 100 levels deep")])
def test_a_text_that_is_json_is_a_level_more(levels: int, shown: str) -> None:
    text = "[" * (levels - 1) + '["password", "hunter2"]' + "]" * (levels - 1)
    assert shown in Redactor().text(text)


def test_what_contains_itself_is_replaced_by_a_remark() -> None:
    value: dict[str, Any] = {"password": "hunter2"}
    value["self"] = [value]
    shown = str(Redactor().value(value))
    assert "a part of itself" in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    "text",
    [
        'note: {"password": ["hunter2", "swordfish"]} and more',
        'note: {"password": {"value": "hunter2"}} swordfish',
        '{"password": ["hunter2", {"a": "swordfish"}]}',
        '{"a": "{\\"password\\": \\"hunter2 swordfish\\"}"}',
        '{"a": "{\\"b\\": \\"{\\\\\\"token\\\\\\": \\\\\\"hunter2\\\\\\"}\\"}"}',
        '{"password": "hunter2", "password": "swordfish"}',
        '{"a": "password: hunter2", "a": "b"}',
        "password: hunter2 swordfish",
        "my password is: hunter2",
        "my password was hunter2 swordfish",
        "the secret is: hunter2 swordfish",
        "Authorization: ApiKey hunter2",
        "authorization=Bearer hunter2",
        "password='hunter2''swordfish'",
        "password = 'hunter2\nswordfish'",
        "password='hunter2 swordfish",
        "password\uff1ahunter2",
        "password -> hunter2",
        "run --password hunter2",
        "run --db-password hunter2 -v",
        "userpassword=hunter2",
        "API_KEY_ID=hunter2",
        "password=hunter2,swordfish",
        "secretary: Bob, token: hunter2",
        "tokens: hunter2",
    ],
)
def test_a_secret_after_its_name_does_not_stay_in_a_text(text: str) -> None:
    shown = Redactor().text(text)
    assert "***" in shown
    assert "hunter2" not in shown
    assert "swordfish" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "the password manager",
        "a list of tokens, all counted",
        "tokens: 512",
        "token_count=5",
        "secretary: Bob",
        "token:",
        '{"prompt_tokens": 5}',
        "{not json",
    ],
)
def test_texts_without_secrets_stay_as_they_are(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("API key: abc123", "API key: ***"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: ***"),
        ('{"password": "a\\"b c"}', '{"password": "***"}'),
        ('the "password": "a" is wrong', 'the "password": *** is wrong'),
        ('{\\"password\\": \\"two words\\"}', '{\\"password\\": ***}'),
        ("password1=x y", "password1=*** y"),
        ("token='a b'; rest", "token=***; rest"),
        ("the tokens are many", "the tokens are many"),
        ("a secret is a secret", "a secret is ***"),
        ("token=abc&user=ann", "token=***&user=ann"),
        ("my password is x y, add milk", "my password is ***, add milk"),
        ("password: x\nadd milk", "password: ***\nadd milk"),
    ],
)
def test_secrets_in_text_follow_their_name(text: str, shown: str) -> None:
    assert Redactor().text(text) == shown


def test_nothing_is_hidden_where_nothing_is_named() -> None:
    assert Redactor([]).value({"password": "password=x"}) == {"password": "password=x"}


async def test_half_a_character_is_written_as_its_escape(tmp_path: Path) -> None:
    with DecisionLog(tmp_path / "log.db") as log:
        made = engine(call("add_task", title="a \ud800"), "Added.", log=log)
        await made.process_message(context("Add \ud800", conversation_id="c\udfff"))
        [row] = log.decisions_frame().to_dict("records")
        [tool] = log.invocations_frame().to_dict("records")
    assert (row["message"], row["conversation_id"]) == ("Add \\ud800", "c\\udfff")
    assert tool["parameters"] == {"title": "a \ud800"}


async def test_a_result_without_end_is_written_as_far_as_it_goes(tmp_path: Path) -> None:
    endless: dict[str, Any] = {}
    endless["a"] = endless
    with DecisionLog(tmp_path / "log.db") as log:
        await log.write_tool_invocation_log(**TOOL | {"parameters": endless, "result": endless})
        [row] = log.invocations_frame().to_dict("records")
    assert "a part of itself" in str(row["result"])
    assert "a part of itself" in str(row["parameters"])


async def test_a_result_that_cannot_be_written_is_a_data_error(tmp_path: Path) -> None:
    with DecisionLog(tmp_path / "log.db") as log:
        with pytest.raises(DataError, match="result cannot be written"):
            await log.write_tool_invocation_log(**TOOL | {"result": 10**5000})
        assert len(log.invocations_frame()) == 0


async def test_the_frames_columns_have_their_types_also_without_rows(tmp_path: Path) -> None:
    with DecisionLog(tmp_path / "log.db") as log:
        empty = [log.decisions_frame().dtypes, log.invocations_frame().dtypes]
        await log.write_decision_log(**ROW)
        await log.write_tool_invocation_log(**TOOL)
        failed = {"result": None, "success": False, "error_code": "NO", "error_message": "no"}
        one = log.invocations_frame().dtypes
        await log.write_tool_invocation_log(**TOOL | failed)
        filled = [log.decisions_frame().dtypes, log.invocations_frame().dtypes]
    assert empty[0].to_dict() == filled[0].to_dict()
    assert empty[1].to_dict() == one.to_dict() == filled[1].to_dict()


def test_a_secrets_name_without_letters_is_refused() -> None:
    with pytest.raises(ConfigError, match="must have letters"):
        Redactor(["--"])


def test_one_text_is_not_a_list_of_secrets_names() -> None:
    with pytest.raises(ConfigError, match=r"give a list of names: \['password'\]"):
        Redactor("password")


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    path.write_text("this is a letter, not a database " * 40)
    with pytest.raises(DataError, match="as a decision log"):
        DecisionLog(path)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("CREATE TABLE notes (text TEXT)", r"it holds other things \(notes\)"),
        ("CREATE VIEW latest AS SELECT 1 AS one", r"it holds other things \(latest\)"),
        ("CREATE TABLE decisions (id INTEGER)", "its table decisions has the columns id where"),
        ("PRAGMA user_version = 9", r"by another version \(9\), or by something else"),
    ],
)
def test_a_database_for_other_things_is_refused_and_left_alone(
    tmp_path: Path, statement: str, why: str
) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
    before = path.read_bytes()
    with pytest.raises(DataError, match=why):
        DecisionLog(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_task_servers_file_is_no_log_and_still_holds_its_tasks(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with closing(TaskStore(path)) as store:
        store.add("ann", "Buy milk")
    with pytest.raises(DataError, match=r"holds other things \(tasks, users\)"):
        DecisionLog(path)
    with closing(TaskStore(path)) as store:
        assert [task.description for task in store.list("ann")] == ["Buy milk"]


def test_a_runs_tape_is_no_log_and_can_still_be_read(tmp_path: Path) -> None:
    path = tmp_path / "run.tape"
    Tape(path).close()
    with pytest.raises(DataError, match="holds other things"):
        DecisionLog(path)
    with closing(Tape(path)) as tape:
        assert tape.runs() == []


async def test_a_log_is_opened_again_also_with_statistics_in_it(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with DecisionLog(path) as log:
        await log.write_decision_log(**ROW)
    with closing(sqlite3.connect(path)) as db:
        db.execute("ANALYZE")
    with DecisionLog(path) as log:
        assert len(log.decisions_frame()) == 1


def test_a_file_that_was_refused_is_not_kept_open(tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("this is a letter, not a database " * 40)
    with pytest.raises(DataError) as refused:
        DecisionLog(letter)
    assert refused.tb, "which would hold a connection that is not closed"
    assert str(letter.resolve()) not in [file.path for file in psutil.Process().open_files()]


async def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.db")
    log.close()
    with pytest.raises(DataError, match="cannot write to the decision log"):
        await log.write_decision_log(**ROW)
    for frame in (log.decisions_frame, log.invocations_frame):
        with pytest.raises(DataError, match="cannot read the decision log"):
            frame()
    assert "log.db" in repr(log)


async def test_a_log_is_written_and_read_from_other_threads(tmp_path: Path) -> None:
    with DecisionLog(tmp_path / "log.db") as log:
        writes = [
            asyncio.to_thread(asyncio.run, log.write_decision_log(**ROW | {"decision_id": name}))
            for name in ("d1", "d2", "d3")
        ]
        await asyncio.gather(*writes)
        await asyncio.to_thread(asyncio.run, log.write_tool_invocation_log(**TOOL))
        decisions = await asyncio.to_thread(log.decisions_frame)
        assert sorted(decisions["decision_id"]) == ["d1", "d2", "d3"]
        assert log.invocations_frame("d1")["tool_name"].tolist() == ["add_task"]


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
        monkeypatch.setattr("llmsim_lab.assistant._decision_log._WAIT_S", 0.02)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DataError, match="locked"):
            await log.write_decision_log(**ROW)
        other.close()
