"""What the lines of a tape say: runs, requests with what became of them, turns.

Pydantic reads and writes them strictly by their types: a file may hold anything, but a value of
another type never leaves this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import ConfigDict, Field, InstanceOf, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from llmsim_lab._spans import Origin
from llmsim_lab._util.frozen import FrozenDict
from llmsim_lab._util.jsontext import (
    as_mapping,
    checked,
    dumps,
    loads,
    loads_strictly,
    plain,
    read,
    write,
)
from llmsim_lab._util.text import each_fault, fault_text
from llmsim_lab.errors import FailureReason, TapeError
from llmsim_lab.tape._journal import MAX_TEXTS, Journal, Place, fact_in
from llmsim_lab.types import Attempt, CallSite, ChatReply, ChatRequest, Message, Status, ToolCall

T = TypeVar("T")
Verb = Literal["run", "rerun", "fork"]

_MOST = 10**9
_Count = Annotated[int, Field(ge=0, le=_MOST)]
_Turn = Annotated[int, Field(ge=-_MOST, le=_MOST)]
_Number = Annotated[int, Field(ge=1, le=10**15)]
_Seconds = Annotated[float, Field(ge=0, le=1e9)]
_Digest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
_MAX_KNOWN = 10_000
_SITE = ("component", "agent", "turn", "replicate")
_BIG = 200
"""From how many characters on a part of a manifest is a text that runs share."""


class _FAULT(TypedDict):
    reason: FailureReason
    detail: str
    status_code: NotRequired[int]
    retry: NotRequired[bool]


_NAMED = tuple[Status, Annotated[list[_Number], Field(min_length=1)]]
"""A call, as records name it: how it went, and the numbers of its attempts."""


@with_config(ConfigDict(extra="allow"))
class _RECORD(TypedDict):
    # What any run has, in the order in which it is written, which is kept; its class checks more.
    state: dict[str, Any]
    turn: _Turn
    seconds: NotRequired[Any]
    interventions: list[Any]
    planned: list[Any]
    calls: list[_NAMED]


_KINDS: Mapping[str, Mapping[str, Any]] = {
    "tape": {"tape": Literal[3], "by": str, "id": _Digest},
    "text": {"text": _Digest, "value": Any},
    "run": {
        "name": str,
        "parent": NotRequired[_Number],
        "fork_turn": NotRequired[_Turn],
        "verb": Verb,
        "started": str,
        "manifest": dict[str, Any],
        "texts": dict[str, _Digest],
    },
    "set": {
        "process": NotRequired[_Count],
        "manifest": NotRequired[dict[str, Any]],
        "texts": NotRequired[dict[str, _Digest]],
    },
    "end": {"ended": str, "outcome": str},
    "call": {
        "turn": _Turn | None,
        "no": _Number,
        "component": NotRequired[str],
        "agent": NotRequired[str],
        "replicate": NotRequired[_Count],
        "attempt": NotRequired[Annotated[int, Field(ge=1, le=2)]],
        "first": NotRequired[_Number],
        "nth": NotRequired[_Count],
        "messages": tuple[Message, ...],
        "settings": _Digest,
        "origin": NotRequired[tuple[_Digest, list[Any]]],
        "reply": NotRequired[ChatReply],
        "fault": NotRequired[_FAULT],
        "cut": NotRequired[tuple[str, ...]],
        "seconds": _Seconds,
    },
    "outside": {
        "turn": _Turn,
        "what": str,
        "key": Any,
        "nth": NotRequired[_Count],
        "result": NotRequired[Any],
        "once": NotRequired[bool],
        "stopped": NotRequired[bool],
        "seconds": NotRequired[_Seconds],
    },
    "forget": {"turn": _Turn, "calls": list[_Number]},
    "turn": {"turn": _Turn, "record": _RECORD, "row": dict[str, Any]},
}
"""By kind, the members of a line, but for its check sum, and of a run's for run and kind."""


_SETTINGS = {
    "model": str,
    "schema": dict[str, Any] | None,
    "tools": tuple[dict[str, Any], ...],
    "options": dict[str, Any],
    "think": bool | str | None,
    "keep_alive": float | str | None,
    "timeout_s": float,
    "top_logprobs": NotRequired[int | None],
    "system": NotRequired[str],
}
"""Members of a text that calls name."""


def _strictly(name: str, members: Mapping[str, Any]) -> TypeAdapter[Any]:
    strict = with_config(ConfigDict(extra="forbid", allow_inf_nan=False))
    return TypeAdapter(strict(TypedDict(name, members)))  # type: ignore[operator]


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    of_run = {} if kind in ("tape", "text") else {"run": _Number, "is": Literal[kind]}
    return _strictly(kind, {**of_run, **_KINDS[kind], "sum": str})


# Made when first used: building pydantic's validators takes long.
_calls = cache(lambda: TypeAdapter(tuple[ToolCall, ...]))
_anything = cache(lambda: TypeAdapter(Any))
_settings = cache(lambda: _strictly("settings", _SETTINGS))


def read_line(raw: bytes) -> dict[str, Any]:
    """Return what a line says, every member of its type.

    Raises:
        ValueError: it is of no kind, lacks a member, or has one too many or of another type.
    """
    fact = fact_in(raw)
    kind = fact[1].decode() if fact else raw[2:6].decode(errors="replace")
    if kind not in _KINDS:
        raise ValueError("it is not a line of a tape")
    value: dict[str, Any] = read(_adapter(kind), raw)
    return value


# --- what many requests share --------------------------------------------------------------------


def settings_of(request: ChatRequest) -> dict[str, Any]:
    """Return the part of a request's settings in which equal requests do not differ."""
    shared = ("model", "schema", "tools", "options", "think", "top_logprobs")
    return {name: plain(getattr(request, name)) for name in shared}


_known: dict[tuple[Any, ...], tuple[str, str, object]] = {}


def _parts(request: ChatRequest) -> tuple[str, str, tuple[Message, ...]]:
    """Return a request's settings as JSON, all and those that equal requests share, and the rest.

    The settings, with the system message, are written once per combination; the rest are the other
    messages. A client makes schemas and options once, so that nothing changes them, and hands them
    to every request: the objects' identities tell the combinations apart, for hashing a schema for
    each call would take long. The objects are kept alive as long as their identities are in use.
    """
    messages, system = request.messages, None
    first = messages[0] if messages else None
    if first and first.role == "system" and not first.tool_calls and first.tool_name is None:
        system, messages = first.content, messages[1:]
    schema, tools, options = request.schema, request.tools, request.options
    own = request.model, request.think, request.top_logprobs, system
    parts = [schema, options, *tools]
    # What can be changed may say something else by the next request.
    stays = all(part is None or type(part) is FrozenDict for part in parts)
    key = tuple(map(id, parts)), request.keep_alive, request.timeout_s, own
    found = _known.get(key) if stays else None
    if found is None:
        waits = {"keep_alive": request.keep_alive, "timeout_s": request.timeout_s}
        values = settings_of(request) | ({} if system is None else {"system": system})
        shared = dumps(values)
        found = f"{shared[:-1]},{dumps(waits)[1:]}", shared, parts
        if stays:
            # Not more: what is made anew for each request would fill the memory.
            if len(_known) >= min(_MAX_KNOWN, MAX_TEXTS / len(shared)):
                _known.clear()
            _known[key] = found
    return found[0], found[1], messages


def what_is_asked(request: ChatRequest) -> tuple[tuple[Any, ...], str, tuple[Message, ...]]:
    """Return what two equal requests of a turn have in common: all but how long to wait.

    After it come the settings, all of them, and the messages that a line has beside them.
    """
    site, (settings, shared, messages) = request.site, _parts(request)
    place = (site.component, site.agent, site.replicate) if site else None
    # Not the messages themselves, whose hash takes long and is asked for several times. Calls as
    # text, in which 1 and True differ.
    said = [
        (it.role, it.content, it.tool_name, it.tool_calls and write(_calls(), it.tool_calls))
        for it in messages
    ]
    return (place, request.attempt, shared, tuple(said)), settings, messages


# --- calls ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One request on a tape, with what became of it.

    Attributes:
        id: its number on the tape.
        run: the run that made it.
        nth: how many equal requests of its turn were made before it.
        attempt: the request, the reply or fault, and how long it took.
        forgotten: whether its call failed for good and was made again.
    """

    id: int
    run: int
    nth: int
    attempt: Attempt
    forgotten: bool


def members(**values: Any) -> bytes:
    """Return those of the values that are not None as members of a line, a comma before each."""
    return b"," + dumps({name: it for name, it in values.items() if it is not None})[1:-1].encode()


def member(value: Any) -> bytes:
    """Return a value from outside as JSON that can be read back as a part of a line.

    Raises:
        ValueError: it cannot: it is nested too deeply, or a number is too long or not finite.
    """
    try:
        raw = dumps(plain(value)).encode()
    except (TypeError, RecursionError) as error:
        raise ValueError(f"no JSON can be made of it: {error}") from error
    loads_strictly(raw)
    read(_anything(), b"[[%b]]" % raw)  # as deep as it will stand
    return raw


def call_body(attempt: Attempt, nth: int, intern: Callable[[str], bytes], *parts: Any) -> bytes:
    """Return the members of a call's line, from ``component`` on, each with a comma before it.

    Args:
        attempt: what became of a request.
        nth: how many equal requests of its turn were made before it.
        intern: writes a text that calls share, and returns its digest.
        parts: the request's settings and messages, as ``what_is_asked`` gives them.

    Raises:
        ValueError: a tool's arguments hold what a line cannot.
    """
    request, reply, origin = attempt.request, attempt.reply, attempt.request.origin
    site, (settings, messages), fault = request.site, parts, None
    if attempt.reason:
        facts = {name: getattr(attempt, name) for name in _FAULT.__annotations__}
        fault = {name: fact for name, fact in facts.items() if fact not in (None, False)}
    values = {
        "component": site and site.component,
        "agent": site and site.agent,
        "replicate": (site.replicate if site else 0) or None,
        "attempt": None if request.attempt == 1 else request.attempt,
        "first": attempt.first,
        "nth": nth or None,
        "messages": messages,
        "settings": intern(settings).decode(),
        "origin": origin and (intern(origin.form).decode(), list(origin.spans)),
        "reply": reply,
        "fault": fault,
        "cut": attempt.cut or None,
        "seconds": float(attempt.seconds),
    }
    if reply is not None and reply.tool_calls:
        # Pydantic would write a NaN in their arguments as null, without an error.
        given = _adapter("call").dump_python(values, exclude_defaults=True, exclude_none=True)
        line = member(given)
    else:
        line = write(_adapter("call"), values)
    return b"," + line[1:-1]


def parsed_settings(text: str) -> tuple[str | None, dict[str, Any]]:
    """Return the system message of settings, if they have one, and all else."""
    values = dict(read(_settings(), text))
    return values.pop("system", None), values


def call_of(line: Mapping[str, Any], text: Callable[..., Any], *, forgotten: bool) -> RecordedCall:
    """Return the call of a line. Where its prompt's values came from is parsed when it is read.

    Args:
        line: as ``read_line`` gives it.
        text: returns a text that calls share, by its digest, in a form.
        forgotten: whether it was made again.

    Raises:
        ValueError: its settings are not settings.
        TapeError: a text is missing.
    """
    system, shared = text(line["settings"], parsed_settings)
    first = () if system is None else (Message("system", system),)
    site = {name: line[name] for name in _SITE if name in line}
    asked: dict[str, Any] = {
        "messages": (*first, *line["messages"]),
        "site": CallSite(**site) if "component" in site else None,
        "origin": Origin(text(line["origin"][0]), line["origin"][1]) if "origin" in line else None,
    }
    request = ChatRequest(attempt=line.get("attempt", 1), **asked, **shared)
    fault = line.get("fault", {})
    attempt = Attempt(
        request=request,
        reply=line.get("reply"),
        seconds=line["seconds"],
        cut=line.get("cut", ()),
        number=line["no"],
        first=line.get("first"),
        **fault,
    )
    return RecordedCall(
        id=line["no"],
        run=line["run"],
        nth=line.get("nth", 0),
        attempt=attempt,
        forgotten=forgotten,
    )


# --- runs ----------------------------------------------------------------------------------------


def reading_run(journal: Journal, run: int) -> AbstractContextManager[None]:
    """Return what raises TapeError for a run whose lines do not hold what they should."""
    what = f"run {run} on the tape {journal.path} is damaged (`llmsim-lab tape repair` may help)"
    return checked(what)


def _own_parts(raw: bytes) -> Mapping[str, Any]:
    """Return the parts of a manifest that stand in a run's line."""
    parts: Mapping[str, Any] = read_line(raw)["manifest"]
    return parts


class Manifest(Mapping[str, Any]):
    """What defines a run; each part is read when it is asked for.

    A file may name a text of megabytes in each of a thousand runs: the tape keeps as much of what
    was read as its memory has room for.

    Args:
        journal: the tape's file.
        run: the run.
        described: where the line is that has the small parts.
        texts: the digests of the others, which are texts that runs share.
        own: the small parts; None to read them when they are asked for.
    """

    def __init__(
        self,
        journal: Journal,
        run: int,
        described: Place,
        texts: Mapping[str, str],
        own: Mapping[str, Any] | None,
    ) -> None:
        self._journal = journal
        self._generation = journal.generation
        self._run = run
        self._described = described
        self._texts = texts
        self._known = own

    @property
    def _own(self) -> Mapping[str, Any]:
        if self._known is not None:
            return self._known
        if self._journal.generation != self._generation:
            what = f"{self._journal.path} was written anew since run {self._run} was read"
            raise TapeError(f"{what}; call tape.run({self._run}) again")
        with reading_run(self._journal, self._run):
            parts: Mapping[str, Any] = self._journal.line(self._described, _own_parts)
            return parts

    def __getitem__(self, name: str) -> Any:
        if name not in self._texts:
            return self._own[name]
        with reading_run(self._journal, self._run):
            return self._journal.text(self._texts[name], loads)

    def __contains__(self, name: object) -> bool:
        return name in self._texts or name in self._own

    def __iter__(self) -> Iterator[str]:
        return iter({**self._own, **self._texts})

    def __len__(self) -> int:
        return len({**self._own, **self._texts})

    def __repr__(self) -> str:
        return f"<Manifest: {', '.join(self)}>"

    @property
    def found_out(self) -> dict[tuple[str, str], Any]:
        """What was found out about texts: by what, and the text's digest."""
        return self._journal.found_out

    def digest(self, name: str) -> str | None:
        """Return what names the text of a part; None of one that stands in the run's own lines."""
        return self._texts.get(name)

    def weight(self, name: str) -> int:
        """Return about how much memory a part takes that is a shared text; 0 of another."""
        return self._journal.weight(self._texts[name]) if name in self._texts else 0


@dataclass(frozen=True, kw_only=True)
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
    parent: int | None = None
    fork_turn: int | None = None
    verb: Verb
    started: str
    ended: str | None = None
    outcome: str | None = None
    turns: int
    calls: int
    manifest: Mapping[str, Any]

    def has_same(self, part: str, other: RunInfo) -> bool:
        """Return True if a part of the manifest is the same text as another's, without reading."""
        manifests = self.manifest, other.manifest
        digests = [it.digest(part) for it in manifests if isinstance(it, Manifest)]
        return len(digests) == 2 and digests[0] is not None and digests[0] == digests[1]

    def weight(self, part: str) -> int:
        """Return about how much memory a part of the manifest takes that runs share, bytes."""
        return self.manifest.weight(part) if isinstance(self.manifest, Manifest) else 0

    @property
    def model(self) -> str:
        """The model's name as recorded, or as its settings call it; empty if there is none."""
        return self._text_in("model", "name") or self._text_in("llm", "model")

    def _text_in(self, part: str, name: str) -> str:
        """Return what a part of the manifest calls by a name, as text; empty if nothing."""

        def read() -> str:
            return str(as_mapping(self.manifest.get(part)).get(name) or "")

        return self._found_out(f"{name} of {part}", part, read)

    def _found_out(self, what: str, part: str, read: Callable[[], T]) -> T:
        """Return what is read in a part of the manifest; of a text that runs share, only once.

        Args:
            what: is found out.
            part: the part's name.
            read: finds it out.
        """
        if not isinstance(self.manifest, Manifest):
            return read()
        digest = self.manifest.digest(part)
        if digest is None:
            return read()
        known = self.manifest.found_out
        if (what, digest) not in known:
            known[what, digest] = read()
        found: T = known[what, digest]
        return found

    @cached_property
    def faults(self) -> list[str]:
        """What is wrong with the manifest, in words: parts missing, digests that do not fit."""
        found: list[str] = []
        for name, hint in _hints().items():
            if name in self.manifest:
                found += self._faults_in(name)
            elif get_origin(hint) is not NotRequired:
                found.append(f"{name}: Field required")
        return [f"its manifest: {what}" for what in found]

    def _faults_in(self, name: str) -> list[str]:
        """Return what is wrong with a part of the manifest."""

        def read() -> list[str]:
            return _faults_of(name, self.manifest[name])

        return self._found_out(f"faults of {name}", name, read)


def run_body(manifest: Mapping[str, Any], intern: Callable[[str], bytes], **facts: Any) -> bytes:
    """Return the members of a run's line; large parts of its manifest are shared texts."""
    parts = {name: dumps(plain(value)) for name, value in manifest.items()}
    shared = {name: intern(text).decode() for name, text in parts.items() if len(text) > _BIG}
    own = {name: plain(value) for name, value in manifest.items() if name not in shared}
    return members(**facts, manifest=own, texts=shared)


_more = with_config(ConfigDict(extra="allow", strict=True))


@_more
class _PROMPT(TypedDict):
    name: str
    text: str
    digest: str
    parent: str | None
    system: NotRequired[str]


@_more
class _BEFORE(TypedDict):
    # What turns up to one were asked with, where a run was resumed with other settings.
    last_turn: int
    llm: dict[str, Any] | None
    seats: NotRequired[dict[str, dict[str, Any]]]


@_more
class _MANIFEST(TypedDict):
    kind: str
    package: str
    config: InstanceOf[dict[str, Any]]  # not gone through, since it may be large
    prompts: dict[str, _PROMPT]
    given: InstanceOf[list[Any]]
    llm: InstanceOf[dict[str, Any]] | None
    seats: NotRequired[dict[str, dict[str, Any]]]
    settings_before: NotRequired[list[_BEFORE]]
    model: InstanceOf[dict[str, Any]] | None


_hints = cache(lambda: get_type_hints(_MANIFEST, include_extras=True))


@cache
def _part_adapter(name: str) -> TypeAdapter[Any]:
    """Return what checks a part of a manifest."""
    hint = _hints()[name]
    part = get_args(hint)[0] if get_origin(hint) is NotRequired else hint
    return TypeAdapter(part, config=ConfigDict(strict=True))


def _faults_of(name: str, part: Any) -> list[str]:
    """Return what is wrong with a part of a manifest, in words."""

    def say(fault: Any) -> str:
        return f"{name}{'.' if fault['loc'] else ': '}{fault_text(fault)}"

    try:
        _part_adapter(name).validate_python(part)
    except ValidationError as error:
        return each_fault(error, say)
    return []
