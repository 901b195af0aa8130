"""What goes to a model, what comes back, and the record of both.

Plain frozen values: backends read requests and return replies, the client makes records of them,
decisions carry the record. Durations are seconds, sizes are tokens as the model counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    get_args,
    runtime_checkable,
)

from pydantic import ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from llmsim_lab.errors import FailureReason, TapeError
from llmsim_lab.spans import MAX_SPANS, Origin, Provenance

__all__ = [
    "Attempt",
    "CallRecord",
    "CallSite",
    "ChatBackend",
    "ChatReply",
    "ChatRequest",
    "Message",
    "ModelInfo",
    "Places",
    "Role",
    "Status",
    "ToolCall",
]

ValueT = TypeVar("ValueT")

_NO_ORIGIN = (
    "the call keeps none: its prompt came as plain text, was redacted, or has more than "
    f"{MAX_SPANS:,} values"
)

Role = Literal["system", "user", "assistant", "tool"]

Status = Literal["ok", "repaired", "fallback", "failed"]
"""How a decision came about: at once, after being shown its fault, by a documented default, not."""


_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
"""For pydantic, which reads these values from tapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A function the model wants called, with its arguments as an object."""

    __pydantic_config__ = _STRICT

    name: str
    arguments: Mapping[str, Any] = field(hash=False)
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    __pydantic_config__ = _STRICT

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_name: str | None = None
    """For role ``tool``: whose result this is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSite:
    """Where in a run a call was made; with the request itself it identifies the call."""

    component: str
    agent: str | None = None
    turn: int | None = None
    replicate: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One request to a model.

    Attributes:
        model: the model's name as the backend knows it.
        messages: the conversation, oldest first.
        schema: the JSON schema the reply is held to, or None for free text.
        tools: function declarations, ``{"type": "function", "function": {...}}`` each.
        options: sampling options by Ollama's names: ``temperature``, ``seed`` (absent when none is
            set), ``num_ctx``, ``num_predict`` and whatever the user added.
        think: whether a reasoning model may think first; None leaves it to the server.
        keep_alive: how long the server keeps the model loaded, seconds or Ollama's duration text.
        timeout_s: how long the caller will wait for the reply, seconds.
        site: where in the run the call was made.
        attempt: 1, or 2 for the retry.
        origin: where the values in its first messages came from; it does not identify the request.
    """

    model: str
    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    think: bool | str | None = False
    keep_alive: float | str | None = field(default=None, compare=False)
    timeout_s: float = field(default=60.0, compare=False)
    site: CallSite | None = None
    attempt: int = 1
    origin: Origin | None = field(default=None, compare=False, repr=False)

    @property
    def provenance(self) -> Provenance:
        """Where the values in the first message of each role came from, as noted in rendering.

        Raises:
            TapeError: what the tape has of it is damaged.
        """
        if self.origin is None:
            return Provenance(how="unknown", why=_NO_ORIGIN)
        texts: dict[str, str] = {one.role: one.content for one in reversed(self.messages)}
        site = self.site
        agent, turn = (site.agent, site.turn) if site else (None, None)
        return self.origin.read(texts, agent=agent, turn=turn)

    @property
    def prompt(self) -> str:
        """All messages' text, in order, as one string."""
        return "\n\n".join(message.content for message in self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """What a model answered.

    Attributes:
        text: the answer, without thinking where the server separates it.
        thinking: the separated thinking, else empty.
        tool_calls: the functions it wants called.
        done_reason: ``stop``; ``length`` where the token limit cut the answer; ``aborted`` where
            the server stopped the model before it was done.
        prompt_tokens: tokens of the whole prompt, cached ones included; None where not reported.
        reply_tokens: tokens generated; None where not reported.
        seconds: wall time of the request as the backend saw it.
        load_seconds: the part of it that went into loading the model.
    """

    __pydantic_config__ = _STRICT

    text: str
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    done_reason: str = "stop"
    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    seconds: float = 0.0
    load_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Which model answers: enough to tell two runs' models apart.

    Attributes:
        name: the model's name as the backend knows it.
        backend: ``ollama``, ``embedded``, ``scripted`` …
        digest: hash of the weights (hexadecimal), where known.
        context_length: the longest context the model was trained for, tokens, where known.
        capabilities: for example ``completion``, ``tools``, ``thinking``.
        version: of the server or runtime.
    """

    name: str
    backend: str
    digest: str | None = None
    context_length: int | None = None
    capabilities: tuple[str, ...] = ()
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One request of a call and what became of it: a reply, a fault, or a reply with a fault.

    Attributes:
        request: what was asked.
        reply: what was answered, if anything was; with the reason ``generation_stopped`` the part
            that had come.
        seconds: how long it took.
        reason: what was wrong, or None.
        detail: the same in words.
        status_code: the HTTP status of a fault, where there was one.
        retry: whether the call may be tried once more.
        number: of the request on the tape, where it was recorded.
    """

    request: ChatRequest
    reply: ChatReply | None
    seconds: float
    reason: FailureReason | None = None
    detail: str = ""
    status_code: int | None = None
    retry: bool = False
    number: int | None = field(default=None, compare=False)


class _OnTape(NamedTuple):
    """Where the attempts of a call are, with what is asked for most."""

    read: Callable[[int], Attempt]
    numbers: tuple[int, ...]
    seconds: float
    prompt_tokens: int
    reply_tokens: int

    def attempts(self) -> tuple[Attempt, ...]:
        """Read them.

        Raises:
            TapeError: they are not there any more.
        """
        found = tuple(map(self.read, self.numbers))
        if sum(attempt.seconds for attempt in found) != self.seconds:
            raise TapeError(
                f"call {self.numbers[0]} is another one by now: its tape was replaced after it was "
                "recorded; put back the file that was there, or load() the run that is there now"
            )
        return found


class _History:
    """Attempts in memory, or where they are read from a tape each time they are asked for."""

    def __get__(self, call: CallRecord | None, _: type | None = None) -> tuple[Attempt, ...]:
        if call is None:
            raise AttributeError("a call's history has no default")
        kept = call._kept
        return kept.attempts() if isinstance(kept, _OnTape) else kept

    def __set__(self, call: CallRecord, history: tuple[Attempt, ...]) -> None:
        object.__setattr__(call, "_kept", history)


@dataclass(frozen=True, kw_only=True, repr=False)
class CallRecord:
    """How a decision came about: one attempt, or two.

    A run on a tape keeps no attempts of turns that are written: they are read from there when they
    are asked for, also after the tape was closed, as long as the file is there.
    """

    __slots__ = ("_kept", "status")

    _kept: ClassVar[tuple[Attempt, ...] | _OnTape]

    history: tuple[Attempt, ...] = _History()  # type: ignore[assignment]
    status: Status

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)

        def read(value: Any, whole: Callable[[Any], Any], info: Any) -> Any:
            return info.context.call(value) if isinstance(info.context, Places) else whole(value)

        def write(call: CallRecord, whole: Callable[[Any], Any], info: Any) -> Any:
            return info.context.name(call) if isinstance(info.context, Places) else whole(call)

        return core_schema.with_info_wrap_validator_function(
            read,
            schema,
            serialization=core_schema.wrap_serializer_function_ser_schema(
                write, info_arg=True, schema=schema
            ),
        )

    @property
    def numbers(self) -> list[int]:
        """The numbers of its attempts on the tape.

        Raises:
            TapeError: one was not recorded.
        """
        kept = self._kept
        if isinstance(kept, _OnTape):
            return list(kept.numbers)
        numbers = [attempt.number for attempt in kept if attempt.number is not None]
        if len(numbers) < len(kept):
            raise TapeError(
                f"a call of {self.request.site} was not recorded: it was made outside the run's "
                "own tasks; await it in the agent, or hand it to a thread with asyncio.to_thread"
            )
        return numbers

    def leave_on_tape(self, read: Callable[[int], Attempt]) -> None:
        """Let go of the attempts, if they are on a tape; they are read when they are asked for.

        Args:
            read: returns the attempt of a number on the tape.
        """
        kept = self._kept
        if isinstance(kept, _OnTape):
            return
        seconds, asked, said = 0.0, 0, 0
        numbers: tuple[int, ...] = ()
        for attempt in kept:
            if attempt.number is None:
                return
            numbers += (attempt.number,)
            seconds += attempt.seconds
            if (reply := attempt.reply) is not None:
                asked += reply.prompt_tokens or 0
                said += reply.reply_tokens or 0
        object.__setattr__(self, "_kept", _OnTape(read, numbers, seconds, asked, said))

    @property
    def attempts(self) -> int:
        """How many requests were made."""
        kept = self._kept
        return len(kept.numbers if isinstance(kept, _OnTape) else kept)

    @property
    def request(self) -> ChatRequest:
        """The request that was answered (the last one)."""
        return self.history[-1].request

    @property
    def reply(self) -> ChatReply | None:
        """The reply that was used (the last one)."""
        return self.history[-1].reply

    @property
    def provenance(self) -> Provenance:
        """Where the values in the prompt came from, as noted when it was rendered.

        Raises:
            TapeError: what the tape has of it is damaged.
        """
        return self.request.provenance

    @property
    def seconds(self) -> float:
        """Time spent in requests, waits between attempts left out."""
        kept = self._kept
        if isinstance(kept, _OnTape):
            return kept.seconds
        return sum(attempt.seconds for attempt in kept)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all attempts, as far as reported."""
        kept = self._kept
        if isinstance(kept, _OnTape):
            return kept.prompt_tokens
        return sum(a.reply.prompt_tokens or 0 for a in kept if a.reply)

    @property
    def reply_tokens(self) -> int:
        """Tokens generated in all attempts, as far as reported."""
        kept = self._kept
        if isinstance(kept, _OnTape):
            return kept.reply_tokens
        return sum(a.reply.reply_tokens or 0 for a in kept if a.reply)

    @property
    def tokens(self) -> int:
        """Prompt and reply tokens together."""
        kept = self._kept
        if isinstance(kept, _OnTape):
            return kept.prompt_tokens + kept.reply_tokens
        found = 0
        for attempt in kept:
            if (reply := attempt.reply) is not None:
                found += (reply.prompt_tokens or 0) + (reply.reply_tokens or 0)
        return found

    def __repr__(self) -> str:
        kept = self._kept
        if isinstance(kept, _OnTape):
            numbers = ", ".join(map(str, kept.numbers))
            return f"CallRecord(history=<on tape: {numbers}>, status={self.status!r})"
        return f"CallRecord(history={kept!r}, status={self.status!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return partial(CallRecord, history=self.history, status=self.status), ()


class Places:
    """How a turn's record names the turn's calls and chains: each stands in it once.

    It is the context in which pydantic writes and reads what a turn holds: wherever a call or a
    chain is found in it, its place among the turn's stands for it.

    Args:
        calls: the turn's.
        chains: the turn's.
        attempts: gives the attempt of a number on the tape; needed for reading.
    """

    def __init__(
        self,
        calls: Sequence[CallRecord] = (),
        chains: Sequence[Any] = (),
        attempts: Callable[[int], Attempt] | None = None,
    ) -> None:
        self._calls, self._chains, self._attempts = calls, chains, attempts
        self._places = {id(it): place for its in (calls, chains) for place, it in enumerate(its)}

    def place(self, value: object) -> int | None:
        """Return the place of a call among the calls or of a chain among the chains, if any."""
        return self._places.get(id(value))

    def name(self, call: CallRecord) -> Any:
        """Return what stands for a call: its place, or for another turn's its status and numbers.

        Raises:
            TapeError: it was not recorded.
        """
        place = self.place(call)
        return [call.status, call.numbers] if place is None else place

    def call(self, named: Any) -> CallRecord:
        """Return the call that ``name`` named.

        Raises:
            ValueError: it names none.
        """
        if type(named) is int:
            return _at(self._calls, named)
        match named:
            case [status, [_, *_] as numbers] if status in get_args(Status) and self._attempts:
                history = tuple(self._attempts(number) for number in numbers)
                return CallRecord(history=history, status=status)
        raise ValueError(f"{named!r:.80} does not name a call by its place, or status and numbers")

    def chain(self, place: int) -> Any:
        """Return the chain at a place.

        Raises:
            ValueError: there is none.
        """
        return _at(self._chains, place)


def _at(values: Sequence[ValueT], place: int) -> ValueT:
    if not 0 <= place < len(values):
        raise ValueError(f"there is nothing at place {place} of {len(values)}")
    return values[place]


@runtime_checkable
class ChatBackend(Protocol):
    """What answers requests. Only ``chat`` does any work, so one's own is a few lines."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Answer one request.

        Raises:
            BackendError: the request failed. ``TimeoutError`` and ``ConnectionError`` are
                understood as well.
        """
        ...

    async def model_info(self) -> ModelInfo:
        """Say which model answers."""
        ...

    async def aclose(self) -> None:
        """Let go of connections and processes; called at most once per backend."""
        ...
