"""``llmsim-lab-tasks``: serve a task list to an MCP client over standard input and output."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from llmsim_lab.assistant.tasks.store import TaskStore
from llmsim_lab.errors import LabError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the client goes away; returns the exit code.

    Args:
        argv: the arguments; None takes the program's own.
    """
    options = _parser().parse_args(argv)
    # Standard output belongs to the protocol, so that all else goes to standard error.
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    try:
        from llmsim_lab.assistant.tasks.server import task_server

        store = TaskStore(options.db)
    except ImportError as error:
        print(f"{error}; pip install 'llmsim-lab[tools]'", file=sys.stderr)  # noqa: T201
        return 1
    except LabError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    try:
        task_server(store, user=options.user).run()
    except KeyboardInterrupt:
        return 130
    finally:
        store.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmsim-lab-tasks",
        description="Serve a task list as MCP tools over standard input and output.",
    )
    parser.add_argument(
        "--db", type=Path, help="the SQLite file; without it the tasks are kept in memory only"
    )
    parser.add_argument(
        "--user",
        help="whose tasks; without it each request must say so in its metadata, which programs "
        "that serve several users do",
    )
    return parser
