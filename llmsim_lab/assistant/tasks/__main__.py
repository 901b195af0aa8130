"""``llmsim-lab-tasks``: serve a task list to an MCP client over standard input and output.

Also ``python -m llmsim_lab.assistant.tasks``.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from llmsim_lab.assistant.tasks._store import TaskStore
from llmsim_lab.errors import LabError


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the client disconnects; return the exit code.

    Args:
        argv: the arguments; None takes the program's own.
    """
    options = _parser().parse_args(argv)
    # Standard output belongs to the protocol, so everything else goes to standard error.
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    try:
        from llmsim_lab.assistant.tasks._server import task_server
    except ImportError as error:
        return _failed(f"{error}; pip install 'llmsim-lab[tools]'")
    try:
        with closing(TaskStore(options.db)) as store:
            server = task_server(store, user=options.user)
            # Let Ctrl-C end the program at once; each change of the tasks is whole or not made.
            # Python's own handler would only raise in the main thread, and then wait for the thread
            # that reads standard input.
            before = signal.signal(signal.SIGINT, signal.SIG_DFL)
            try:
                server.run()
            finally:
                signal.signal(signal.SIGINT, before)
    except LabError as error:
        return _failed(str(error))
    return 0


def _failed(why: str) -> int:
    print(f"llmsim-lab-tasks: {why}", file=sys.stderr)  # noqa: T201
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmsim-lab-tasks",
        description="Serve a task list as MCP tools over standard input and output. MCP clients "
        "start this command themselves: name it in their settings.",
    )
    parser.add_argument(
        "--db",
        type=Path,
        metavar="FILE",
        help="the SQLite file; without it the tasks are kept in memory only",
    )
    parser.add_argument(
        "--user",
        metavar="NAME",
        help="whose tasks; without it each request must say so in its metadata, which programs "
        "that serve several users do",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
