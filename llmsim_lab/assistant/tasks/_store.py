"""Tasks of several users in one SQLite file; no user sees or changes another's."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Literal

from llmsim_lab.assistant._decision_log import opened
from llmsim_lab.assistant._types import ServerErrorCode
from llmsim_lab.errors import ConfigError, DataError, LabError
from llmsim_lab.types import Value

Status = Literal["all", "open", "done"]
"""Which tasks to list."""

MAX_CHARS = 1000
"""Longest description, characters."""
MAX_TASKS = 500
"""Most tasks of a user, so that a list of them is never cut."""

# users.last_number survives deletions, so that no task's number is ever given again.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS users (
    user_id TEXT PRIMARY KEY,
    last_number INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS tasks (
    user_id TEXT NOT NULL REFERENCES users,
    number INTEGER NOT NULL,
    description TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (user_id, number)
) STRICT, WITHOUT ROWID;
"""


class TaskError(LabError):
    """A task cannot be added, found or changed; the message is fit for a model and for people.

    Attributes:
        code: what kind of failure it is.
    """

    code: ClassVar[ServerErrorCode] = "TOOL_ERROR"


class TaskTextError(TaskError):
    """A description is empty, too long, or cannot be stored."""

    code = "INVALID_PARAMETERS"


class TaskNotFoundError(TaskError):
    """The user has no task of this number."""

    code = "NOT_FOUND"


class Task(Value):
    """One task.

    Attributes:
        id: counts up from 1 for each user, and is never given twice.
        description: what is to be done.
        done: whether it is.
    """

    id: int
    description: str
    done: bool = False


class TaskStore:
    """Keeps tasks; every method acts for one user and reaches that user's tasks only.

    Threads may share a store, and processes may share its file.

    Args:
        path: the SQLite file, made if it does not exist; None keeps the tasks in memory.

    Raises:
        ConfigError: the file cannot be opened, or is something else.
    """

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._lock = threading.Lock()  # threads share the one connection
        place = ":memory:" if path is None else str(path)
        try:
            self._db = opened(place, _SCHEMA)  # transactions are begun by hand, in _writing
        except (sqlite3.Error, DataError) as error:
            raise ConfigError(f"cannot keep tasks in {place}: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def add(self, user_id: str, description: str) -> Task:
        """Add a task.

        Raises:
            TaskTextError: the description is empty, too long, or cannot be stored.
            TaskError: the user has too many tasks, or the file cannot be written.
        """
        text = _checked(description)
        with self._writing() as db:
            [count] = db.execute(
                "SELECT count(*) FROM tasks WHERE user_id = ?", (user_id,)
            ).fetchone()
            if count >= MAX_TASKS:
                raise TaskError(
                    f"there are {count} tasks and {MAX_TASKS} is the most; delete some first"
                )
            [number] = db.execute(
                "INSERT INTO users VALUES (?, 1) ON CONFLICT DO UPDATE"
                " SET last_number = last_number + 1 RETURNING last_number",
                (user_id,),
            ).fetchone()
            db.execute("INSERT INTO tasks VALUES (?, ?, ?, 0)", (user_id, number, text))
        return Task(id=number, description=text)

    def list(self, user_id: str, status: Status = "all") -> list[Task]:
        """Return a user's tasks, oldest first.

        Raises:
            TaskError: the file cannot be read.
        """
        with self._lock, _plain_errors():
            rows = self._db.execute(
                "SELECT number, description, done FROM tasks WHERE user_id = ? ORDER BY number",
                (user_id,),
            ).fetchall()
        tasks = map(_task, rows)
        return [task for task in tasks if status == "all" or task.done == (status == "done")]

    def update(self, user_id: str, number: int, description: str) -> Task:
        """Give a task another description.

        Raises:
            TaskNotFoundError: there is no such task of this user.
            TaskTextError: the description is empty, too long, or cannot be stored.
            TaskError: the file cannot be written.
        """
        change = "UPDATE tasks SET description = ?"
        return self._changed(change, user_id, number, _checked(description))

    def complete(self, user_id: str, number: int) -> Task:
        """Mark a task as done, even if it is already.

        Raises:
            TaskNotFoundError: there is no such task of this user.
            TaskError: the file cannot be written.
        """
        return self._changed("UPDATE tasks SET done = 1", user_id, number)

    def delete(self, user_id: str, number: int) -> Task:
        """Remove a task for good and return what it was.

        Raises:
            TaskNotFoundError: there is no such task of this user.
            TaskError: the file cannot be written.
        """
        return self._changed("DELETE FROM tasks", user_id, number)

    def _changed(self, change: str, user_id: str, number: int, *values: str) -> Task:
        """Change a task of the user's; returns what it is then, or was where it is gone."""
        row = None
        if number.bit_length() < 64:  # SQLite has no larger integers
            with self._writing() as db:
                row = db.execute(
                    f"{change} WHERE user_id = ? AND number = ? "
                    "RETURNING number, description, done",
                    (*values, user_id, number),
                ).fetchone()
        # The same message for another user's task as for a missing one, so that numbers reveal
        # nothing.
        if row is None:
            raise TaskNotFoundError(
                f"there is no task {number}; list the tasks to see which there are"
            )
        return _task(row)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Lock the file for one change, which is made whole or not at all."""
        with self._lock, _plain_errors(), self._db:  # which commits, or rolls back
            # Takes the lock before reading, or two processes could both count, and both add.
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Turn a fault of the file into a TaskError in plain words; nothing was changed then."""
    try:
        yield
    except sqlite3.Error as error:
        raise TaskError(f"the task list cannot be reached now: {error}") from error


def _task(row: tuple[int, str, int]) -> Task:
    return Task(id=row[0], description=row[1], done=bool(row[2]))


def _checked(description: str) -> str:
    text = description.strip()
    must = f"description must be a text of 1 to {MAX_CHARS:,} characters"
    if not text:
        raise TaskTextError(f"{must}; it is {'blank' if description else 'empty'}")
    if len(text) > MAX_CHARS:
        raise TaskTextError(f"{must}; it has {len(text):,}")
    # Nearly every text is printable, which is found out faster than character by character.
    if not text.isprintable() and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
        raise TaskTextError(f"{must} that can be stored; it has a null or half a character")
    return text
