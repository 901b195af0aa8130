"""Taking things off a tape: whole runs, or the texts of runs. Both happen whole or not at all."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from llmsim_lab.calls import Attempt, ChatReply, ChatRequest, Message, ToolCall
from llmsim_lab.errors import TapeError
from llmsim_lab.llm.tape.codec import (
    SettingsCache,
    asked,
    call_of,
    dumps,
    fault_text,
    loads,
    now,
    nth_key,
    reply_text,
)
from llmsim_lab.llm.tape.file import COLUMNS, SHARED
from llmsim_lab.llm.tape.ledger import SEALED, Ledger, mixed, seal
from llmsim_lab.llm.tape.writers import check_free

if TYPE_CHECKING:
    from llmsim_lab.llm.tape.tape import Tape

__all__ = ["prune", "redact"]

_DIGEST = re.compile(r"redacted:sha256:[0-9a-f]{12}")
_FIELD = re.compile(r"\w{1,60}")
_MAX_NAME = 60
_LEAST_FREE = 20
"""Characters of a text that is looked for inside of others."""
_KEPT = ("interventions", "planned")
_STATE = "state"


def prune(tape: Tape, runs: Iterable[int]) -> None:
    """Take runs off a tape for good; see ``Tape.prune``."""
    wanted = _wanted(tape, runs)
    for info in tape.runs():
        if info.parent in wanted and info.id not in wanted:
            both = sorted({info.parent, info.id})
            raise TapeError(
                f"run {info.parent} cannot be taken off {tape.path}: run {info.id}, a {info.verb} "
                f"of it, would lose what it came from; name both: runs={both}"
            )
    these = f"({', '.join(map(str, sorted(wanted)))})"
    with tape.transaction() as connection:
        _check_unused(tape, connection, wanted)
        for table in ("turns", "calls", "tallies"):
            connection.execute(f"DELETE FROM {table} WHERE run IN {these}")
        connection.execute(f"DELETE FROM runs WHERE id IN {these}")
        [before] = connection.execute("SELECT value FROM meta WHERE key = 'pruned'").fetchone()
        pruned = " ".join(map(str, sorted({*map(int, str(before).split()), *wanted})))
        connection.execute("UPDATE meta SET value = ? WHERE key = 'pruned'", (pruned,))
        _drop_texts(connection)
    tape.compact()


def redact(
    tape: Tape,
    runs: Iterable[int] | None,
    *,
    components: Collection[str] | None,
    states: bool,
) -> None:
    """Put digests in the place of texts; see ``Tape.redact``."""
    wanted = {info.id for info in tape.runs()} if runs is None else _wanted(tape, runs)
    there = {row[0] for row in tape.query("SELECT DISTINCT component FROM calls")}
    if unknown := set(components or ()) - there:
        raise TapeError(
            f"no call on the tape {tape.path} is of the component {', '.join(sorted(unknown))}; "
            f"there are: {', '.join(sorted(filter(None, there))) or 'none'}"
        )
    said = {"when": now(), "package": version("llmsim-lab"), "states": states}
    said["components"] = None if components is None else sorted(components)
    with tape.transaction() as connection:
        _check_unused(tape, connection, wanted)
        for run in sorted(wanted):
            _Redaction(tape, connection, run, components, states=states).apply()
            manifest = tape.run(run).manifest
            earlier = manifest.get("redacted")
            entries = [*(earlier if isinstance(earlier, list) else []), said]
            Ledger(run).change(connection, manifest=dumps({**manifest, "redacted": entries}))
        _drop_texts(connection)
    tape.compact()


def _wanted(tape: Tape, runs: Iterable[int]) -> set[int]:
    wanted = {tape.run(run).id for run in runs}
    if not wanted:
        raise TapeError(f"no run of the tape {tape.path} was named")
    return wanted


def _check_unused(tape: Tape, connection: sqlite3.Connection, runs: Iterable[int]) -> None:
    for run in sorted(runs):
        [writer] = connection.execute("SELECT writer FROM runs WHERE id = ?", (run,)).fetchone()
        check_free(writer, "", (str(tape.path.resolve()), run))


def _drop_texts(connection: sqlite3.Connection) -> None:
    connection.execute(f"DELETE FROM texts WHERE id NOT IN ({SHARED})")


class _Redaction:
    """One run's texts, replaced.

    Args:
        tape: the tape.
        connection: in a transaction.
        run: the run.
        components: whose texts; all if None.
        states: whether every free text of the states goes, whoever wrote it.
    """

    def __init__(
        self,
        tape: Tape,
        connection: sqlite3.Connection,
        run: int,
        components: Collection[str] | None,
        *,
        states: bool,
    ) -> None:
        self._tape = tape
        self._connection = connection
        self._run = run
        self._components = components
        self._states = states
        self._settings = SettingsCache()
        self._keys: Counter[bytes] = Counter()
        self._said: dict[int | None, set[str]] = {}
        """What was taken out of calls and chains, by turn, to find its copies in the records."""
        self._all_said: set[str] = set()
        self._names = _names_in(tape.run(run).manifest.get("config"))
        tallies = tape.query("SELECT calls, digest FROM tallies WHERE run = ?", (run,))
        self._counted, self._digest = tallies[0]

    def apply(self) -> None:
        """Replace them, with the seals and the tally that they need."""
        for row in self._tape.in_batches("calls", "run = ?", (self._run,)):
            self._call(row)
        columns = ", ".join(COLUMNS["turns"])
        for [turn] in self._tape.query(
            "SELECT turn FROM turns WHERE run = ? ORDER BY turn", (self._run,)
        ):
            [row] = self._tape.query(
                f"SELECT {columns} FROM turns WHERE run = ? AND turn = ?", (self._run, turn)
            )
            self._turn(row)
        self._connection.execute(
            "UPDATE tallies SET digest = ? WHERE run = ?", (self._digest, self._run)
        )

    def _covers(self, component: object) -> bool:
        return self._components is None or component in self._components

    # --- calls ---------------------------------------------------------------------------

    def _call(self, row: sqlite3.Row) -> None:
        attempt = call_of(row, *self._tape.shared_by(row)).attempt
        self._names |= {name for name in (row["agent"], row["component"]) if name}
        if self._covers(row["component"]):
            self._take_in(attempt, row["turn"])
            attempt = _without_texts(attempt)
        request = asked(attempt.request, self._settings)
        key = nth_key(request.key, self._keys[request.key])
        if not row["forgotten"]:
            self._keys[request.key] += 1
        if not self._covers(row["component"]):
            return
        settings = self._tape.text_id(
            self._connection, request.settings.text, request.settings.digest
        )
        cells = {
            **{name: row[name] for name in COLUMNS["calls"]},
            "key": key,
            "messages": request.messages,
            "settings": settings,
            "origin": None,  # its places are those of texts that are gone
            "spans": None,
            "reply": reply_text(attempt.reply),
            "fault": fault_text(attempt),
        }
        own = seal([cells[name] for name in SEALED["calls"]])
        self._connection.execute(
            "UPDATE calls SET key = ?, messages = ?, settings = ?, origin = NULL, spans = NULL, "
            "reply = ?, fault = ?, seal = ? WHERE id = ?",
            (
                *(cells[name] for name in ("key", "messages", "settings", "reply", "fault")),
                own,
                row["id"],
            ),
        )
        if row["place"] <= self._counted:  # else the tally does not count it yet
            self._digest = mixed(self._digest, row["seal"], own)

    def _take_in(self, attempt: Attempt, turn: int | None) -> None:
        if attempt.reply is None:
            return
        texts = [attempt.reply.text, *_leaves(_parsed(attempt.reply.text))]
        self._remember(turn, texts)

    def _remember(self, turn: int | None, texts: Iterable[str]) -> None:
        found = {text.strip() for text in texts if " " in text.strip()}
        self._said.setdefault(turn, set()).update(found)
        self._all_said |= found

    # --- turns ---------------------------------------------------------------------------

    def _turn(self, row: sqlite3.Row) -> None:
        record = loads(row["record"], f"turn {row['turn']} of run {self._run}")
        shown = loads(row["row"], f"turn {row['turn']} of run {self._run}")
        for chain in record["chains"]:
            self._names |= {chain["agent"], chain["component"]}
            if self._covers(chain["component"]):
                self._remember(row["turn"], [chain["reasoning"]])
                for name in ("reasoning", "prompt_text"):
                    if chain.get(name):
                        chain[name] = _digest(chain[name])
        near = {text for text in self._said.get(row["turn"], ()) if len(text) >= _LEAST_FREE}

        def cleaned(text: str) -> str:
            if text in self._names or " " not in text.strip():
                return text
            if text.strip() in self._all_said or any(part in text for part in near):
                return _digest(text)
            return text

        def emptied(text: str) -> str:
            return text if text in self._names or " " not in text.strip() else _digest(text)

        for part, value in record.items():
            if part not in (*_KEPT, "chains", "calls"):
                change = emptied if self._states and part == _STATE else cleaned
                record[part] = _mapped(value, change)
        kept = {name: shown[name] for name in _KEPT if name in shown}
        shown = {**_mapped(shown, emptied if self._states else cleaned), **kept}
        texts = dumps(record), dumps(shown)
        own = seal((self._run, row["turn"], *texts))
        self._connection.execute(
            "UPDATE turns SET record = ?, row = ?, seal = ? WHERE run = ? AND turn = ?",
            (*texts, own, self._run, row["turn"]),
        )
        self._digest = mixed(self._digest, row["seal"], own)


# --- texts ---------------------------------------------------------------------------------------


def _digest(text: str) -> str:
    if not text or _DIGEST.fullmatch(text):
        return text
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()
    return f"redacted:sha256:{digest[:12]}"


def _mapped(value: Any, change: Any) -> Any:
    """Return JSON with every text in it changed; names of fields stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(item, change) for item in value]
    return value


def _names_in(config: Any) -> set[str]:
    """Return what a configuration calls by name; states refer to it, so it stays."""
    found: set[str] = set()
    todo = [config]
    for item in todo:
        if isinstance(item, Mapping):
            found |= {*map(str, item), str(item.get("name"))}
            todo += item.values()
        elif isinstance(item, list):
            # Names alone may stand for whom they name, as in nations=["Aland"].
            found |= {it for it in item if isinstance(it, str) and len(it) < _MAX_NAME}
            todo += item
    return found


def _leaves(value: Any) -> list[str]:
    found: list[str] = []
    _mapped(value, found.append)
    return found


def _parsed(text: str) -> Any:
    """Return the object that a reply is, if its fields have the names of fields; else None."""
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
    request, reply = attempt.request, attempt.reply
    return replace(
        attempt,
        request=_asked_without(request),
        reply=None if reply is None else _answered_without(reply),
        detail=_digest(attempt.detail),
    )


def _asked_without(request: ChatRequest) -> ChatRequest:
    messages = tuple(
        Message(
            message.role,
            _digest(message.content),
            tool_calls=_calls_without(message.tool_calls),
            tool_name=message.tool_name,
        )
        for message in request.messages
    )
    return replace(request, messages=messages)


def _answered_without(reply: ChatReply) -> ChatReply:
    fields = _parsed(reply.text)
    text = _digest(reply.text) if fields is None else dumps(_mapped(fields, _digest))
    return replace(
        reply,
        text=text,
        thinking=_digest(reply.thinking),
        tool_calls=_calls_without(reply.tool_calls),
    )


def _calls_without(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    return tuple(replace(call, arguments=_mapped(call.arguments, _digest)) for call in calls)
