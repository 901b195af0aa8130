from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from llmsim_lab.assistant import _decision_log
from llmsim_lab.assistant.tasks import _store as store_module
from llmsim_lab.assistant.tasks._store import (
    MAX_CHARS,
    Task,
    TaskError,
    TaskNotFoundError,
    TaskStore,
    TaskTextError,
)
from llmsim_lab.errors import ConfigError


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
    with pytest.raises(TaskTextError, match="a text of 1 to 1,000 characters"):
        store.add("ann", description)
    with pytest.raises(TaskTextError, match="description must be"):
        store.update("ann", 1, description)
    assert [task.description for task in store.list("ann")] == ["Buy milk", "Call mum"]


@pytest.mark.parametrize("length", [1, MAX_CHARS])
def test_descriptions_of_all_allowed_lengths_are_kept(store: TaskStore, length: int) -> None:
    assert store.add("ann", "é" * length).description == "é" * length


@pytest.mark.parametrize("number", [3, 0, -1, 2**70])
def test_a_task_that_is_not_there_cannot_be_changed(store: TaskStore, number: int) -> None:
    for change in (store.complete, store.delete):
        with pytest.raises(TaskNotFoundError, match=f"there is no task {number}"):
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
    with pytest.raises(ConfigError, match=r"cannot keep tasks in .*: unable to open"):
        TaskStore(tmp_path / "no" / "such" / "folder.db")


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("calls (id INTEGER)", r"it holds other things \(calls\); name a file of its own"),
        ("tasks (id INTEGER, text TEXT)", "its table tasks has the columns id, text where"),
    ],
)
def test_a_database_for_other_things_is_refused_and_left_alone(
    tmp_path: Path, table: str, why: str
) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TABLE {table}")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=why):
        TaskStore(path)
    assert path.read_bytes() == before


def test_stores_that_are_made_at_once_share_a_new_file(tmp_path: Path) -> None:
    start = threading.Barrier(4)

    def make() -> TaskStore:
        start.wait()
        return TaskStore(tmp_path / "tasks.db")

    with ThreadPoolExecutor(4) as pool:
        stores = [made.result() for made in [pool.submit(make) for _ in range(4)]]
    for store in stores:
        store.add("ann", "again")
    assert [len(store.list("ann")) for store in stores] == [4, 4, 4, 4]
    for store in stores:
        store.close()


def test_a_file_that_others_keep_locked_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_decision_log, "_WAIT_S", 0.05)
    store = TaskStore(tmp_path / "tasks.db")
    with closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TaskError, match="cannot be reached now: database is locked"):
            store.add("ann", "Buy milk")
        other.execute("ROLLBACK")
    assert store.add("ann", "Buy milk").id == 1
    store.close()


def fill(store: TaskStore) -> None:
    for _ in range(100):
        store.add("ann", "x" * MAX_CHARS)


def test_a_full_disk_changes_nothing_and_is_got_over(tmp_path: Path) -> None:
    store = TaskStore(tmp_path / "tasks.db")
    store.add("ann", "Buy milk")
    [pages] = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(TaskError, match="database or disk is full"):
        fill(store)
    kept = store.list("ann")
    store._db.execute("PRAGMA max_page_count = 1000")
    assert store.add("ann", "Call mum").id == len(kept) + 1
    store.close()


def test_a_store_that_was_closed_says_so(tmp_path: Path) -> None:
    store = TaskStore(tmp_path / "tasks.db")
    store.close()
    with pytest.raises(TaskError, match="closed database"):
        store.list("ann")
