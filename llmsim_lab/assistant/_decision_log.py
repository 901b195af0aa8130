"""The decision log: a SQLite file of what was decided about messages and which tools ran.

A decision's row is written as ``PENDING`` before the model is asked, and again when the decision is
made, or the message given up. A row that stays pending belongs to a program that ended in between.
Secrets are taken out of what is written, by the names before them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from llmsim_lab._util.text import clip, log_event
from llmsim_lab.assistant._toolbox import value_of
from llmsim_lab.assistant._types import AgentDecision, DecisionContext, DecisionLogger, ToolCall
from llmsim_lab.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

SECRETS = ("password", "passphrase", "secret", "token", "api_key", "authorization")
"""Names of secrets, unless others are given."""

OUTCOMES = ("SUCCESS", "ERROR", "REFUSAL", "AMBIGUITY", "PENDING")
"""Categories of outcomes; the kind of each follows after a colon: ``ERROR:TIMEOUT``."""

_VERSION = 1
_WAIT_S = 10.0
"""How long to wait for another process that writes, seconds."""
_POLL_S = 0.01
_DTYPES = {
    "duration_ms": "float64",
    "tools": "int64",
    "success": "bool",
    **dict.fromkeys(("parameters", "result", "error_code", "error_message"), "object"),
}
"""The dtypes of the frames' columns; the others hold texts."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS decisions (
    decision_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, user_id TEXT NOT NULL,
    message TEXT NOT NULL, intent_type TEXT NOT NULL, decision_type TEXT NOT NULL,
    outcome_category TEXT NOT NULL, duration_ms REAL NOT NULL,
    created TEXT NOT NULL, updated TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tool_invocations (
    id INTEGER PRIMARY KEY, decision_id TEXT NOT NULL REFERENCES decisions, tool_name TEXT NOT NULL,
    parameters TEXT NOT NULL, result TEXT, success INTEGER NOT NULL, error_code TEXT,
    error_message TEXT, duration_ms REAL NOT NULL, created TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS invocations_of ON tool_invocations (decision_id);
"""


class DecisionLog:
    """A file of decisions and tool invocations; several processes may write to one.

    Half a character (a lone surrogate, which JSON may hold) is written as its escape. What is
    nested too deeply, or contains itself, is replaced by a note.

    Args:
        path: the file; made if it does not exist.
        redact: names of secrets; their values are written as ``***``.

    Raises:
        DataError: the file cannot be opened, or is something else.
        ConfigError: ``redact`` is one text, or a name in it has no letters.

    Example:
        >>> log = DecisionLog("decisions.db")
        >>> engine = LLMAgentEngine(adapter, tools, load_constitution(), decision_log=log)
    """

    def __init__(self, path: str | Path, *, redact: Iterable[str] = SECRETS) -> None:
        self.path = Path(path)
        self._redactor = Redactor(redact)
        self._lock = threading.Lock()
        try:
            self._connection = opened(self.path, _SCHEMA, version=_VERSION)
            # A row costs no wait for the disk: a program that crashes loses nothing, a machine
            # that does perhaps the latest rows.
            self._connection.execute("PRAGMA synchronous = NORMAL")
            # From here on _write waits by itself: SQLite's own wait would block the event loop.
            self._connection.execute("PRAGMA busy_timeout = 0")
        except (sqlite3.Error, DataError) as error:
            raise DataError(f"cannot use {self.path} as a decision log: {error}") from error

    async def write_decision_log(
        self,
        *,
        decision_id: str,
        conversation_id: str,
        user_id: str,
        message: str,
        intent_type: str,
        decision_type: str,
        outcome_category: str,
        duration_ms: float,
    ) -> None:
        """Write a decision's row; if the id exists, update its outcome.

        Args:
            decision_id: of the row.
            conversation_id: the conversation it belongs to.
            user_id: who wrote the message.
            message: the message.
            intent_type: what it was taken for; ``LLM_PROCESSING`` until that is known.
            decision_type: a ``DecisionType``, or ``PENDING``.
            outcome_category: one of ``OUTCOMES``, with its kind after a colon.
            duration_ms: from the message to the decision, milliseconds.

        Raises:
            ConfigError: the category does not exist.
            DataError: the file cannot be written.
        """
        if outcome_category.partition(":")[0] not in OUTCOMES:
            raise ConfigError(
                f"outcome_category={outcome_category!r} must begin with {', '.join(OUTCOMES)}"
            )
        moment = _now()
        asked = (decision_id, conversation_id, user_id, self._redactor.text(message))
        decided = (intent_type, decision_type, outcome_category, duration_ms)
        await self._write(
            "INSERT INTO decisions VALUES (?,?,?,?,?,?,?,?,?,?) "
            "ON CONFLICT (decision_id) DO UPDATE SET intent_type = excluded.intent_type, "
            "decision_type = excluded.decision_type, "
            "outcome_category = excluded.outcome_category, duration_ms = excluded.duration_ms, "
            "updated = excluded.updated",
            [*asked, *decided, moment, moment],
        )

    async def write_tool_invocation_log(
        self,
        *,
        decision_id: str,
        tool_name: str,
        parameters: Mapping[str, Any],
        result: Any,
        success: bool,
        error_code: str | None,
        error_message: str | None,
        duration_ms: float,
    ) -> None:
        """Write one tool call.

        Args:
            decision_id: the decision it was part of.
            tool_name: the tool.
            parameters: its arguments.
            result: what it returned.
            success: whether it did what it was asked to.
            error_code: what went wrong, as a code.
            error_message: the same in words.
            duration_ms: how long it took, milliseconds.

        Raises:
            DataError: the file cannot be written.
        """
        hide = self._redactor
        await self._write(
            "INSERT INTO tool_invocations (decision_id, tool_name, parameters, result, success, "
            "error_code, error_message, duration_ms, created) VALUES (?,?,?,?,?,?,?,?,?)",
            (
                decision_id,
                tool_name,
                _dumps(hide.value(parameters)),
                None if result is None else _dumps(hide.value(result)),
                int(success),
                error_code,
                None if error_message is None else hide.text(error_message),
                duration_ms,
                _now(),
            ),
        )

    def decisions_frame(self) -> pd.DataFrame:
        """Return the decisions as a frame, oldest first.

        Columns: ``decision_id``, ``conversation_id``, ``user_id``, ``message``, ``intent_type``,
        ``decision_type``, ``outcome``, ``kind``, ``duration_ms``, ``tools`` (how many ran),
        ``created``, ``updated`` (UTC).

        Raises:
            DataError: the file cannot be read, or was closed.
        """
        # What stands before the first colon, and what after it.
        return self._frame(
            "SELECT decision_id, conversation_id, user_id, message, intent_type, decision_type, "
            "substr(outcome_category, 1, instr(outcome_category || ':', ':') - 1) AS outcome, "
            "substr(outcome_category, instr(outcome_category || ':', ':') + 1) AS kind, "
            "duration_ms, (SELECT count(*) FROM tool_invocations AS t WHERE t.decision_id = "
            "decisions.decision_id) AS tools, created, updated FROM decisions "
            "ORDER BY created, rowid"
        )

    def invocations_frame(self, decision_id: str | None = None) -> pd.DataFrame:
        """Return the tool invocations as a frame, oldest first.

        Columns: ``decision_id``, ``tool_name``, ``parameters``, ``result``, ``success``,
        ``error_code``, ``error_message``, ``duration_ms``, ``created`` (UTC).

        Args:
            decision_id: those of one decision only.

        Raises:
            DataError: the file cannot be read, or was closed.
        """
        import pandas as pd

        frame = self._frame(
            "SELECT decision_id, tool_name, parameters, result, success, error_code, "
            "error_message, duration_ms, created FROM tool_invocations "
            + ("" if decision_id is None else "WHERE decision_id = ? ")
            + "ORDER BY id",
            [] if decision_id is None else [decision_id],
        )
        for name in ("parameters", "result"):
            values = [None if text is None else json.loads(text) for text in frame[name]]
            frame[name] = pd.Series(values, dtype="object")  # or 1 beside None would become 1.0
        return frame

    def close(self) -> None:
        """Close the file; nothing can be written afterwards."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DecisionLog({str(self.path)!r})"

    async def _write(self, statement: str, values: Iterable[Any]) -> None:
        """Write now; while another process holds the file, try again without blocking the loop."""
        deadline = time.monotonic() + _WAIT_S
        # SQLite takes no lone surrogates.
        stored = [
            value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
            for value in values
        ]
        while True:
            try:
                with self._lock:  # never across the sleep below, or other tasks would block
                    self._connection.execute(statement, stored)
            except sqlite3.Error as error:
                busy = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > deadline:
                    raise DataError(
                        f"cannot write to the decision log {self.path}: {error}"
                    ) from error
            else:
                return
            await asyncio.sleep(_POLL_S)

    def _frame(self, query: str, values: Sequence[str] = ()) -> pd.DataFrame:
        """Return what a query finds, in columns that have their types even without rows.

        Raises:
            DataError: the file cannot be read.
        """
        import pandas as pd

        try:
            with self._lock:
                cursor = self._connection.execute(query, values)
                rows, names = cursor.fetchall(), [column[0] for column in cursor.description]
        except sqlite3.Error as error:
            raise DataError(f"cannot read the decision log {self.path}: {error}") from error
        frame = pd.DataFrame(rows, columns=names, dtype="object")
        return frame.astype({name: _DTYPES.get(name, "str") for name in names})


def opened(path: Path | str, schema: str, *, version: int = 0) -> sqlite3.Connection:
    """Open a file of a schema's tables, or make it; a file of something else stays as it is.

    Args:
        path: the file.
        schema: the statements that make the tables.
        version: of the schema.

    Raises:
        DataError: it is something else, or of another version.
        sqlite3.Error: it is not an SQLite file, or cannot be written.
    """
    # Without transactions of Python's own, so that each row is written when its execute returns.
    db = sqlite3.connect(path, timeout=_WAIT_S, check_same_thread=False, isolation_level=None)
    try:
        [found] = db.execute("PRAGMA user_version").fetchone()
        if found not in (0, version):
            raise DataError(
                f"it was written by another version ({found}), or by something else; name another "
                "file"
            )
        _check_tables(db, schema)
        db.execute("PRAGMA journal_mode = WAL")  # readers need not wait for a writer
        db.executescript(schema)
        if found != version:  # else opening would wait for whoever writes
            db.execute(f"PRAGMA user_version = {version}")
    except BaseException:
        db.close()
        raise
    return db


def _check_tables(db: sqlite3.Connection, schema: str) -> None:
    """Raise DataError if a file has tables but a schema's; it need not have those yet."""
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(schema)
        wanted = _columns_of(empty)
    found = _columns_of(db)
    if others := sorted(found.keys() - wanted.keys()):
        raise DataError(
            f"it holds other things ({clip(', '.join(others), 100)}); name a file of its own"
        )
    for table, columns in found.items():
        if columns != wanted[table]:
            raise DataError(
                f"its table {table} has the columns {clip(', '.join(columns), 100)} where "
                f"{', '.join(wanted[table])} are needed; name another file"
            )


def _columns_of(db: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the columns of all tables and views but SQLite's own."""
    rows = db.execute(
        "SELECT s.name, c.name FROM sqlite_schema AS s, pragma_table_info(s.name) AS c "
        "WHERE s.type IN ('table', 'view') AND s.name NOT LIKE 'sqlite!_%' ESCAPE '!' "
        "ORDER BY s.name, c.cid"
    )
    found: dict[str, list[str]] = {}
    for table, column in rows:
        found.setdefault(table, []).append(column)
    return found


def _dumps(value: Any) -> str:
    try:
        return json.dumps(value)
    except ValueError as error:
        raise DataError(f"a tool's parameters or result cannot be written: {error}") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


# --- the rows of one message ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DecisionOutcome:
    """A decision and how it counts.

    Attributes:
        decision: the decision.
        category: ``SUCCESS``, ``ERROR``, ``REFUSAL`` or ``AMBIGUITY``, a colon, and which kind.
        intent: what the message was taken for: the tools that it needed, or a word.
    """

    decision: AgentDecision
    category: str
    intent: str = "CONVERSATION"


class DecisionEntry:
    """Writes one message's rows: its decision's, and one for each tool call.

    The pending row is written before anything is done; if that fails, nothing is done. A later row
    that cannot be written is an ERROR line of the program's own log, and the user gets the answer.

    Args:
        log: where the rows go, or None.
        context: the message.
    """

    def __init__(self, log: DecisionLogger | None, context: DecisionContext) -> None:
        self.decision_id = uuid.uuid4().hex
        self._log = log
        self._context = context
        self._began = time.perf_counter()

    async def start(self) -> None:
        """Write that a decision is pending."""
        await self._write("LLM_PROCESSING", "PENDING", "PENDING", 0)

    async def finish(self, outcome: DecisionOutcome) -> None:
        """Write the decision."""
        milliseconds = self._milliseconds()
        decision_type = outcome.decision.decision_type.value
        log_event(
            logger,
            logging.DEBUG,
            "decision",
            decision_id=self.decision_id,
            decision_type=decision_type,
            outcome=outcome.category,
            duration_ms=round(milliseconds, 3),
        )
        with self._loss_logged("decision"):
            await self._write(outcome.intent, decision_type, outcome.category, milliseconds)

    async def fail(self, error: BaseException) -> None:
        """Write that there is no decision: the message was stopped, or the program failed."""
        # The class as a code: TapeMiss as TAPE_MISS.
        code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).upper()
        if isinstance(error, asyncio.CancelledError):
            code = "STOPPED"
        with self._loss_logged("decision"):
            await self._write("UNKNOWN", "NONE", f"ERROR:{code}", self._milliseconds())

    async def tool_ran(self, call: ToolCall) -> None:
        """Write that a tool ran."""
        if self._log is None or (result := call.result) is None:
            return
        with self._loss_logged(call.tool_name):
            await value_of(
                self._log.write_tool_invocation_log(
                    decision_id=self.decision_id,
                    tool_name=call.tool_name,
                    parameters=call.parameters,
                    result=result.data,
                    success=result.success,
                    error_code=result.error_code,
                    error_message=result.error,
                    duration_ms=call.duration_ms,
                )
            )

    def _milliseconds(self) -> float:
        return (time.perf_counter() - self._began) * 1000

    async def _write(
        self, intent: str, decision_type: str, category: str, duration_ms: float
    ) -> None:
        if self._log is not None:
            await value_of(
                self._log.write_decision_log(
                    decision_id=self.decision_id,
                    conversation_id=self._context.conversation_id,
                    user_id=self._context.user_id,
                    message=self._context.message,
                    intent_type=intent,
                    decision_type=decision_type,
                    outcome_category=category,
                    duration_ms=duration_ms,
                )
            )

    @contextmanager
    def _loss_logged(self, what: str) -> Iterator[None]:
        """Log a row that cannot be written, and continue: what was decided has been done."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - users' loggers raise anything
            log_event(
                logger,
                logging.ERROR,
                "decision_log_lost",
                decision_id=self.decision_id,
                what=what,
                detail=repr(error),
            )


# --- secrets --------------------------------------------------------------------------------------


_HIDDEN = "***"
_MAX_DEPTH = 100
_TOO_DEEP = f"(left out: more than {_MAX_DEPTH} levels deep, or a part of itself)"
_LONG = 5
"""Names of this many letters are also found at the end of a longer word, as in ``dbpassword``."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_COUNTS = re.compile(r"\b(?:count|limit|max|min|number|total|usage|length)\b")
_NAMES_A_VALUE = ("name", "key", "header")

_GAP = r"[\s_-]?"
_BETWEEN = r"""\\*["']?(?:
    \s*(?:(?:is|was)\b\s*)?(?:(?P<line>[:\uff1a→]|->)|(?P<word>[=\uff1d]+>?))\s*
    | \s+(?P<clause>is|was)\b\s*
    | (?P<option>\s+))"""
"""What stands between a name and its value; the group says how far the value goes. The escapes are
a wide colon and a wide equals sign.
"""
# As many escapes before the closing quote as before the opening one: JSON may stand in JSON.
_QUOTED = re.compile(r"(\\*)([\"']).*?(?:(?<!\\)\1\2[^\s,;&}\])\\]*|\Z)", re.DOTALL)
_BRACKETED = re.compile(r"[\[{].*", re.DOTALL)
_WORD = re.compile(r"(?:(?:bearer|basic|digest|token)\s+)?(?:[^\s,;&]|,(?=\S))+", re.IGNORECASE)
_PLAIN = {
    "line": re.compile(r"[^\n]+"),
    "clause": re.compile(r"(?:[^\n,;.]|[,;.](?=\S))+"),
    "word": _WORD,
    "option": _WORD,
}
_OPTION_START = re.compile(r"(?:^|\s)--?[\w-]*$")
_LONGEST_START = 40
"""How far before a name an option's dashes are looked for, characters."""
_NUMBER = re.compile(r"[\d.,_ ]*\d\b")


class Redactor:
    """Replaces secrets by ``***``.

    In JSON, a name's whole value is replaced. In a text, what follows the name is: a quoted text up
    to its closing quote; everything after an opening bracket; after ``:`` or an arrow, the rest of
    the line; after ``is`` or ``was``, the rest of the clause; after ``=``, and after the name of an
    option (``--password x``), the next word. So too much is hidden rather than too little, but a
    secret without such a name before it is not found. A text that is JSON is treated as JSON.
    Numbers under names of counts stay: ``tokens``, ``token_count``.

    Args:
        keys: names of secrets, in any spelling: ``api_key`` also finds ``apiKey``, ``API-KEY``,
            ``apikey``, ``github_api_key``, ``api_key_id`` and ``api_keys``. Names of at least five
            letters are also found at the end of longer words: ``dbpassword``.

    Raises:
        ConfigError: a name has no letters, or the names are one text.
    """

    def __init__(self, keys: Iterable[str] = SECRETS) -> None:
        if isinstance(keys, str):  # each letter would be a name, and the secret itself be written
            raise ConfigError(f"redact={keys!r} is one text; give a list of names: [{keys!r}]")
        names = [_words(key) for key in keys]
        if not all(names):
            raise ConfigError("a key to redact must have letters; leave empty ones out")
        self._key = re.compile(_any_of(names, " ?") + r"s?(?!\w)")
        # A possessive repeat: a long word is not tried again at every shorter length.
        self._in_text = re.compile(
            rf"(?P<key>{_any_of(names, _GAP)}(?:\w|-(?=\w)){{0,40}}+){_BETWEEN}",
            re.IGNORECASE | re.VERBOSE,
        )
        self._active = bool(names)

    def value(self, value: Any, *, depth: int = 0) -> Any:
        """Return a JSON value without secrets; other values become text.

        What is nested too deeply, or contains itself, is replaced by a note.

        Args:
            value: the value.
            depth: how deep it is nested in what is written.
        """
        if isinstance(value, str):
            return self.text(value, depth=depth)
        if value is None or isinstance(value, bool | int | float):
            return value
        if not isinstance(value, Mapping | list | tuple):
            return self.text(str(value), depth=depth)
        if depth >= _MAX_DEPTH:
            return _TOO_DEEP
        if isinstance(value, Mapping):
            # In {"name": "password", "value": …} the name of the secret is itself a value.
            named = any(self._names_secret(value.get(key)) for key in _NAMES_A_VALUE)
            return {
                str(key): _HIDDEN
                if self._is_secret(str(key), item) or (named and key == "value")
                else self.value(item, depth=depth + 1)
                for key, item in value.items()
            }
        # So does a pair, as headers and environment variables often come: ["token", …].
        if len(value) == 2 and self._names_secret(value[0]):
            return [value[0], _HIDDEN]
        return [self.value(item, depth=depth + 1) for item in value]

    def text(self, text: str, *, depth: int = 0) -> str:
        """Return a text without the secrets that it names; see ``value``."""
        if not self._active:
            return text
        # A text may itself be JSON, as some tools return it.
        if text.lstrip()[:1] in ("{", "[") and depth < _MAX_DEPTH:
            try:
                read = json.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                if (redacted := self.value(read, depth=depth + 1)) != read:
                    return json.dumps(redacted, ensure_ascii=False)
        kept, at = [], 0
        for found in self._in_text.finditer(text):
            if found.start() < at:  # inside a value that is hidden already
                continue
            if (end := self._end_of_secret(text, found)) > found.end():
                kept += [text[at : found.end()], _HIDDEN]
                at = end
        return "".join([*kept, text[at:]])

    def _end_of_secret(self, text: str, found: re.Match[str]) -> int:
        """Return where the value after a name ends; the name's own end if it is not a secret."""
        how, begin = str(found.lastgroup), found.end()
        # A count of tokens in a text is a number as it is in JSON, and stays.
        number = _NUMBER.match(text, begin)
        if not self._is_secret(found["key"], 0 if number else text):
            return begin
        if how == "option":  # "--password x" names a secret, "the password x" does not
            before = text[max(0, found.start() - _LONGEST_START) : found.start()]
            if not _OPTION_START.search(before):
                return begin
        # The plain one last: what is quoted or in brackets continues past spaces and commas.
        for pattern in (_QUOTED, _BRACKETED, _PLAIN[how]):
            if value := pattern.match(text, begin):
                return value.end()
        return begin

    def _is_secret(self, key: str, value: Any) -> bool:
        words = " ".join(_words(key))
        if not self._active or (found := self._key.search(words)) is None:
            return False
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        counts = found[0].endswith("s") or _COUNTS.search(words) is not None
        return not (is_number and counts)

    def _names_secret(self, value: Any) -> bool:
        return isinstance(value, str) and len(value) <= 100 and self._is_secret(value, value)


def _words(key: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(key)]


def _any_of(names: Iterable[list[str]], between: str) -> str:
    """Return a pattern of names; short ones must begin a word."""
    patterns = []
    for words in names:
        # Neither a letter nor a digit before it: an underscore begins a word too.
        start = "" if len("".join(words)) >= _LONG else r"(?<![^\W_])"
        patterns.append(start + between.join(map(re.escape, words)))
    return f"(?:{'|'.join(patterns)})"
