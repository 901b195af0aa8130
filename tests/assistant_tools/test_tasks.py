from __future__ import annotations

import logging
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from llmsim_lab.assistant.tasks import MAX_CHARS, Task, TaskError, TaskStore
from llmsim_lab.assistant.tasks import store as store_module
from llmsim_lab.assistant.tasks.cli import main
from llmsim_lab.assistant.tasks.server import task_server
from llmsim_lab.errors import ConfigError

COMMAND = [sys.executable, "-m", "llmsim_lab.assistant.tasks"]
ANN = {"llmsim-lab/user_id": "ann"}
BOB = {"llmsim-lab/user_id": "bob"}


@pytest.fixture
def store() -> TaskStore:
    made = TaskStore()
    made.add("ann", "Buy milk")
    made.add("bob", "Bob's secret")
    made.add("ann", "Call mum")
    return made


def test_each_user_has_numbers_from_one(store: TaskStore) -> None:
    assert [(task.id, task.description) for task in store.list("ann")] == [
        (1, "Buy milk"),
        (2, "Call mum"),
    ]
    assert store.list("bob") == [Task(id=1, description="Bob's secret")]


def test_a_number_is_never_given_twice(store: TaskStore) -> None:
    store.delete("ann", 2)
    assert store.add("ann", "Water plants").id == 3


def test_done_and_open_tasks_can_be_listed_apart(store: TaskStore) -> None:
    store.complete("ann", 1)
    assert [task.id for task in store.list("ann", "open")] == [2]
    assert [task.id for task in store.list("ann", "done")] == [1]


def test_an_update_keeps_whether_it_is_done(store: TaskStore) -> None:
    store.complete("ann", 1)
    assert store.update("ann", 1, " Buy oat milk ") == Task(
        id=1, description="Buy oat milk", done=True
    )


@pytest.mark.parametrize("description", ["", "  \n ", "x" * (MAX_CHARS + 1), "a\ud800", "a\0b"])
def test_a_description_that_will_not_do_changes_nothing(store: TaskStore, description: str) -> None:
    with pytest.raises(TaskError):
        store.add("ann", description)
    with pytest.raises(TaskError):
        store.update("ann", 1, description)
    assert [task.description for task in store.list("ann")] == ["Buy milk", "Call mum"]


@pytest.mark.parametrize("length", [1, MAX_CHARS])
def test_descriptions_of_all_allowed_lengths_are_kept(store: TaskStore, length: int) -> None:
    assert store.add("ann", "é" * length).description == "é" * length


@pytest.mark.parametrize("number", [3, 0, -1, 2**70])
def test_a_task_that_is_not_there_cannot_be_changed(store: TaskStore, number: int) -> None:
    for change in (store.complete, store.delete):
        with pytest.raises(TaskError, match=f"there is no task {number}"):
            change("ann", number)


def test_another_users_task_looks_like_none_at_all(store: TaskStore) -> None:
    store.add("bob", "Another")
    store.add("bob", "A third")
    with pytest.raises(TaskError) as foreign:
        store.delete("ann", 3)
    with pytest.raises(TaskError) as absent:
        store.delete("carl", 3)
    assert str(foreign.value) == str(absent.value)
    assert len(store.list("bob")) == 3


def test_there_is_a_most_of_tasks(store: TaskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_TASKS", 2)
    with pytest.raises(TaskError, match="2 is the most"):
        store.add("ann", "One more")
    assert store.add("bob", "Still room").id == 2


def test_tasks_outlive_the_store(tmp_path: Path) -> None:
    first = TaskStore(tmp_path / "tasks.db")
    first.add("ann", "Buy milk")
    first.close()
    second = TaskStore(tmp_path / "tasks.db")
    assert [task.description for task in second.list("ann")] == ["Buy milk"]
    second.close()


def test_threads_and_stores_on_one_file_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    stores = [TaskStore(tmp_path / "tasks.db") for _ in range(2)]

    def add(store: TaskStore) -> None:
        for _ in range(20):
            store.add("ann", "again")

    threads = [threading.Thread(target=add, args=(store,)) for store in stores * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [task.id for task in stores[0].list("ann")] == list(range(1, 81))
    for store in stores:
        store.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear Ann, " * 100)
    with pytest.raises(ConfigError, match="cannot keep tasks in"):
        TaskStore(tmp_path / "letter.txt")
    with pytest.raises(ConfigError, match="cannot open"):
        TaskStore(tmp_path / "no" / "such" / "folder.db")


async def called(client: Client, tool: str, meta: Any = None, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments, meta=meta)
    if result.is_error:
        return result.content[0].text  # type: ignore[union-attr]
    return result.structured_content


async def test_the_sdks_own_client_can_use_the_server_over_stdio(tmp_path: Path) -> None:
    db = tmp_path / "tasks.db"
    command = StdioServerParameters(
        command=COMMAND[0], args=[*COMMAND[1:], "--db", str(db), "--user", "ann"]
    )
    async with Client(command) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert sorted(tools) == [
            "add_task",
            "complete_task",
            "delete_task",
            "list_tasks",
            "update_task",
        ]
        milk = {"id": 1, "description": "Buy milk", "done": False}
        assert await called(client, "add_task", description="Buy milk") == milk
        oat = {**milk, "description": "Buy oat milk"}
        changed = await called(client, "update_task", task_id=1, description="Buy oat milk")
        assert changed == oat
        assert await called(client, "complete_task", task_id=1) == {**oat, "done": True}
        assert await called(client, "list_tasks", status="open") == {"tasks": []}
        assert await called(client, "delete_task", task_id=1) == {**oat, "done": True}
        assert await called(client, "list_tasks") == {"tasks": []}
    with sqlite3.connect(db) as rows:
        assert rows.execute("SELECT user_id, last_number FROM users").fetchall() == [("ann", 1)]
    rows.close()


async def test_no_tool_takes_the_user_as_an_argument(store: TaskStore) -> None:
    async with Client(task_server(store)) as client:
        for tool in (await client.list_tools()).tools:
            assert "user" not in str(tool.input_schema["properties"])
        bobs = await called(client, "list_tasks", ANN, user_id="bob")
    assert [task["description"] for task in bobs["tasks"]] == ["Buy milk", "Call mum"]


async def test_the_server_keeps_users_apart_by_the_requests_metadata(store: TaskStore) -> None:
    async with Client(task_server(store)) as client:
        assert len((await called(client, "list_tasks", ANN))["tasks"]) == 2
        assert len((await called(client, "list_tasks", BOB))["tasks"]) == 1
        assert "there is no task 2" in await called(client, "delete_task", BOB, task_id=2)
    assert len(store.list("ann")) == 2


@pytest.mark.parametrize("meta", [None, {}, {"llmsim-lab/user_id": 7}, {"llmsim-lab/user_id": ""}])
async def test_a_request_for_nobody_is_refused(store: TaskStore, meta: Any) -> None:
    async with Client(task_server(store)) as client:
        assert "does not say which user" in await called(client, "list_tasks", meta)


async def test_a_server_for_one_user_refuses_others(store: TaskStore) -> None:
    async with Client(task_server(store, user="ann")) as client:
        assert len((await called(client, "list_tasks"))["tasks"]) == 2
        assert len((await called(client, "list_tasks", ANN))["tasks"]) == 2
        assert "for another user" in await called(client, "list_tasks", BOB)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("add_task", {"description": ""}),
        ("add_task", {"description": "x" * 1001}),
        ("add_task", {}),
        ("delete_task", {"task_id": 0}),
        ("delete_task", {"task_id": "all"}),
        ("list_tasks", {"status": "everyone's"}),
    ],
)
async def test_wrong_arguments_are_refused_by_the_server_itself(
    store: TaskStore, tool: str, arguments: dict[str, Any]
) -> None:
    async with Client(task_server(store, user="ann")) as client:
        assert "validation error" in await called(client, tool, **arguments)
    assert len(store.list("ann")) == 2


def test_making_a_server_leaves_the_programs_logging_alone(store: TaskStore) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    task_server(store)
    assert (root.level, root.handlers) == before


def test_the_command_says_what_is_wrong_with_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--db", str(tmp_path / "no" / "tasks.db")]) == 1
    assert "cannot open the tasks' file" in capsys.readouterr().err
