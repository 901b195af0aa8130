"""A small task list: kept in SQLite, served as tools over MCP by ``llmsim-lab-tasks``."""

from __future__ import annotations

from llmsim_lab.assistant.tasks.store import (
    MAX_CHARS,
    MAX_TASKS,
    Status,
    Task,
    TaskError,
    TaskNotFoundError,
    TaskStore,
    TaskTextError,
)

__all__ = [
    "MAX_CHARS",
    "MAX_TASKS",
    "Status",
    "Task",
    "TaskError",
    "TaskNotFoundError",
    "TaskStore",
    "TaskTextError",
]
