from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmsim_lab.assistant import MCPToolExecutor, ToolResult, ToolServerError
from llmsim_lab.assistant.protocols import DeclaresTools, ToolExecutor
from llmsim_lab.assistant.tasks import TaskStore
from llmsim_lab.assistant.tasks.server import task_server
from llmsim_lab.concurrency import run_sync
from llmsim_lab.errors import ConfigError
from tests.assistant_tools import faulty_server

HERE = Path(__file__).parent
FAULTY = [sys.executable, str(HERE / "faulty_server.py")]
RAW = [sys.executable, str(HERE / "raw_server.py")]


@pytest.fixture(scope="module")
def faulty() -> Iterator[MCPToolExecutor]:
    tools = MCPToolExecutor(FAULTY, timeout_s=20)
    yield tools
    tools.close()


@pytest.fixture(scope="module")
def raw() -> Iterator[MCPToolExecutor]:
    tools = MCPToolExecutor(RAW, timeout_s=20)
    yield tools
    tools.close()


@pytest.fixture
def memory() -> Iterator[MCPToolExecutor]:
    store = TaskStore()
    tools = MCPToolExecutor(task_server(store))
    yield tools
    tools.close()
    store.close()


def impatient(tools: MCPToolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "timeout_s", 0.2)


async def test_the_executor_has_the_roles_that_the_engine_asks_for(
    memory: MCPToolExecutor,
) -> None:
    assert isinstance(memory, ToolExecutor)
    assert isinstance(memory, DeclaresTools)


def test_tools_are_known_without_an_event_loop(memory: MCPToolExecutor) -> None:
    assert memory.get_available_tools() == [
        "add_task",
        "list_tasks",
        "update_task",
        "complete_task",
        "delete_task",
    ]


def test_declarations_say_what_deletes_and_have_no_user(memory: MCPToolExecutor) -> None:
    add, delete = memory.get_tool_declarations(["add_task", "delete_task"])
    assert (add.destructive, delete.destructive) == (False, True)
    assert add.parameters == {
        "type": "object",
        "properties": {
            "description": {
                "description": "What is to be done, in a few words.",
                "maxLength": 1000,
                "minLength": 1,
                "type": "string",
            }
        },
        "required": ["description"],
    }


def test_a_server_that_does_not_say_leaves_it_to_the_name(faulty: MCPToolExecutor) -> None:
    [die] = faulty.get_tool_declarations(["die", "no_such_tool"])
    assert die.destructive is None


async def test_a_result_is_plain_data(memory: MCPToolExecutor) -> None:
    result = await memory.execute("add_task", {"description": " Buy milk "}, "ann")
    assert result == ToolResult(
        success=True, data={"id": 1, "description": "Buy milk", "done": False}
    )


@pytest.mark.parametrize(
    ("tool", "data"),
    [
        ("plain", "just a text"),
        ("many_texts", "one\ntwo"),
        ("whoami", {"argument": "ann", "metadata": "ann"}),
    ],
)
async def test_results_of_all_shapes_arrive(faulty: MCPToolExecutor, tool: str, data: str) -> None:
    assert (await faulty.execute(tool, {}, "ann")).data == data


async def test_the_users_identity_replaces_what_the_arguments_say(faulty: MCPToolExecutor) -> None:
    result = await faulty.execute("whoami", {"user_id": "bob"}, "ann")
    assert result.data == {"argument": "ann", "metadata": "ann"}


async def test_an_older_servers_json_text_is_read(raw: MCPToolExecutor) -> None:
    assert (await raw.execute("noise", {}, "ann")).data == {"good": True}
    assert (await raw.execute("no_json", {}, "ann")).data == "just a text"
    assert (await raw.execute("picture", {}, "ann")).data == [{"left_out": "image"}]


async def test_a_tools_own_refusal_is_told_in_its_words(memory: MCPToolExecutor) -> None:
    result = await memory.execute("complete_task", {"task_id": 7}, "ann")
    assert result == ToolResult(
        success=False,
        error="there is no task 7; list the tasks to see which there are",
        error_code="TOOL_ERROR",
    )


async def test_a_crash_in_a_tool_tells_nothing_of_its_inside(faulty: MCPToolExecutor) -> None:
    result = await faulty.execute("crash", {}, "ann")
    assert result.error_code == "TOOL_ERROR"
    assert "internal detail" not in str(result.error)


async def test_a_tool_that_is_not_there_is_a_result(memory: MCPToolExecutor) -> None:
    result = await memory.execute("format_disk", {}, "ann")
    assert (result.success, result.error_code) == (False, "TOOL_NOT_FOUND")


async def test_a_tool_that_came_later_is_found() -> None:
    server = task_server(TaskStore())
    async with MCPToolExecutor(server) as tools:
        server.add_tool(faulty_server.plain, name="late_tool", structured_output=False)
        result = await tools.execute("late_tool", {}, "ann")
        assert result.data == "just a text"
        assert "late_tool" in tools.get_available_tools()


async def test_a_server_that_says_its_tools_changed_is_asked_again() -> None:
    async with MCPToolExecutor(RAW) as tools:
        assert "late" not in tools.get_available_tools()
        assert (await tools.execute("grow", {}, "ann")).data == "grown"
        assert "late" in tools.get_available_tools()


async def test_the_shipped_server_is_started_as_a_program(tmp_path: Path) -> None:
    async with MCPToolExecutor.tasks(tmp_path / "tasks.db") as tools:
        await tools.execute("add_task", {"description": "Buy milk"}, "ann")
    store = TaskStore(tmp_path / "tasks.db")
    assert [task.description for task in store.list("ann")] == ["Buy milk"]
    store.close()


async def test_two_users_calls_at_once_do_not_mix(memory: MCPToolExecutor) -> None:
    users = [f"user{number}" for number in range(20)]
    await asyncio.gather(
        *(memory.execute("add_task", {"description": user}, user) for user in users)
    )
    lists = await asyncio.gather(*(memory.execute("list_tasks", {}, user) for user in users))
    assert [[task["description"] for task in found.data["tasks"]] for found in lists] == [
        [user] for user in users
    ]


async def test_one_connection_serves_several_loops_and_threads(faulty: MCPToolExecutor) -> None:
    found: list[ToolResult] = []
    work = lambda: found.append(asyncio.run(faulty.execute("plain", {}, "ann")))  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    here = await faulty.execute("plain", {}, "ann")
    for thread in threads:
        await asyncio.to_thread(thread.join)
    by_run_sync = await asyncio.to_thread(run_sync, faulty.execute("plain", {}, "ann"))
    assert [result.data for result in [*found, here, by_run_sync]] == ["just a text"] * 6


async def test_a_server_that_dies_in_a_call_is_a_result_and_starts_again(
    faulty: MCPToolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    result = await faulty.execute("die", {}, "ann")
    assert (result.success, result.error_code) == (False, "SERVER_DIED")
    assert "may have been done" in str(result.error)
    assert (await faulty.execute("count", {}, "ann")).data == 1
    assert "I cannot go on" in caplog.text
    assert "I cannot go on" not in str(result.error)


async def test_a_server_that_died_between_calls_is_not_noticed(faulty: MCPToolExecutor) -> None:
    assert (await faulty.execute("die_soon", {}, "ann")).data == "good bye"
    await asyncio.sleep(0.5)
    assert (await faulty.execute("count", {}, "ann")).data == 1


async def test_a_server_that_hangs_is_given_up_and_started_again(
    faulty: MCPToolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await faulty.start()
    with monkeypatch.context() as patch:
        impatient(faulty, patch)
        result = await faulty.execute("hang", {}, "ann")
    assert (result.success, result.error_code) == (False, "TIMEOUT")
    assert "within 0.2 s" in str(result.error)
    assert (await faulty.execute("count", {}, "ann")).data == 1


async def test_a_slow_tool_does_not_cost_the_server_its_life(
    faulty: MCPToolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (await faulty.execute("count", {}, "ann")).data
    with monkeypatch.context() as patch:
        impatient(faulty, patch)
        assert (await faulty.execute("slow", {}, "ann")).error_code == "TIMEOUT"
    assert (await faulty.execute("count", {}, "ann")).data == before + 1


async def test_a_caller_that_gives_up_leaves_the_server_usable(faulty: MCPToolExecutor) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await faulty.execute("slow", {}, "ann")
    assert (await faulty.execute("plain", {}, "ann")).success


async def test_garbage_instead_of_an_answer_is_an_invalid_result(
    raw: MCPToolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await raw.start()
    with monkeypatch.context() as patch:
        impatient(raw, patch)
        result = await raw.execute("garbage", {}, "ann")
    assert (result.success, result.error_code) == (False, "INVALID_RESULT")
    assert "Segmentation" not in str(result.error)
    assert (await raw.execute("noise", {}, "ann")).success


@pytest.mark.parametrize("tool", ["nonsense", "wrong_schema"])
async def test_an_answer_of_the_wrong_form_is_an_invalid_result(
    raw: MCPToolExecutor, tool: str
) -> None:
    assert (await raw.execute(tool, {}, "ann")).error_code == "INVALID_RESULT"


def test_a_server_that_cannot_start_says_its_last_words() -> None:
    tools = MCPToolExecutor([*FAULTY, "--broken"])
    with pytest.raises(ToolServerError, match="no database here"):
        tools.get_available_tools()
    assert run_sync(tools.execute("count", {}, "ann")).error_code == "SERVER_DIED"


def test_a_server_that_never_answers_is_given_up_at_its_start() -> None:
    tools = MCPToolExecutor([*FAULTY, "--silent"], start_timeout_s=0.5)
    with pytest.raises(ToolServerError, match=r"did not answer within 0\.5 s"):
        tools.get_available_tools()


def test_a_program_that_is_not_there_is_a_wrong_configuration() -> None:
    with pytest.raises(ConfigError, match="no-such-server"):
        MCPToolExecutor(["no-such-server"]).get_available_tools()


async def test_tools_that_were_closed_stay_closed(memory: MCPToolExecutor) -> None:
    await memory.aclose()
    with pytest.raises(ConfigError, match="make the executor again"):
        await memory.start()


def test_closing_what_never_started_does_nothing() -> None:
    MCPToolExecutor(FAULTY).close()


async def test_an_executor_that_nobody_holds_ends_its_server() -> None:
    store = TaskStore()
    ended = threading.Event()
    tools = MCPToolExecutor(task_server(store))
    await tools.start()
    link = tools._link
    connection = link._connection
    assert connection is not None
    del tools, link
    gc.collect()
    for _ in range(100):
        if connection.ended.is_set():
            ended.set()
            break
        await asyncio.sleep(0.02)
    assert ended.is_set()


@pytest.mark.parametrize("server", ["llmsim-lab-tasks", [], [1], None])
def test_a_server_that_is_no_command_is_refused(server: object) -> None:
    with pytest.raises(ConfigError, match="a list of words"):
        MCPToolExecutor(server)  # type: ignore[arg-type]


def test_settings_that_cannot_apply_are_refused() -> None:
    with pytest.raises(ConfigError, match="env and cwd"):
        MCPToolExecutor(task_server(TaskStore()), cwd="/")
    with pytest.raises(ConfigError, match=r"timeout_s=0 must be above 0 seconds"):
        MCPToolExecutor(FAULTY, timeout_s=0)


def test_the_repr_says_which_server(memory: MCPToolExecutor) -> None:
    assert repr(memory) == "MCPToolExecutor(llmsim-lab-tasks in memory)"
    assert "faulty_server.py" in repr(MCPToolExecutor(FAULTY))
