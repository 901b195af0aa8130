"""Tapes to files for other programs: JSON lines, which can be imported again, and Parquet.

The first of the JSON lines is the header: the format and how many lines of each sort follow. Then
come the texts that calls share, the runs, the calls and the turns, an object a line, with ``kind``
saying which. An import takes all runs of a file or none; its numbers are that file's own, and runs
and calls get new ones on the tape that they come to.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, get_args

from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.tape._codec import (
    RunInfo,
    SettingsCache,
    Verb,
    call_numbers,
    call_of,
    dumps,
    encode_request,
    key_fits,
    loads,
    manifest_faults,
    not_finite,
)
from llmsim_lab.tape._file import COLUMNS, TapeFile
from llmsim_lab.tape._ledger import Ledger

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = 2
"""Of the JSON lines."""
_KINDS = ("text", "run", "call", "turn")
"""Of the lines below the header."""
# More than any line of an export; a file without line breaks would fill the memory.
_MAX_LINE_BYTES = 64 * 1024 * 1024
_RUN_CELLS = ("name", "verb", "started", "ended", "outcome")
_CALL_CELLS = ("run", "turn", "component", "agent", "replicate", "attempt", "seconds")
"""Imported as they are."""
_CALL_FIELDS = (
    *("id", "run", "turn", "component", "agent", "replicate", "attempt", "settings", "origin"),
    "seconds",
)
"""Exported as they are."""
_CELLS = COLUMNS["calls"][COLUMNS["calls"].index("key") : COLUMNS["calls"].index("seal")]

# --- export --------------------------------------------------------------------------------------


def export_jsonl(file: TapeFile, path: Path, runs: Sequence[RunInfo]) -> None:
    """Write runs as JSON lines; see ``Tape.export``."""
    with _whole_file(path) as part, part.open("wb") as lines:
        for values in _lines(file, runs):
            lines.write(dumps(values).encode() + b"\n")


def export_parquet(
    path: Path, runs: Sequence[RunInfo], frames: Mapping[str, Callable[[int], pd.DataFrame]]
) -> list[Path]:
    """Write runs' frames as Parquet files; see ``Tape.export``.

    Args:
        path: the files', without what is put before its suffix.
        runs: the runs.
        frames: what makes a run's frame of its number, by what stands in the files' names.

    Returns:
        The files written.
    """
    if find_spec("pyarrow") is None:
        raise ConfigError(
            "Parquet files need pyarrow: pip install 'llmsim-lab[parquet]'; or export to .jsonl"
        )
    import pandas as pd

    paths = []
    for name, frame_of in frames.items():
        found = {info.id: frame_of(info.id) for info in runs}
        for run, frame in found.items():
            frame.insert(0, "run", run)
        # Pandas warns of joined empty frames, whose columns have no types.
        filled = [frame for frame in found.values() if len(frame)]
        joined = pd.concat(filled or found.values(), ignore_index=True)
        paths.append(path.with_suffix(f".{name}.parquet"))
        with _whole_file(paths[-1]) as part:
            try:
                joined.to_parquet(part, engine="pyarrow", index=False)
            except (ValueError, TypeError) as error:
                raise TapeError(f"the {name} make no Parquet table: {error}") from error
    return paths


@contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    """Yield a file to write to, which is renamed to the path when it is whole."""
    part = path.with_name(f"{path.name}.{token_hex(4)}.part")  # since others may export to it too
    try:
        try:
            yield part
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise TapeError(f"cannot write {path}: {error}") from error


def _lines(file: TapeFile, runs: Sequence[RunInfo]) -> Iterator[dict[str, Any]]:
    columns = ", ".join(COLUMNS["turns"])
    # Numbers alone, so that nothing can be slipped into the SQL.
    these = f"({', '.join(str(info.id) for info in runs)})"
    calls = f"SELECT settings, origin FROM calls WHERE run IN {these}"
    texts = f"id IN (SELECT settings FROM ({calls}) UNION SELECT origin FROM ({calls}))"
    wheres = {
        "text": f"texts WHERE {texts}",
        "run": f"runs WHERE id IN {these}",
        "call": f"calls WHERE run IN {these}",
        "turn": f"turns WHERE run IN {these}",
    }
    counts = {
        kind: int(file.query(f"SELECT count(*) FROM {where}")[0][0])
        for kind, where in wheres.items()
    }
    yield {"kind": "header", "format": _FORMAT, "package": version("llmsim-lab"), **counts}
    for row in file.in_batches("texts", texts):
        yield {"kind": "text", "id": row["id"], "digest": row["digest"].hex(), "text": row["text"]}
    names = ("id", "name", "parent", "fork_turn", "verb", "started", "ended", "outcome", "manifest")
    for info in runs:
        yield {"kind": "run"} | {name: getattr(info, name) for name in names}
    for row in file.in_batches("calls", f"run IN {these}"):
        yield _call_line(row)
    for run in (info.id for info in runs):
        for row in file.query(f"SELECT {columns} FROM turns WHERE run = ? ORDER BY turn", (run,)):
            what = f"turn {row['turn']} of run {run}"
            parts = {name: loads(row[name], what) for name in ("record", "row")}
            yield {"kind": "turn", "run": run, "turn": row["turn"], **parts}


def _call_line(row: sqlite3.Row) -> dict[str, Any]:
    values: dict[str, Any] = {"kind": "call", "key": row["key"].hex()}
    values |= {name: row[name] for name in _CALL_FIELDS}
    for name in ("messages", "spans", "reply", "fault"):
        text = row[name]
        values[name] = None if text is None else loads(text, f"call {row['id']}")
    values["forgotten"] = bool(row["forgotten"])
    return values


# --- import --------------------------------------------------------------------------------------


def import_jsonl(source: Path, file: TapeFile) -> list[int]:
    """Copy the runs of a JSON lines file to a tape, all of them or, if one is wrong, none.

    Returns:
        The numbers that they have on the tape.

    Raises:
        TapeError: the file cannot be read or is not an export of a tape; the line is named.
    """
    try:
        with source.open("rb") as lines, file.transaction() as connection:
            found = _Import(file, connection)
            number = 0
            # A byte more than allowed tells that a line is too long without reading all of it.
            while line := lines.readline(_MAX_LINE_BYTES + 1):
                number += 1
                with _naming(f"{source}, line {number}"):
                    found.take(line)
            with _naming(f"{source}, after line {number}"):
                found.finish()
    except OSError as error:
        raise TapeError(f"cannot read {source}: {error}") from error
    return sorted(found.runs.values())


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Turn whatever a bad line raises into an error that names the line."""
    try:
        yield
    except KeyError as error:
        raise TapeError(f"{where}: {error.args[0]!r} is not there; nothing was imported") from error
    except (
        *(ValueError, TypeError, OverflowError, RecursionError),
        *(TapeError, sqlite3.IntegrityError),
    ) as error:
        raise TapeError(f"{where}: {error}; nothing was imported") from error


class _Import:
    """Copies one file's lines to a tape.

    Args:
        file: the tape's.
        connection: in a transaction, which is rolled back if a line is wrong.

    Attributes:
        runs: the numbers on the tape, by those in the file.
    """

    def __init__(self, file: TapeFile, connection: sqlite3.Connection) -> None:
        self.runs: dict[int, int] = {}
        self._file = file
        self._connection = connection
        self._ledgers: dict[int, Ledger] = {}
        self._calls: dict[int, int] = {}
        self._texts: dict[int, tuple[int, str]] = {}
        # Its own, not the process's: a file's settings are of no use to anybody afterwards.
        self._settings = SettingsCache()
        self._keys: set[tuple[int, bytes]] = set()
        self._seen: Counter[str] = Counter()
        self._expected: dict[str, int] | None = None
        self._take_by_kind: Mapping[str, Callable[[dict[str, Any]], None]] = {
            "text": self._take_text,
            "run": self._take_run,
            "call": self._take_call,
            "turn": self._take_turn,
        }

    def take(self, line: bytes) -> None:
        """Copy one line."""
        if len(line) > _MAX_LINE_BYTES:
            raise ValueError(f"a line is longer than {_MAX_LINE_BYTES:,} bytes")
        values = json.loads(line, parse_constant=not_finite)
        if not isinstance(values, dict):
            raise ValueError("a line is not a JSON object")
        kind = values["kind"]
        if self._expected is None:
            self._take_header(kind, values)
        elif kind not in self._take_by_kind:
            raise ValueError(f"a line of the kind {kind!r:.50}")
        else:
            self._seen[kind] += 1
            self._take_by_kind[kind](values)

    def finish(self) -> None:
        """Check that the file was whole."""
        if self._expected is None:
            raise ValueError("the file is empty")
        for kind, count in self._expected.items():
            if self._seen[kind] != count:
                raise ValueError(
                    f"the file has {self._seen[kind]} lines of the kind {kind}; its header says "
                    f"{count}"
                )

    def _take_header(self, kind: object, values: dict[str, Any]) -> None:
        if kind != "header":
            raise ValueError("it does not begin with a header: this is not an export of a tape")
        if values["format"] != _FORMAT:
            raise ValueError(
                f"format {values['format']!r:.20}; this version of llmsim_lab reads {_FORMAT}"
            )
        self._expected = {name: _integer(values[name]) for name in _KINDS}

    def _take_text(self, values: dict[str, Any]) -> None:
        text = values["text"]
        digest = hashlib.sha256(text.encode()).digest()
        if digest.hex() != values["digest"]:
            raise ValueError("the text does not have its digest")
        number = self._file.text_id(text, digest, self._connection)
        self._texts[values["id"]] = (number, text)

    def _take_run(self, values: dict[str, Any]) -> None:
        parent, fork_turn = values["parent"], values["fork_turn"]
        if values["verb"] not in get_args(Verb):
            raise ValueError(f"the verb {values['verb']!r:.50}")
        if faults := manifest_faults(values["manifest"]):
            raise ValueError("; ".join(faults))
        for name in ("name", "started", "ended", "outcome"):
            optional = values[name] is None and name in ("ended", "outcome")
            if not isinstance(values[name], str) and not optional:
                raise ValueError(f"{name} is not a text")
        ledger = Ledger.begin(
            self._connection,
            {name: values[name] for name in _RUN_CELLS}
            | {
                "parent": None if parent is None else self.runs[parent],
                "fork_turn": None if fork_turn is None else _integer(fork_turn),
                "manifest": dumps(values["manifest"]),
            },
        )
        self.runs[_integer(values["id"])] = ledger.run
        self._ledgers[ledger.run] = ledger

    def _take_call(self, values: dict[str, Any]) -> None:
        number, (settings_id, settings) = _integer(values["id"]), self._texts[values["settings"]]
        origin = values["origin"]
        origin_id, form = (None, None) if origin is None else self._texts[origin]
        row = {name: values[name] for name in _CALL_CELLS}
        for name in ("messages", "spans", "reply", "fault"):
            row[name] = None if values[name] is None else dumps(values[name])
        key = bytes.fromhex(values["key"])
        row["forgotten"] = int(values["forgotten"] is True)
        run = self.runs[_integer(row.pop("run"))]
        row |= {"key": key, "origin": origin_id}
        call = call_of(row | {"id": number, "run": run}, settings, form)
        _ = call.attempt.request.provenance  # parsed, and so checked, only when it is read
        if not key_fits(key, encode_request(call.attempt.request, self._settings).key):
            raise ValueError("the call's key is not that of its content")
        if not call.forgotten:
            # Of calls that were made again, both have the same key.
            if (run, key) in self._keys:
                raise ValueError("another call of the run has this key")
            self._keys.add((run, key))
        cells = row | {"settings": settings_id, "seconds": float(row["seconds"])}
        row_cells = [cells[name] for name in _CELLS]
        [self._calls[number]] = self._ledgers[run].add_calls(self._connection, [row_cells])

    def _take_turn(self, values: dict[str, Any]) -> None:
        record, row = values["record"], values["row"]
        call_numbers(record)  # raises if a part of the record is missing or of the wrong type
        if record["turn"] != values["turn"] or not isinstance(row, dict):
            raise ValueError("its record or its row is not that of the turn")
        named = [chain["call"] for chain in record["chains"] if isinstance(chain.get("call"), list)]
        for call in (*record["calls"], *named):
            # The calls have other numbers on this tape than in the file.
            call[1] = [self._calls[number] for number in call[1]]
        ledger, turn = self._ledgers[self.runs[values["run"]]], _integer(values["turn"])
        ledger.add_turn(self._connection, turn, dumps(record), dumps(row))


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r:.50} is not an integer")
    return value
