"""The decision log: what was decided about messages and which tools ran, as lines of JSON.

A decision's row is written as ``PENDING`` before the model is asked, and again when the decision is
made, or the message given up. Of the rows with one ``decision_id`` the last counts; one that stays
pending belongs to a program that ended in between.
"""

from __future__ import annotations

import json
from pathlib import Path

from llmsim_lab._util.files import as_path
from llmsim_lab._util.text import now
from llmsim_lab.errors import DataError


class DecisionLog:
    """Appends each row to a file, as one line of JSON in UTF-8; everything is written as it is.

    ``pandas.read_json(path, lines=True)`` reads it. Several processes may write to one file.

    Args:
        path: the file; made with the first row.

    Example:
        >>> log = DecisionLog("decisions.jsonl")
        >>> engine = LLMAgentEngine(adapter, tools, load_constitution(), decision_log=log)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = as_path("path", path)

    async def write_decision_log(self, **row: object) -> None:
        """Append a decision's row.

        Raises:
            DataError: the file cannot be written.
        """
        self._append(row="decision", **row)

    async def write_tool_invocation_log(self, **row: object) -> None:
        """Append a tool call's row.

        Raises:
            DataError: the file cannot be written.
        """
        self._append(row="tool", **row)

    def _append(self, **row: object) -> None:
        row["time"] = now()
        text = json.dumps(
            row,
            ensure_ascii=False,
            # Results of tools may hold dates and the like: a log takes them as text.
            default=str,
        )
        # JSON may hold half a character, which UTF-8 cannot: it is written as its escape.
        line = f"{text}\n".encode("utf-8", "backslashreplace")
        try:
            # One write to a file that is open to append to, so that lines never mix.
            with self.path.open("ab", buffering=0) as file:
                file.write(line)
        except OSError as error:
            raise DataError(f"cannot write to the decision log {self.path}: {error}") from error
