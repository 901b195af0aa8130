"""What a tape says of a run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from llmsim_lab.errors import TapeError

__all__ = ["RunInfo", "Verb", "info_of", "loads", "now"]

Verb = Literal["run", "rerun", "fork", "import", "experiment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One run on a tape.

    Attributes:
        id: its number on the tape, 1 for the first.
        name: its configuration's name.
        parent: the run it was forked from or is a rerun of, if any.
        fork_turn: the turn of its parent that it starts from; None if it is no fork.
        verb: how it came about.
        started, ended: UTC, ISO 8601; ``ended`` is None while it goes on or if it was cut off.
        outcome: ``done``, ``failed: …`` or ``interrupted``; None like ``ended``.
        turns: the last whole turn.
        calls: how many requests were recorded.
        manifest: what defines the run: configuration, prompts, versions, model.
    """

    id: int
    name: str
    parent: int | None
    fork_turn: int | None
    verb: Verb
    started: str
    ended: str | None
    outcome: str | None
    turns: int
    calls: int
    manifest: Mapping[str, Any]

    @property
    def model(self) -> str:
        """The model's name as recorded, or as the run's settings call it; empty if none is due."""
        for key, name in (("model", "name"), ("llm", "model")):
            part = self.manifest.get(key)
            if isinstance(part, Mapping):
                return str(part.get(name, ""))
        return ""


def info_of(row: sqlite3.Row) -> RunInfo:
    """Return a row of runs, with ``last_turn`` and ``call_count``, as what it says.

    Raises:
        TapeError: it does not hold what it should; the tape is damaged.
    """
    manifest = loads(row["manifest"], f"the manifest of run {row['id']}")
    texts = [row[name] for name in ("name", "verb", "started")]
    texts += [row[name] or "" for name in ("ended", "outcome")]
    numbers = [row[name] or 0 for name in ("parent", "fork_turn", "last_turn")]
    if not (
        isinstance(manifest, dict)
        and all(isinstance(text, str) for text in texts)
        and all(isinstance(number, int) for number in numbers)
    ):
        raise TapeError(f"run {row['id']} on the tape is damaged: a column of the wrong type")
    last = row["last_turn"]
    return RunInfo(
        id=row["id"],
        name=row["name"],
        parent=row["parent"],
        fork_turn=row["fork_turn"],
        verb=row["verb"],
        started=row["started"],
        ended=row["ended"],
        outcome=row["outcome"],
        turns=last if last is not None else 0,
        calls=row["call_count"],
        manifest=manifest,
    )


def now() -> str:
    """Return the time, UTC, ISO 8601 to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def loads(text: Any, what: str) -> Any:
    """Return what a JSON text of the tape holds.

    Raises:
        TapeError: it is none.
    """
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise TapeError(f"{what} on the tape is damaged: {error}") from error
