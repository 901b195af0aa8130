"""Removing runs from a tape, or their texts; each is done whole or not at all."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.metadata import version
from typing import Any

from llmsim_lab.errors import TapeError
from llmsim_lab.tape._codec import (
    RunInfo,
    SettingsCache,
    call_of,
    dumps,
    encode_request,
    fault_text,
    loads,
    now,
    nth_key,
    reply_text,
)
from llmsim_lab.tape._file import COLUMNS, SHARED, TapeFile
from llmsim_lab.tape._ledger import SEALED, Ledger, check_free, mixed, seal
from llmsim_lab.types import Attempt, Message, ToolCall

_DIGEST = re.compile(r"redacted:sha256:[0-9a-f]{12}")
_FIELD = re.compile(r"\w{1,60}")
_MAX_NAME = 60
_MIN_QUOTE = 20
"""Characters of a text that is looked for inside others; shorter ones are there by chance."""
_FROM_OUTSIDE = ("interventions", "planned")


def prune(file: TapeFile, runs: Collection[int], known: Iterable[RunInfo]) -> None:
    """Remove runs from a tape for good; see ``Tape.prune``.

    Args:
        file: the tape's.
        runs: the runs' numbers.
        known: all runs on the tape.
    """
    for info in known:
        if info.parent is not None and info.parent in runs and info.id not in runs:
            both = sorted({info.parent, info.id})
            options = " ".join(f"--run {run}" for run in both)
            raise TapeError(
                f"run {info.parent} cannot be taken off {file.path}: run {info.id}, a {info.verb} "
                f"of it, would lose what it came from; name both: {options} (in Python, "
                f"runs={both})"
            )
    these = f"({', '.join(map(str, sorted(runs)))})"
    with file.transaction() as connection:
        _check_unused(file, connection, runs)
        for table in ("turns", "calls", "tallies"):
            connection.execute(f"DELETE FROM {table} WHERE run IN {these}")
        connection.execute(f"DELETE FROM runs WHERE id IN {these}")
        [before] = connection.execute("SELECT value FROM meta WHERE key = 'pruned'").fetchone()
        pruned = " ".join(map(str, sorted({*map(int, str(before).split()), *runs})))
        connection.execute("UPDATE meta SET value = ? WHERE key = 'pruned'", (pruned,))
        _drop_texts(connection)
    file.compact()


def redact(
    file: TapeFile, runs: Collection[int], *, components: Collection[str] | None, states: bool
) -> None:
    """Replace texts by digests; see ``Tape.redact``."""
    known = {row[0] for row in file.query("SELECT DISTINCT component FROM calls")}
    if unknown := set(components or ()) - known:
        raise TapeError(
            f"no call on the tape {file.path} is of the component {', '.join(sorted(unknown))}; "
            f"there are: {', '.join(sorted(filter(None, known))) or 'none'}"
        )
    entry = {"when": now(), "package": version("llmsim-lab"), "states": states}
    entry["components"] = None if components is None else sorted(components)
    with file.transaction() as connection:
        _check_unused(file, connection, runs)
        for run in sorted(runs):
            [[text]] = file.query("SELECT manifest FROM runs WHERE id = ?", (run,))
            manifest = loads(text, f"the manifest of run {run}")
            names = _names_in(manifest.get("config"))
            _Redaction(file, connection, run, names, components, states).apply()
            earlier = manifest.get("redacted")
            entries = [*(earlier if isinstance(earlier, list) else []), entry]
            Ledger(run).change(connection, manifest=dumps({**manifest, "redacted": entries}))
        _drop_texts(connection)
    file.compact()


def _check_unused(file: TapeFile, connection: sqlite3.Connection, runs: Iterable[int]) -> None:
    for run in sorted(runs):
        [writer] = connection.execute("SELECT writer FROM runs WHERE id = ?", (run,)).fetchone()
        check_free(writer, file.path, run)


def _drop_texts(connection: sqlite3.Connection) -> None:
    connection.execute(f"DELETE FROM texts WHERE id NOT IN ({SHARED})")


@dataclass(slots=True)
class _Redaction:
    """One run's texts, replaced.

    Attributes:
        file: the tape's.
        connection: in a transaction.
        run: the run.
        names: texts that stay, since states and chains refer to them.
        components: whose texts are replaced; all if None.
        states: whether every free text of the states is replaced, whoever wrote it.
        replaced: what was replaced in calls and chains, by turn, to find its copies in the records.
        all_replaced: the same, of all turns.
        outside: texts of interventions; one that a model was sent as it is, is replaced as well.
        counted: how many calls the run's tally counts.
        digest: the tally's.
    """

    file: TapeFile
    connection: sqlite3.Connection
    run: int
    names: set[str]
    components: Collection[str] | None
    states: bool
    settings: SettingsCache = field(default_factory=SettingsCache)
    keys: Counter[bytes] = field(default_factory=Counter)
    replaced: dict[int | None, set[str]] = field(default_factory=dict)
    all_replaced: set[str] = field(default_factory=set)
    outside: set[str] = field(default_factory=set)
    counted: int = 0
    digest: bytes = b""

    def apply(self) -> None:
        """Replace the texts, and the seals and the tally with them."""
        tallies = "SELECT calls, digest FROM tallies WHERE run = ?"
        [[self.counted, self.digest]] = self.file.query(tallies, (self.run,))
        for [text] in self.file.query("SELECT record FROM turns WHERE run = ?", (self.run,)):
            record = loads(text, f"a turn of run {self.run}")
            self.outside |= {
                text.strip() for part in _FROM_OUTSIDE for text in _leaves(record[part])
            }
        for row in self.file.in_batches("calls", "run = ?", (self.run,)):
            self._call(row)
        columns = ", ".join(COLUMNS["turns"])
        # One turn in memory at a time: a record may be large.
        for [turn] in self.file.query(
            "SELECT turn FROM turns WHERE run = ? ORDER BY turn", (self.run,)
        ):
            [row] = self.file.query(
                f"SELECT {columns} FROM turns WHERE run = ? AND turn = ?", (self.run, turn)
            )
            self._turn(row)
        self.connection.execute(
            "UPDATE tallies SET digest = ? WHERE run = ?", (self.digest, self.run)
        )

    def _covers(self, component: object) -> bool:
        return self.components is None or component in self.components

    # --- calls ---------------------------------------------------------------------------

    def _call(self, row: sqlite3.Row) -> None:
        attempt = call_of(row, *self.file.shared_by(row)).attempt
        self.names |= {name for name in (row["agent"], row["component"]) if name}
        if self._covers(row["component"]):
            sent = (one.content for one in attempt.request.messages if one.role == "user")
            self._remember(row["turn"], (text for text in sent if text.strip() in self.outside))
            if attempt.reply is not None:
                answer = attempt.reply.text
                self._remember(row["turn"], [answer, *_leaves(_parsed(answer))])
            attempt = _without_texts(attempt)
        request = encode_request(attempt.request, self.settings)
        # Requests that differed may be equal now, so that equal ones are counted again.
        key = nth_key(request.key, self.keys[request.key])
        # A forgotten call shares its key with the one that was made in its place.
        if not row["forgotten"]:
            self.keys[request.key] += 1
        if not self._covers(row["component"]):
            return
        settings = self.file.text_id(
            request.settings.text, request.settings.digest, self.connection
        )
        cells = {
            **dict(row),
            "key": key,
            "messages": request.messages,
            "settings": settings,
            "origin": None,  # its places are those of the texts that were replaced
            "spans": None,
            "reply": reply_text(attempt.reply),
            "fault": fault_text(attempt),
        }
        own = seal([cells[name] for name in SEALED["calls"]])
        self.connection.execute(
            "UPDATE calls SET key = :key, messages = :messages, settings = :settings, "
            "origin = NULL, spans = NULL, reply = :reply, fault = :fault, seal = :seal "
            "WHERE id = :id",
            {**cells, "seal": own},
        )
        if row["place"] <= self.counted:  # otherwise the tally does not count it yet
            self.digest = mixed(self.digest, row["seal"], own)

    def _remember(self, turn: int | None, texts: Iterable[str]) -> None:
        found = {text.strip() for text in texts if " " in text.strip()}
        self.replaced.setdefault(turn, set()).update(found)
        self.all_replaced |= found

    # --- turns ---------------------------------------------------------------------------

    def _turn(self, row: sqlite3.Row) -> None:
        what = f"turn {row['turn']} of run {self.run}"
        record, frame_row = (loads(row[name], what) for name in ("record", "row"))
        for chain in record["chains"]:
            self.names |= {chain["agent"], chain["component"]}
            if self._covers(chain["component"]):
                self._remember(row["turn"], [chain["reasoning"]])
                for name in ("reasoning", "prompt_text"):
                    if chain.get(name):
                        chain[name] = _digest(chain[name])
        quotable = {text for text in self.replaced.get(row["turn"], ()) if len(text) >= _MIN_QUOTE}

        def cleaned(text: str) -> str:
            if text in self.names or " " not in text.strip():
                return text
            if text.strip() in self.all_replaced or any(part in text for part in quotable):
                return _digest(text)
            return text

        def emptied(text: str) -> str:
            return text if text in self.names or " " not in text.strip() else _digest(text)

        for part, value in record.items():
            if part not in (*_FROM_OUTSIDE, "chains", "calls"):
                change = emptied if self.states and part == "state" else cleaned
                record[part] = _mapped(value, change)
        outside = {part: _mapped(record[part], self._unless_sent) for part in _FROM_OUTSIDE}
        kept = {
            part: frame_row[part] if outside[part] == record[part] else _digest(frame_row[part])
            for part in _FROM_OUTSIDE
            if part in frame_row
        }
        record |= outside
        frame_row = {**_mapped(frame_row, emptied if self.states else cleaned), **kept}
        texts = dumps(record), dumps(frame_row)
        own = seal((self.run, row["turn"], *texts))
        self.connection.execute(
            "UPDATE turns SET record = ?, row = ?, seal = ? WHERE run = ? AND turn = ?",
            (*texts, own, self.run, row["turn"]),
        )
        self.digest = mixed(self.digest, row["seal"], own)

    def _unless_sent(self, text: str) -> str:
        return _digest(text) if text.strip() in self.outside & self.all_replaced else text


# --- texts ---------------------------------------------------------------------------------------


def _digest(text: str) -> str:
    if not text or _DIGEST.fullmatch(text):
        return text
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()
    return f"redacted:sha256:{digest[:12]}"


def _mapped(value: Any, change: Callable[[str], Any]) -> Any:
    """Return JSON with every text in it changed; field names stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(item, change) for item in value]
    return value


def _names_in(config: Any) -> set[str]:
    """Return the names in a configuration; states refer to them, so they stay."""
    found: set[str] = set()
    # The list grows while it is walked, so that deep nesting takes no stack.
    todo = [config]
    for item in todo:
        if isinstance(item, Mapping):
            found |= {*map(str, item), str(item.get("name"))}
            todo += item.values()
        elif isinstance(item, list):
            # A text in a list may be a name, as in nations=["Aland"].
            found |= {it for it in item if isinstance(it, str) and len(it) < _MAX_NAME}
            todo += item
    return found


def _leaves(value: Any) -> list[str]:
    found: list[str] = []
    _mapped(value, found.append)
    return found


def _parsed(text: str) -> Any:
    """Return a reply's JSON object, or None if it is not one or a field's name may be prose."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    named: list[Any] = [value]
    for item in named:
        if isinstance(item, dict):
            if not all(_FIELD.fullmatch(key) for key in item):
                return None
            named += item.values()
        elif isinstance(item, list):
            named += item
    return value if isinstance(value, dict) else None


def _without_texts(attempt: Attempt) -> Attempt:
    messages = tuple(
        Message(
            message.role,
            _digest(message.content),
            tool_calls=_arguments_replaced(message.tool_calls),
            tool_name=message.tool_name,
        )
        for message in attempt.request.messages
    )
    if (reply := attempt.reply) is not None:
        fields = _parsed(reply.text)
        reply = replace(
            reply,
            text=_digest(reply.text) if fields is None else dumps(_mapped(fields, _digest)),
            thinking=_digest(reply.thinking),
            tool_calls=_arguments_replaced(reply.tool_calls),
            top_logprobs=tuple((_digest(token), value) for token, value in reply.top_logprobs),
        )
    request = replace(attempt.request, messages=messages)
    return replace(attempt, request=request, reply=reply, detail=_digest(attempt.detail))


def _arguments_replaced(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    return tuple(replace(call, arguments=_mapped(call.arguments, _digest)) for call in calls)
