"""What the lines of a tape say: runs, requests with what became of them, turns.

Pydantic reads and writes them strictly by their types: a file may hold anything, but a value of
another type never leaves this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    InstanceOf,
    TypeAdapter,
    ValidationError,
    with_config,
)
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict

from llmsim_lab._util.frozen import FrozenDict
from llmsim_lab._util.jsontext import (
    all_finite,
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
from llmsim_lab.prompts.prompt import digest_of, user_in
from llmsim_lab.spans import Origin
from llmsim_lab.tape._journal import MAX_TEXTS, Journal, Place, kind_in
from llmsim_lab.types import Attempt, CallSite, ChatReply, ChatRequest, Message, Status, ToolCall

T = TypeVar("T")
Verb = Literal["run", "rerun", "fork"]
Intern: TypeAlias = Callable[[str], bytes]
"""Writes a text that lines share, if the tape has it not yet, and returns its digest."""
Line: TypeAlias = dict[str, Any]
"""What a line says, by member, each of the type that ``_KINDS`` names."""
Record: TypeAlias = dict[str, Any]
"""What a turn's line says of the turn; the run's class knows more of it than ``_Record`` does."""
Row: TypeAlias = dict[str, Any]
"""A row of a frame, by column: texts, numbers, booleans, None."""

_MOST = 10**9
_Count = Annotated[int, Field(ge=0, le=_MOST)]
_Turn = Annotated[int, Field(ge=-_MOST, le=_MOST)]
_Number = Annotated[int, Field(ge=1, le=10**15)]
_Seconds = Annotated[float, Field(ge=0, le=1e9)]
_Digest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
_MAX_KNOWN = 10_000
"""How many combinations of settings are kept as JSON."""
_LONG = 2**21
"""Of a line or settings, in bytes."""
_MOST_MEMBERS = 10_000
"""Of a line, of settings, or of what a run's line names."""
_MOST_ENTRIES = 200_000
"""Of a part of a manifest, such as prompts."""
_BIG = 200
"""From how many characters on a part of a manifest is a text that runs share."""


class _Fault(TypedDict):
    reason: FailureReason
    detail: str
    status_code: NotRequired[int]
    retry: NotRequired[bool]


def _few_members(value: object) -> object:
    if isinstance(value, dict) and len(value) > _MOST_MEMBERS:
        raise ValueError(f"it has {len(value):,} members, and may have {_MOST_MEMBERS:,}")
    return value


_Texts = Annotated[dict[str, _Digest], BeforeValidator(_few_members)]
_NamedCall = tuple[Status, Annotated[list[_Number], Field(min_length=1, max_length=2)]]
"""A call, as records name it: how it went, and the numbers of its attempts."""


def _each_once(calls: list[_NamedCall]) -> list[_NamedCall]:
    numbers = [number for _, attempts in calls for number in attempts]
    # Each call that is named becomes an object, and a number takes two bytes.
    if len(set(numbers)) < len(numbers):
        raise ValueError("they name a call twice")
    return calls


@with_config(ConfigDict(extra="allow"))
class _Record(TypedDict):
    # What any run has, in the order in which it is written, which is kept; its class checks more.
    state: dict[str, Any]
    turn: _Turn
    seconds: NotRequired[Any]
    interventions: list[Any]
    planned: list[Any]
    calls: Annotated[list[_NamedCall], FailFast(), AfterValidator(_each_once)]


_KINDS: Mapping[str, Mapping[str, object]] = {
    "tape": {"tape": Literal[3], "by": str, "id": _Digest},
    "text": {"text": _Digest, "value": Any},
    "run": {
        "name": str,
        "parent": NotRequired[_Number],
        "fork_turn": NotRequired[_Turn],
        "verb": Verb,
        "started": str,
        "manifest": dict[str, Any],
        "texts": _Texts,
    },
    "set": {
        "process": NotRequired[_Count],
        "manifest": NotRequired[dict[str, Any]],
        "texts": NotRequired[_Texts],
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
        "messages": Annotated[tuple[Message, ...], FailFast()],
        "settings": _Digest,
        "origin": NotRequired[tuple[_Digest, list[Any]]],
        "reply": NotRequired[ChatReply],
        "fault": NotRequired[_Fault],
        "cut": NotRequired[Annotated[tuple[str, ...], FailFast()]],
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
    "forget": {"turn": _Turn, "calls": Annotated[list[_Number], FailFast()]},
    "turn": {"turn": _Turn, "record": _Record, "row": dict[str, Any]},
}
"""By kind, the members of a line, but for its check sum, and of a run's for run and kind."""


_SETTINGS: Mapping[str, object] = {
    "model": str,
    "schema": dict[str, Any] | None,
    "tools": Annotated[tuple[dict[str, Any], ...], FailFast()],
    "options": dict[str, Any],
    "think": bool | str | None,
    "keep_alive": float | str | None,
    "timeout_s": float,
    "top_logprobs": NotRequired[int | None],
    "system": NotRequired[str],
}
"""Members of a text that calls name."""


def _strictly(
    name: str,
    members: Mapping[str, object],
) -> TypeAdapter[Line]:
    # Rule 5: a member that is not named here is a fault, and so is a number that is not finite.
    strict = with_config(ConfigDict(extra="forbid", allow_inf_nan=False))
    return TypeAdapter(strict(TypedDict(name, members)))  # type: ignore[operator]


@cache
def _adapter(kind: str) -> TypeAdapter[Line]:
    members: dict[str, object] = {}
    # Those two belong to no run.
    if kind not in ("tape", "text"):
        members = {"run": _Number, "is": Literal[kind]}
    return _strictly(kind, {**members, **_KINDS[kind], "sum": str})


# Made when first used: building pydantic's validators takes long.
_calls = cache(lambda: TypeAdapter(tuple[ToolCall, ...]))
_anything = cache(lambda: TypeAdapter(Any))
_settings = cache(lambda: _strictly("settings", _SETTINGS))


def read_line(raw: bytes) -> Line:
    """Return what a line says, every member of its type.

    Raises:
        ValueError: it is of no kind, lacks a member, or has one too many or of another type.
    """
    kind = kind_in(raw)
    if kind not in _KINDS:
        raise ValueError("it is not a line of a tape")
    _check_members(raw)
    return read(_adapter(kind), raw)


def _check_members(text: str | bytes) -> None:
    """Raise ValueError if a long text of JSON has more members than any line or settings."""
    # Before pydantic reads it, which takes hundreds of bytes for each that it does not know.
    if len(text) > _LONG:
        _few_members(loads(text))


# --- what many requests share --------------------------------------------------------------------


class RequestParts(NamedTuple):
    """A request in the parts by which a tape finds it and writes it.

    Attributes:
        identity: what two equal requests of a turn have in common: all but how long to wait.
        settings: all of its settings as JSON, with the system message.
        messages: the other messages.
    """

    identity: tuple[object, ...]
    settings: str
    messages: tuple[Message, ...]


class _SettingsTexts(NamedTuple):
    """The settings of requests as JSON.

    Attributes:
        whole: all of them, with the system message.
        shared: those in which equal requests do not differ.
        objects: what they were made of.
    """

    whole: str
    shared: str
    objects: tuple[object, ...]


_settings_texts: dict[tuple[object, ...], _SettingsTexts] = {}


def settings_of(request: ChatRequest) -> dict[str, Any]:
    """Return the part of a request's settings in which equal requests do not differ."""
    return {
        "model": request.model,
        "schema": plain(request.schema),
        "tools": plain(request.tools),
        "options": plain(request.options),
        "think": request.think,
        "top_logprobs": request.top_logprobs,
    }


def _is_as_read(request: ChatRequest) -> bool:
    """Return True if a request has the settings of a text, which all that name it share."""
    options = request.options
    if not isinstance(options, SharedOptions):
        return False
    others = options.others
    return request.schema is others.get("schema") and request.tools is others.get("tools")


def _texts_of(request: ChatRequest, system: str | None) -> _SettingsTexts:
    """Return a request's settings as JSON, made once per combination.

    A client makes schemas and options once, so that nothing changes them, and hands them to every
    request: the objects' identities tell the combinations apart, for hashing a schema for each
    call would take long.
    """
    objects = (request.schema, request.options, *request.tools)
    # What can be changed in place may say something else by the next request.
    stays = _is_as_read(request) or all(
        part is None or type(part) is FrozenDict for part in objects
    )
    key = (
        tuple(map(id, objects)),
        request.keep_alive,
        request.timeout_s,
        request.model,
        request.think,
        request.top_logprobs,
        system,
    )
    if stays:
        kept = _settings_texts.get(key)
        if kept is not None:
            return kept
    values = settings_of(request)
    if system is not None:
        values["system"] = system
    waits = {"keep_alive": request.keep_alive, "timeout_s": request.timeout_s}
    # Rule 3: equality is that of texts, since as values 1, 1.0 and True are equal.
    shared = dumps(values)
    whole = f"{shared[:-1]},{dumps(waits)[1:]}"
    # The objects are kept alive, else another one could get the identity of one that is gone.
    texts = _SettingsTexts(whole, shared, objects)
    if stays:
        # Not more: what is made anew for each request would fill the memory.
        if len(_settings_texts) >= min(_MAX_KNOWN, MAX_TEXTS / len(shared)):
            _settings_texts.clear()
        _settings_texts[key] = texts
    return texts


def parts_of(request: ChatRequest) -> RequestParts:
    """Return the parts by which a tape finds a request and writes it."""
    messages = request.messages
    system = None
    first = messages[0] if messages else None
    # The system message goes with the settings: all calls of a player share both in one text.
    if first and first.role == "system":
        is_text_alone = not first.tool_calls and first.tool_name is None
        if is_text_alone:
            system = first.content
            messages = messages[1:]
    texts = _texts_of(request, system)
    # Not the messages themselves, whose hash takes long and is asked for several times. Calls of
    # tools as text, in which 1 and True differ.
    contents = [
        (
            message.role,
            message.content,
            message.tool_name,
            message.tool_calls and write(_calls(), message.tool_calls),
        )
        for message in messages
    ]
    site = request.site
    asker = None
    if site is not None:
        asker = (site.component, site.agent, site.replicate)
    # Without the turn, in which alone calls are looked for.
    identity = (asker, request.attempt, texts.shared, tuple(contents))
    return RequestParts(identity, texts.whole, messages)


# --- calls ---------------------------------------------------------------------------------------


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
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


def members(**values: object) -> bytes:
    """Return those of the values that are not None as members of a line, a comma before each."""
    present = {name: value for name, value in values.items() if value is not None}
    return b"," + dumps(present)[1:-1].encode()


def checked_json(value: object) -> bytes:
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


def _fault_of(attempt: Attempt) -> dict[str, object] | None:
    """Return what an attempt's line says was wrong; None if nothing was."""
    if attempt.reason is None:
        return None
    fault: dict[str, object] = {"reason": attempt.reason, "detail": attempt.detail}
    # Only what there is: most faults are a text that is not the form asked for.
    if attempt.status_code:
        fault["status_code"] = attempt.status_code
    if attempt.retry:
        fault["retry"] = True
    return fault


def call_body(
    attempt: Attempt,
    nth: int,
    parts: RequestParts,
    intern: Intern,
) -> bytes:
    """Return the members of a call's line, from ``component`` on, each with a comma before it.

    Args:
        attempt: what became of a request.
        nth: how many equal requests of its turn were made before it.
        parts: of the request.
        intern: writes a text that calls share.

    Raises:
        ValueError: a tool's arguments hold what a line cannot.
    """
    request = attempt.request
    reply = attempt.reply
    site = request.site or CallSite(component="")
    settings = intern(parts.settings).decode()
    origin = None
    if request.origin is not None:
        origin = (intern(request.origin.form).decode(), list(request.origin.spans))
    values: Line = {
        "component": site.component if request.site else None,
        "agent": site.agent,
        "replicate": site.replicate or None,
        # What is usual is left out: a tape has hundreds of thousands of these.
        "attempt": None if request.attempt == 1 else request.attempt,
        "first": attempt.first,
        "nth": nth or None,
        "messages": parts.messages,
        "settings": settings,
        "origin": origin,
        "reply": reply,
        "fault": _fault_of(attempt),
        "cut": attempt.cut or None,
        "seconds": float(attempt.seconds),
    }
    has_tool_calls = reply is not None and bool(reply.tool_calls)
    if has_tool_calls:
        # Pydantic would write a NaN in their arguments as null, without an error.
        ready = _adapter("call").dump_python(
            values,
            exclude_defaults=True,
            exclude_none=True,
        )
        line = checked_json(ready)
    else:
        line = write(_adapter("call"), values)
    return b"," + line[1:-1]


class SharedOptions(FrozenDict):
    """The options of requests that name one text, with all else that it says.

    Each of them holds this object, so the text is read once for as long as one of them is there.

    Attributes:
        system: the system message; None if the text has none.
        others: the settings that are not options.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        system: Message | None = None,
        others: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(options)
        self.system = system
        self.others = others


def parsed_settings(text: str) -> SharedOptions:
    """Return the settings that a text says.

    Raises:
        ValueError: it says something else.
    """
    _check_members(text)
    values = read(_settings(), text)
    if not all_finite(values):
        raise ValueError("its settings hold a number that is not finite, which JSON cannot hold")
    system = values.pop("system", None)
    message = None if system is None else Message("system", system)
    return SharedOptions(values.pop("options"), message, values)


def call_of(
    line: Mapping[str, Any],
    journal: Journal,
    *,
    forgotten: bool,
) -> RecordedCall:
    """Return the call of a line. Where its prompt's values came from is parsed when it is read.

    Args:
        line: as ``read_line`` gives it.
        journal: the tape's file, which has the texts that calls share.
        forgotten: whether it was made again.

    Raises:
        ValueError: its settings are not settings.
        TapeError: a text is missing.
    """
    # One object for all calls that name it, so a thousand calls hold their schema once.
    options = journal.text(line["settings"], parsed_settings)
    messages = line["messages"]
    if options.system is not None:
        messages = (options.system, *messages)
    site = None
    if "component" in line:
        site = CallSite(
            component=line["component"],
            agent=line.get("agent"),
            turn=line["turn"],
            replicate=line.get("replicate", 0),
        )
    origin = None
    if "origin" in line:
        form, spans = line["origin"]
        origin = Origin(journal.text(form, str), spans)
    request = ChatRequest(
        messages=messages,
        site=site,
        origin=origin,
        attempt=line.get("attempt", 1),
        options=options,
        **options.others,
    )
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
    return checked(
        f"run {run} on the tape {journal.path} is damaged (`llmsim-lab tape repair` may help)"
    )


def _small_parts(raw: bytes) -> Mapping[str, object]:
    """Return the parts of a manifest that stand in a run's line."""
    parts: Mapping[str, object] = read_line(raw)["manifest"]
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
        small: the small parts; None to read them when they are asked for.
    """

    def __init__(
        self,
        journal: Journal,
        run: int,
        described: Place,
        texts: Mapping[str, str],
        small: Mapping[str, object] | None,
    ) -> None:
        self._journal = journal
        self._generation = journal.generation
        self._run = run
        self._described = described
        self._texts = texts
        self._known = small

    @property
    def _small(self) -> Mapping[str, object]:
        if self._known is not None:
            return self._known
        # Its line is elsewhere by now.
        if self._journal.generation != self._generation:
            raise TapeError(
                f"{self._journal.path} was written anew since run {self._run} was read; "
                f"call tape.run({self._run}) again"
            )
        with reading_run(self._journal, self._run):
            return self._journal.line(self._described, _small_parts)

    def __getitem__(self, name: str) -> Any:
        if name not in self._texts:
            return self._small[name]
        with reading_run(self._journal, self._run):
            return self._journal.text(self._texts[name], loads)

    def __contains__(self, name: object) -> bool:
        return name in self._texts or name in self._small

    def __iter__(self) -> Iterator[str]:
        return iter({**self._small, **self._texts})

    def __len__(self) -> int:
        return len({**self._small, **self._texts})

    def __repr__(self) -> str:
        return f"<Manifest: {', '.join(self)}>"

    def read(self, name: str, form: Callable[[str], T]) -> T:
        """Return a part in a form, of its JSON: one object for all runs that share its text.

        Raises:
            KeyError: there is no such part.
            ValueError: from ``form``, if it has not that form.
        """
        if name not in self._texts:
            return form(dumps(self._small[name]))
        return self._journal.text(self._texts[name], form)

    def digest(self, name: str) -> str | None:
        """Return what names the text of a part; None of one that stands in the run's own lines."""
        return self._texts.get(name)

    def weight(self, name: str) -> int:
        """Return about how much memory a part takes that is a shared text; 0 of another."""
        if name not in self._texts:
            return 0
        return self._journal.weight(self._texts[name])

    def derived(
        self,
        fact: str,
        name: str,
        derive: Callable[[], T],
    ) -> T:
        """Return what follows from a part; from a text that runs share, it is derived only once.

        Args:
            fact: what follows, in a few words that tell it from all else.
            name: the part's.
            derive: finds it out.
        """
        digest = self.digest(name)
        # What stands in the run's own line is short: finding it out again costs nothing.
        if digest is None:
            return derive()
        derived = self._journal.derived
        if (fact, digest) not in derived:
            derived[fact, digest] = derive()
        value: T = derived[fact, digest]
        return value


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
    verb: Verb | Literal["restart"]  # a restart is one of a Lab, and is on no tape
    started: str
    ended: str | None = None
    outcome: str | None = None
    turns: int
    calls: int
    manifest: Mapping[str, Any]

    def has_same(self, part: str, other: RunInfo) -> bool:
        """Return True if a part of the manifest is the same text as another's, without reading."""
        # Runs that are on no tape, as a window shows them, have plain mappings.
        if not isinstance(self.manifest, Manifest):
            return False
        if not isinstance(other.manifest, Manifest):
            return False
        digest = self.manifest.digest(part)
        return digest is not None and digest == other.manifest.digest(part)

    def weight(self, part: str) -> int:
        """Return about how much memory a part of the manifest takes that runs share, bytes."""
        if not isinstance(self.manifest, Manifest):
            return 0
        return self.manifest.weight(part)

    @property
    def model(self) -> str:
        """The model's name as recorded, or as its settings call it; empty if there is none."""
        return self._text_in("model", "name") or self._text_in("llm", "model")

    def _text_in(self, part: str, name: str) -> str:
        """Return what a part of the manifest calls by a name, as text; empty if nothing."""

        def text() -> str:
            return str(as_mapping(self.manifest.get(part)).get(name) or "")

        return self._derived(f"{name} of {part}", part, text)

    def _derived(
        self,
        fact: str,
        part: str,
        derive: Callable[[], T],
    ) -> T:
        """Return what follows from a part of the manifest, as ``Manifest.derived`` does."""
        if not isinstance(self.manifest, Manifest):
            return derive()
        return self.manifest.derived(fact, part, derive)

    @cached_property
    def faults(self) -> list[str]:
        """What is wrong with the manifest, in words: parts missing, digests that do not fit."""
        faults: list[str] = []
        for name, hint in _hints().items():
            if name in self.manifest:
                faults += self._faults_in(name)
            # Parts that later versions added may be missing on older tapes.
            elif get_origin(hint) is not NotRequired:
                faults.append(f"{name}: Field required")
        return [f"its manifest: {fault}" for fault in faults]

    @property
    def prompts_fault(self) -> str:
        """Which prompt has another text than its digest says, in words; empty if none has."""

        def fault() -> str:
            try:
                _check_digests(self.manifest["prompts"])
            except TapeError as error:
                return str(error)
            return ""

        return self._derived("fault in prompts", "prompts", fault)

    def _faults_in(self, name: str) -> list[str]:
        """Return what is wrong with a part of the manifest."""

        def faults() -> list[str]:
            return _faults_of(name, self.manifest[name])

        return self._derived(f"faults of {name}", name, faults)


def _check_digests(prompts: Mapping[str, Any]) -> None:
    """Raise TapeError for a recorded prompt whose text is not the recorded one.

    By their texts alone, since a tape may name so many that to make them all takes a minute.
    """
    for place, entry in prompts.items():
        # On older tapes the text alone has it; reading the prompt finds out where.
        if "system" not in entry:
            continue
        with checked(f"the recorded prompt of {place} is damaged"):
            system = entry["system"]
            user = user_in(entry["text"], system=system, name=entry["name"])
        if digest_of(system, user) != entry["digest"]:
            raise TapeError(f"the recorded prompt of {place} does not have its recorded digest")


def run_body(
    manifest: Mapping[str, object],
    intern: Intern,
    **facts: object,
) -> bytes:
    """Return the members of a run's line; large parts of its manifest are shared texts.

    Args:
        manifest: what defines the run.
        intern: writes a text that runs share.
        facts: the line's other members, which come first.
    """
    values = {name: plain(value) for name, value in manifest.items()}
    # All of them before the first is written: one may hold what JSON cannot.
    parts = {name: dumps(value) for name, value in values.items()}
    small: dict[str, object] = {}
    texts: dict[str, str] = {}
    for name, text in parts.items():
        # A short one can be read in place.
        if len(text) > _BIG:
            texts[name] = intern(text).decode()
        else:
            small[name] = values[name]
    return members(
        **facts,
        manifest=small,
        texts=texts,
    )


_open = with_config(ConfigDict(extra="allow", strict=True))
"""Of a part that may hold more: later versions write what this one does not know."""


@_open
class _Prompt(TypedDict):
    name: str
    text: str
    digest: str
    parent: str | None
    system: NotRequired[str]


@_open
class _Before(TypedDict):
    # What turns up to one were asked with, where a run was resumed with other settings.
    last_turn: int
    llm: dict[str, Any] | None
    seats: NotRequired[dict[str, dict[str, Any]]]


@_open
class _Manifest(TypedDict):
    kind: str
    package: str
    config: InstanceOf[dict[str, Any]]  # not gone through, since it may be large
    prompts: dict[str, _Prompt]
    seed: NotRequired[int]
    given: InstanceOf[list[Any]]
    given_players: NotRequired[Annotated[list[str], FailFast()]]
    given_state: NotRequired[InstanceOf[dict[str, Any]]]
    players: NotRequired[InstanceOf[dict[str, Any]]]
    llm: InstanceOf[dict[str, Any]] | None
    seats: NotRequired[dict[str, dict[str, Any]]]
    settings_before: NotRequired[Annotated[list[_Before], FailFast()]]
    model: InstanceOf[dict[str, Any]] | None


_hints = cache(lambda: get_type_hints(_Manifest, include_extras=True))


@cache
def _part_adapter(name: str) -> TypeAdapter[Any]:
    """Return what checks a part of a manifest."""
    hint = _hints()[name]
    if get_origin(hint) is NotRequired:
        [hint] = get_args(hint)
    return TypeAdapter(hint, config=ConfigDict(strict=True))


def _faults_of(name: str, part: object) -> list[str]:
    """Return what is wrong with a part of a manifest, in words."""

    def in_words(fault: ErrorDetails) -> str:
        if fault["loc"]:
            return f"{name}.{fault_text(fault)}"
        return f"{name}: {fault_text(fault)}"

    if isinstance(part, dict) and len(part) > _MOST_ENTRIES:
        return [f"{name}: it has {len(part):,} entries, and may have {_MOST_ENTRIES:,}"]
    try:
        _part_adapter(name).validate_python(part)
    except ValidationError as error:
        return each_fault(error, in_words)
    return []
