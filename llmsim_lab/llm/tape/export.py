"""Tapes to files for other programs: JSON lines, which make the tape again, and Parquet.

The first of the JSON lines is the header: the format and how many lines of each kind follow. Then
come the texts that calls share, the runs, the calls and the turns, an object a line, with ``kind``
saying which.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm.tape.codec import dumps, loads
from llmsim_lab.llm.tape.file import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

    from llmsim_lab.llm.tape.tape import Tape

__all__ = ["FORMAT", "KINDS", "export"]

FORMAT = 2
"""Of the JSON lines."""

KINDS = ("text", "run", "call", "turn")
"""Of the lines below the header."""

_COPIED = (
    *("id", "run", "turn", "component", "agent", "replicate", "attempt", "settings", "origin"),
    "seconds",
)


def export(tape: Tape, path: Path, *, run: int | None = None) -> list[Path]:
    """Write a tape's runs to files; see ``Tape.export``."""
    runs = _family(tape, run)
    if path.suffix == ".jsonl":
        with _whole_file(path) as part, part.open("wb") as file, tape.snapshot():
            for values in _lines(tape, runs):
                file.write(dumps(values).encode() + b"\n")
        return [path]
    if path.suffix == ".parquet":
        return _export_parquet(tape, path, runs)
    raise ConfigError(f"cannot export to {path}: the name must end in .jsonl or .parquet")


@contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    """Give a file to write to, which takes the path's place when it is whole."""
    part = path.with_name(f"{path.name}.{token_hex(4)}.part")  # others may export to it, too
    try:
        try:
            yield part
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise TapeError(f"cannot write {path}: {error}") from error


def _family(tape: Tape, run: int | None) -> list[int]:
    """Return a run's number and those of all that it came from; all runs' if none is named."""
    infos = {info.id: info for info in tape.runs()}
    if run is None:
        return sorted(infos)
    family = [tape.run(run).id]
    while (parent := infos[family[-1]].parent) is not None:
        if parent >= family[-1] or parent not in infos:
            raise TapeError(f"run {family[-1]} on the tape {tape.path} is damaged: wrong parent")
        family.append(parent)
    return sorted(family)


def _lines(tape: Tape, runs: list[int]) -> Iterator[dict[str, Any]]:
    columns = ", ".join(COLUMNS["turns"])
    these = f"({', '.join(map(str, runs))})"
    calls = f"SELECT settings, origin FROM calls WHERE run IN {these}"
    texts = f"id IN (SELECT settings FROM ({calls}) UNION SELECT origin FROM ({calls}))"
    wheres = {
        "text": f"texts WHERE {texts}",
        "run": f"runs WHERE id IN {these}",
        "call": f"calls WHERE run IN {these}",
        "turn": f"turns WHERE run IN {these}",
    }
    counts = {
        kind: int(tape.query(f"SELECT count(*) FROM {where}")[0][0])
        for kind, where in wheres.items()
    }
    yield {"kind": "header", "format": FORMAT, "package": version("llmsim-lab"), **counts}
    for row in tape.in_batches("texts", texts):
        yield {"kind": "text", "id": row["id"], "digest": row["digest"].hex(), "text": row["text"]}
    for run in runs:
        yield _run_line(tape, run)
    for row in tape.in_batches("calls", f"run IN {these}"):
        yield _call_line(row)
    for run in runs:
        for row in tape.query(f"SELECT {columns} FROM turns WHERE run = ? ORDER BY turn", (run,)):
            what = f"turn {row['turn']} of run {run}"
            record, shown = (loads(row[name], what) for name in ("record", "row"))
            yield {"kind": "turn", "run": run, "turn": row["turn"], "record": record, "row": shown}


def _run_line(tape: Tape, run: int) -> dict[str, Any]:
    info = tape.run(run)
    names = ("id", "name", "parent", "fork_turn", "verb", "started", "ended", "outcome", "manifest")
    return {"kind": "run"} | {name: getattr(info, name) for name in names}


def _call_line(row: sqlite3.Row) -> dict[str, Any]:
    values: dict[str, Any] = {"kind": "call", "key": row["key"].hex()}
    values |= {name: row[name] for name in _COPIED}
    for name in ("messages", "spans", "reply", "fault"):
        text = row[name]
        values[name] = None if text is None else loads(text, f"call {row['id']}")
    values["forgotten"] = bool(row["forgotten"])
    return values


def _export_parquet(tape: Tape, path: Path, runs: list[int]) -> list[Path]:
    if find_spec("pyarrow") is None:
        raise ConfigError(
            "Parquet files need pyarrow: pip install 'llmsim-lab[parquet]'; or export to .jsonl"
        )
    frames = {"calls": tape.calls_frame, "turns": tape.turns_frame}
    paths = []
    for name, frame_of in frames.items():
        paths.append(path.with_suffix(f".{name}.parquet"))
        with _whole_file(paths[-1]) as part:
            _write_parquet(_joined({run: frame_of(run) for run in runs}), part, name)
    return paths


def _joined(frames: dict[int, pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    for run, frame in frames.items():
        frame.insert(0, "run", run)
    filled = [frame for frame in frames.values() if len(frame)]
    return pd.concat(filled or frames.values(), ignore_index=True)


def _write_parquet(frame: pd.DataFrame, path: Path, name: str) -> None:
    try:
        frame.to_parquet(path, engine="pyarrow", index=False)
    except (ValueError, TypeError) as error:
        raise TapeError(f"the {name} make no Parquet table: {error}") from error
