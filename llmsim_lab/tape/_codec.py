"""Requests, replies and runs to and from rows of a tape, and what identifies a call.

Pydantic reads and writes the values strictly by their own types: a file may hold anything, but a
value of another type never leaves this module. A call's key covers the whole request, its place
in the run, and which of several equal ones it is.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple, NotRequired, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_core import from_json
from typing_extensions import TypedDict

from llmsim_lab._spans import Origin
from llmsim_lab._util.text import faults
from llmsim_lab.errors import FailureReason, PromptError, TapeError
from llmsim_lab.prompts import Prompt
from llmsim_lab.types import Attempt, CallSite, ChatReply, ChatRequest, Message, Status

KEY_BYTES = 16
_MAX_KNOWN_SETTINGS = 10_000

Verb = Literal["run", "rerun", "fork", "import", "experiment"]


# --- JSON ----------------------------------------------------------------------------------------


_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def dumps(value: Any) -> str:
    """Return JSON that SQLite can store, also of a text with half a character (a surrogate).

    Models that are stopped in the middle of an emoji write such texts, which UTF-8 cannot encode.

    Raises:
        ValueError: a number is not finite, which JSON cannot hold.
    """
    text = _encode(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            # Escapes can say what UTF-8 cannot.
            return json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text


def loads(text: Any, what: str) -> Any:
    """Return what a JSON text of the tape holds.

    Raises:
        TapeError: it is not JSON, or has a number that is not finite.
    """
    try:
        # Twice as fast as the json module, and equal texts become one object.
        return from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError):
        pass  # it may hold half a character, which only the json module reads
    try:
        return json.loads(text, parse_constant=not_finite)
    except (ValueError, TypeError, RecursionError) as error:
        raise TapeError(f"{what} on the tape is damaged: {error}") from error


def not_finite(text: str) -> float:
    """Raise ValueError: the ``parse_constant`` of ``json.loads``, for NaN and the infinities."""
    raise ValueError(f"it holds {text}, which is not a number of JSON")


def _write(adapter: TypeAdapter[Any], value: object) -> str:
    try:
        return adapter.serializer.to_json(value, exclude_defaults=True).decode()
    except ValueError:  # half a character, which pydantic cannot write
        return dumps(adapter.dump_python(value, mode="json", exclude_defaults=True))


def read(adapter: TypeAdapter[Any], text: Any, context: Any = None) -> Any:
    """Return what a JSON text holds, strictly of the adapter's type.

    Args:
        adapter: of the type.
        text: the JSON.
        context: what the type's own validators are handed, if any.

    Raises:
        ValueError: it holds something else; says where, in words.
    """
    if not isinstance(text, str):
        raise TypeError(f"it is {type(text).__name__} where a text should be")
    try:
        try:
            return adapter.validate_json(text, strict=True, context=context)
        except ValidationError:
            if not _HALF_CHARACTER.search(text):
                raise
            # Pydantic does not read half characters: it checks the types without them, and the
            # json module reads the texts.
            adapter.validate_json(_HALF_CHARACTER.sub("?", text), strict=True, context=context)
            return adapter.validate_python(json.loads(text), context=context)
    except (ValidationError, UnicodeError) as error:
        raise ValueError(faults(error) if isinstance(error, ValidationError) else error) from error


# Made when first used: building pydantic's validators takes long.


@cache
def _messages() -> TypeAdapter[tuple[Message, ...]]:
    return TypeAdapter(tuple[Message, ...])


@cache
def _reply() -> TypeAdapter[ChatReply]:
    return TypeAdapter(ChatReply)


@cache
def _fault() -> TypeAdapter[tuple[FailureReason, str, int | None, bool]]:
    return TypeAdapter(tuple[FailureReason, str, int | None, bool])


# --- what many requests share --------------------------------------------------------------------


@with_config(ConfigDict(extra="forbid"))
class _SettingsText(TypedDict):
    model: str
    schema: dict[str, Any] | None
    tools: tuple[dict[str, Any], ...]
    options: dict[str, Any]
    think: bool | str | None
    keep_alive: float | str | None
    timeout_s: float
    top_logprobs: NotRequired[int]
    system: NotRequired[str]


@cache
def _settings() -> TypeAdapter[_SettingsText]:
    return TypeAdapter(_SettingsText)


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """What a request shares with others.

    Attributes:
        text: all of it as JSON, the system message included.
        digest: of the text, SHA-256.
        key_digest: of the part that keys cover: all but how long to wait and how long the model
            stays loaded.
        own: the index of the first of a request's messages that is not part of the text.
        held: objects that must stay alive while their identities are in use.
    """

    text: str
    digest: bytes
    key_digest: bytes
    own: int
    held: tuple[object, ...]


def plain(value: Any) -> Any:
    """Return JSON-ready copies of mappings and tuples, as deep as they go."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def settings_of(request: ChatRequest) -> dict[str, Any]:
    """Return the part of a request's settings that keys cover."""
    values = {
        "model": request.model,
        "schema": plain(request.schema),
        "tools": plain(request.tools),
        "options": plain(request.options),
        "think": request.think,
    }
    if request.top_logprobs is not None:  # else absent, as before there was this setting
        values["top_logprobs"] = request.top_logprobs
    system = _shared_system(request)
    return values if system is None else values | {"system": system}


def _shared_system(request: ChatRequest) -> str | None:
    """Return the system message that is kept with the settings, once for many requests."""
    first = request.messages[0] if request.messages else None
    if first is None or first.role != "system" or first.tool_calls or first.tool_name is not None:
        return None
    return first.content


class SettingsCache:
    """Settings that many requests share, turned into text once per combination.

    Schemas and options are made once and handed to every request, so that the objects' identities
    tell the combinations apart; the objects are kept alive as long as their identities are in use.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], RequestSettings] = {}

    def of(self, request: ChatRequest) -> RequestSettings:
        """Return the request's settings."""
        system = _shared_system(request)
        # By identity, since hashing a schema for each of many calls would take long.
        key = (
            request.model,
            id(request.schema),
            id(request.tools),
            id(request.options),
            request.think,
            request.top_logprobs,
            request.keep_alive,
            request.timeout_s,
            system,
        )
        found = self._known.get(key)
        if found is None:
            values = settings_of(request)
            waits = {"keep_alive": request.keep_alive, "timeout_s": request.timeout_s}
            text, key_text = dumps(values | waits), dumps(values)
            found = RequestSettings(
                text,
                hashlib.sha256(text.encode()).digest(),
                hashlib.sha256(key_text.encode()).digest(),
                0 if system is None else 1,
                (request.schema, request.tools, request.options),
            )
            # Not more: what is made anew for each request would fill the memory. All go, since what
            # is used again comes back, and nothing would if those that came first stayed.
            if len(self._known) >= _MAX_KNOWN_SETTINGS:
                self._known.clear()
            self._known[key] = found
        return found


# --- keys ----------------------------------------------------------------------------------------


class EncodedRequest(NamedTuple):
    """A request as it is recorded: its own messages as JSON, its settings, and its key."""

    messages: str
    settings: RequestSettings
    key: bytes


def encode_request(request: ChatRequest, cache: SettingsCache) -> EncodedRequest:
    """Return a request as it is recorded; the key is equal for equal calls in any process.

    The key covers model, messages, schema, tools, options, thinking and alternatives; component,
    agent, turn and replicate; and the attempt.
    """
    settings = cache.of(request)
    messages = _write(_messages(), request.messages[settings.own :])
    place: tuple[Any, ...] = (None, None, None, 0, request.attempt)
    if (site := request.site) is not None:
        place = (site.component, site.agent, site.turn, site.replicate, request.attempt)
    # By ``repr``: it tells None from "None", and 1 from "1".
    covered = f"{place!r}{messages}".encode("utf-8", "surrogatepass")
    key = hashlib.blake2b(settings.key_digest + covered, digest_size=KEY_BYTES).digest()
    return EncodedRequest(messages, settings, key)


def nth_key(base: bytes, count: int) -> bytes:
    """Return the key of a request that ``count`` equal ones of its turn came before."""
    return base if count == 0 else base + count.to_bytes(4, "big")


def key_fits(key: object, base: bytes) -> bool:
    """Return True if a recorded key is ``base``, or that of the n-th equal request for some n."""
    if not isinstance(key, bytes) or not key.startswith(base):
        return False
    # A count of 0 is never written; see ``nth_key``.
    return key == base or (len(key) == len(base) + 4 and any(key[-4:]))


# --- calls ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One request on a tape, with what became of it.

    Attributes:
        id: its number on the tape.
        run: the run that made it.
        key: what identifies it among those of its run.
        attempt: the request, the reply or fault, and how long it took.
        forgotten: whether its call failed for good and was made again.
    """

    id: int
    run: int
    key: bytes
    attempt: Attempt
    forgotten: bool


def reply_text(reply: ChatReply | None) -> str | None:
    """Return a reply as JSON.

    Raises:
        ValueError: a tool's arguments hold a number that is not finite.
    """
    if reply is None:
        return None
    if reply.tool_calls:  # pydantic would write a NaN in them as null, without an error
        return dumps(plain(_reply().dump_python(reply, exclude_defaults=True)))
    return _write(_reply(), reply)


@lru_cache(maxsize=1024)
def digest_of(text: str) -> bytes:
    """Return the digest of a text that many calls share, SHA-256."""
    return hashlib.sha256(text.encode()).digest()


def fault_text(attempt: Attempt) -> str | None:
    """Return what went wrong as JSON, or None if nothing did."""
    if attempt.reason is None:
        return None
    return dumps([attempt.reason, attempt.detail, attempt.status_code, attempt.retry])


class _CallColumns(TypedDict):
    """Columns of ``calls`` that hold no JSON."""

    id: int
    run: int
    key: bytes
    turn: int | None
    component: str | None
    agent: str | None
    replicate: int
    attempt: int
    seconds: float
    forgotten: int
    origin: int | None
    spans: str | None


@cache
def _call_columns() -> TypeAdapter[_CallColumns]:
    return TypeAdapter(_CallColumns)


def call_of(
    row: sqlite3.Row | Mapping[str, Any], settings: object, form: object = None
) -> RecordedCall:
    """Return a row of ``calls`` with its shared texts as a call.

    Where its prompt's values came from is parsed only when it is read.

    Args:
        row: the row.
        settings: the text of its settings.
        form: the text of its origin's form, if it has one.

    Raises:
        TapeError: the row does not hold what it should; the tape is damaged.
    """
    # Looked up by name in SQLite's row, each column would be searched for.
    row = dict(zip(row.keys(), row, strict=True)) if isinstance(row, sqlite3.Row) else row
    try:
        _call_columns().validate_python(row, strict=True)
        attempt = _attempt_of(row, settings, form)
    except ValidationError as error:
        [fault, *_] = error.errors()
        name = str(fault["loc"][0])
        raise TapeError(
            f"call {row['id']!r:.20} on the tape is damaged: {name} is "
            f"{type(row[name]).__name__} where it should be {fault['type'].removesuffix('_type')}"
        ) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise TapeError(f"call {row['id']} on the tape is damaged: {error}") from error
    return RecordedCall(
        id=row["id"],
        run=row["run"],
        key=row["key"],
        attempt=attempt,
        forgotten=bool(row["forgotten"]),
    )


@lru_cache(maxsize=512)
def _same(text: str) -> str:
    """Return one object for equal texts, so that calls share it in memory."""
    return text


@lru_cache(maxsize=512)
def _shared(text: object) -> tuple[str | None, dict[str, Any]]:
    """Return settings, parsed once for many calls, so that ``SettingsCache`` recognizes them."""
    values = dict(read(_settings(), text))
    return values.pop("system", None), values


def _attempt_of(row: Mapping[str, Any], settings: object, form: object) -> Attempt:
    """Return the request of a row and what became of it.

    Raises:
        ValueError: a JSON text does not hold what it should.
    """
    system, shared = _shared(settings)
    messages: tuple[Message, ...] = read(_messages(), row["messages"])
    if system is not None:
        messages = (Message("system", system), *messages)
    site = None
    if row["component"] is not None:
        site = CallSite(
            component=row["component"],
            agent=row["agent"],
            turn=row["turn"],
            replicate=row["replicate"],
        )
    origin = None
    if isinstance(spans := row["spans"], str) and isinstance(form, str):
        origin = Origin(_same(form), spans)
    elif spans is not None or row["origin"] is not None:
        raise ValueError("it has one of origin and spans without the other")
    request = ChatRequest(
        messages=messages, site=site, attempt=row["attempt"], origin=origin, **shared
    )
    fault = (None, "", None, False) if row["fault"] is None else read(_fault(), row["fault"])
    reason, detail, status_code, retry = fault
    reply = None if row["reply"] is None else read(_reply(), row["reply"])
    return Attempt(
        request=request,
        reply=reply,
        seconds=row["seconds"],
        reason=reason,
        detail=detail,
        status_code=status_code,
        retry=retry,
        number=row["id"],
    )


# --- turns ----------------------------------------------------------------------------------------


def call_numbers(record: Any) -> list[int]:
    """Return the numbers of the calls that a turn's record names.

    Raises:
        ValueError: it is not a record, or a part of it has the wrong type.
    """
    # Not isinstance, for which True is a number as well.
    if not isinstance(record, dict) or type(record.get("turn")) is not int:
        raise ValueError("it is not a record of a turn")
    if not isinstance(record.get("state"), dict):
        raise ValueError("it has no state")
    for part in ("calls", "chains", "interventions", "planned"):
        if not isinstance(record.get(part), list):
            raise ValueError(f"it has no {part}")
    numbers: list[int] = []
    for call in record["calls"]:
        numbers += _numbers_of(call)
    for chain in record["chains"]:
        if not isinstance(chain, dict):
            raise ValueError("one of its chains is not an object")
        named = chain.get("call")
        if type(named) is int:
            if not 0 <= named < len(record["calls"]):
                raise ValueError(f"one of its chains names the call at place {named}")
        elif named is not None:
            numbers += _numbers_of(named)
    return numbers


def _numbers_of(call: Any) -> list[int]:
    match call:
        case [status, [_, *_] as numbers] if status in get_args(Status):
            if all(type(number) is int for number in numbers):
                return list(numbers)
    raise ValueError("it does not name its calls as status and numbers")


# --- runs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One run on a tape.

    Attributes:
        id: its number on the tape, 1 for the first.
        name: its configuration's name.
        parent: the run it was forked from or is a rerun of, if any.
        fork_turn: the turn of its parent that it starts from; None if it is not a fork.
        verb: how it came about.
        started, ended: UTC, ISO 8601; ``ended`` is None while it is played or if it was cut off.
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
        """The model's name as recorded, or as its settings call it; empty if there is none."""
        for key, name in (("model", "name"), ("llm", "model")):
            part = self.manifest.get(key)
            if isinstance(part, Mapping):
                return str(part.get(name, ""))
        return ""


class _RunColumns(TypedDict):
    name: str
    parent: int | None
    fork_turn: int | None
    verb: str
    started: str
    ended: str | None
    outcome: str | None


@cache
def _run_columns() -> TypeAdapter[_RunColumns]:
    return TypeAdapter(_RunColumns)


def info_of(row: sqlite3.Row, *, turns: object, calls: object) -> RunInfo:
    """Return a row of ``runs`` as a run's facts.

    Args:
        row: the row.
        turns: the last whole turn, or None.
        calls: how many calls it has.

    Raises:
        TapeError: it does not hold what it should; the tape is damaged.
    """
    manifest = loads(row["manifest"], f"the manifest of run {row['id']}")
    try:
        values = {name: row[name] for name in _RunColumns.__annotations__}
        _run_columns().validate_python(values, strict=True)
        if not isinstance(manifest, dict) or not isinstance(turns, int | None):
            raise TypeError("a column of the wrong type")
    except (ValidationError, TypeError) as error:
        raise TapeError(
            f"run {row['id']} on the tape is damaged: a column of the wrong type"
        ) from error
    return RunInfo(
        id=row["id"],
        turns=turns if isinstance(turns, int) else 0,
        calls=calls if isinstance(calls, int) else 0,
        manifest=manifest,
        **values,
    )


def now() -> str:
    """Return the time, UTC, ISO 8601 to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_RUN_PARTS: Mapping[str, tuple[type, ...]] = {
    "kind": (str,),
    "package": (str,),
    "config": (dict,),
    "prompts": (dict,),
    "given": (list,),
    "llm": (dict, type(None)),
    "model": (dict, type(None)),
}


def manifest_faults(manifest: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a manifest, in words: parts missing, digests that do not fit."""
    found = [
        f"the manifest has no {part}"
        for part, types in _RUN_PARTS.items()
        if part not in manifest or not isinstance(manifest[part], types)
    ]
    prompts = manifest.get("prompts")
    if isinstance(prompts, dict):
        for place, entry in prompts.items():
            if fault := _prompt_fault(entry):
                found.append(f"the prompt of {place}: {fault}")
    return found


def _prompt_fault(entry: Any) -> str | None:
    match entry:
        case {"text": str(text), "name": str(name), "digest": str(digest), "parent": parent}:
            if not isinstance(parent, str | None):
                return "its parent is not a digest"
        case _:
            return "it lacks its name, text, digest or parent"
    try:
        found = _prompt_digest(text, name)
    except (PromptError, UnicodeError, RecursionError) as error:
        return f"it cannot be read: {error}"
    return None if found == digest else "its text does not have the digest recorded for it"


@lru_cache(maxsize=64)
def _prompt_digest(text: str, name: str) -> str:
    """Return a prompt's digest; all agents of a run may have the same one."""
    return Prompt.parse(text, name=name).digest
