"""A small task list: kept in SQLite, served as tools over MCP by ``llmsim-lab-tasks``."""

from __future__ import annotations

from llmsim_lab.assistant.tasks._store import Task, TaskError, TaskStore

__all__ = ["Task", "TaskError", "TaskStore"]
