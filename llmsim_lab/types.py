"""What goes to a model and comes back, and the bases of the values that a run is made of.

Requests, replies and calls are dataclasses, of which every run makes many. Most are not frozen,
since a frozen object takes five times as long to make; none is to be changed, but for a backend its
own copy of a request. What crosses a boundary (what a model is asked for, what a state or a tape
holds) is an immutable pydantic model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    GetCoreSchemaHandler,
    SerializationInfo,
    StringConstraints,
    TypeAdapter,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic.errors import (
    PydanticInvalidForJsonSchema,
    PydanticSchemaGenerationError,
    PydanticUserError,
)
from pydantic.json_schema import GenerateJsonSchema, SkipJsonSchema
from pydantic_core import CoreSchema

from llmsim_lab._util.html import fields_html
from llmsim_lab._util.jsontext import Schema
from llmsim_lab._util.schemas import resolved, schemas_in
from llmsim_lab._util.text import brief, logfmt
from llmsim_lab.errors import ConfigError, FailureReason, TapeError
from llmsim_lab.spans import MAX_SPANS, Origin, Provenance

__all__ = [
    "Attempt",
    "CallRecord",
    "CallSite",
    "ChatBackend",
    "ChatReply",
    "ChatRequest",
    "Decision",
    "LLMReasoningChain",
    "Message",
    "ModelInfo",
    "Reply",
    "Status",
    "ToolCall",
]

HUMAN = "human"
"""The model's name in what a person is asked."""

OnText = Callable[[str], object]
"""Is given each new piece of a reply; see ``ChatBackend``."""

# --- requests and replies -------------------------------------------------------------------------

Role = Literal["system", "user", "assistant", "tool"]


_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
"""For pydantic, which reads these values from tapes."""


@dataclass(frozen=True, slots=True)
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
    tool_calls: Annotated[tuple[ToolCall, ...], FailFast()] = ()
    tool_name: str | None = None
    """For role ``tool``: whose result this is."""


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class CallSite:
    """Where in a run a call was made; with the request itself it identifies the call."""

    component: str
    agent: str | None = None
    turn: int | None = None
    replicate: int = 0


@dataclass(slots=True)
class ChatRequest:
    """One request to a model.

    A backend is given a copy of its own, whose fields it may set; what is in them is shared with
    other requests, and must not be changed.

    Attributes:
        model: the model's name as the backend knows it.
        messages: the conversation, oldest first.
        schema: the reply schema, as JSON schema, or None for free text.
        tools: function declarations, ``{"type": "function", "function": {...}}`` each.
        options: sampling options by Ollama's names: ``temperature``, ``seed`` (absent when none is
            set), ``num_ctx``, ``num_predict`` and whatever the user added.
        think: whether a reasoning model may think first; None leaves it to the server.
        keep_alive: how long the server keeps the model loaded, seconds or Ollama's duration text.
        timeout_s: how long the caller will wait for the reply, seconds.
        site: where in the run the call was made.
        attempt: 1, or 2 for the retry.
        top_logprobs: how many alternatives to the first token are wanted with their probabilities,
            or None for none; a backend gives at most its ``max_top_logprobs``.
        origin: where the values in its first messages came from; it does not identify the request.
        complaint: of a retry, what was wrong with the first reply, as the model is told in the last
            message; empty where it was not complete, or nothing came. It is on no tape.
    """

    model: str
    messages: tuple[Message, ...]
    schema: Schema | None = None
    tools: tuple[Schema, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    think: bool | str | None = False
    keep_alive: float | str | None = field(default=None, compare=False)
    timeout_s: float = field(default=60.0, compare=False)
    site: CallSite | None = None
    attempt: int = 1
    top_logprobs: int | None = None
    origin: Origin | None = field(
        default=None,
        compare=False,
        repr=False,
    )
    complaint: str = field(
        default="",
        compare=False,
        repr=False,
    )

    @property
    def provenance(self) -> Provenance:
        """Where the values in the first message of each role came from, as noted in rendering.

        Raises:
            TapeError: what the tape has of it is damaged.
        """
        if self.origin is None:
            return Provenance(
                why="the call keeps none: its prompt came as plain text, was made for another "
                f"turn, or has more than {MAX_SPANS:,} values"
            )
        # Reversed, since the first message of each role counts.
        texts: dict[str, str] = {}
        for message in reversed(self.messages):
            texts[message.role] = message.content
        site = self.site or CallSite(component="")
        return self.origin.read(
            texts,
            agent=site.agent,
            turn=site.turn,
        )

    @property
    def prompt(self) -> str:
        """All messages' text, in order, as one string."""
        return "\n\n".join(message.content for message in self.messages)


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class ChatReply:
    """What a model answered.

    Attributes:
        text: the answer, without thinking where the server separates it.
        thinking: the separated thinking, else empty.
        tool_calls: the functions it wants called.
        done_reason: ``stop``; ``length`` where the token limit cut the answer; ``aborted`` where
            the server stopped the model before it was done.
        prompt_tokens: tokens of the whole prompt, cached ones included; None where not reported.
        cached_tokens: prompt tokens that the server had in its cache and did not read anew; None
            where not reported.
        reply_tokens: tokens generated; None where not reported.
        seconds: wall time of the request as the backend saw it.
        load_seconds: the part of it that went into loading the model.
        top_logprobs: the likeliest first tokens with their natural log-probabilities, the likeliest
            first, where they were asked for and the backend has them: the model's own, before
            temperature, schema and other settings of the sampler.
    """

    __pydantic_config__ = _STRICT

    text: str
    thinking: str = ""
    tool_calls: Annotated[tuple[ToolCall, ...], FailFast()] = ()
    done_reason: str = "stop"
    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    cached_tokens: int | None = None
    # What is measured differs each time, and a saved notebook's outputs are compared.
    seconds: float = field(default=0.0, repr=False)
    load_seconds: float = field(default=0.0, repr=False)
    top_logprobs: Annotated[tuple[tuple[str, Annotated[float, Field(le=0)]], ...], FailFast()] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Which model answers: enough to tell two runs' models apart.

    Attributes:
        name: the model's name as the backend knows it.
        backend: ``ollama``, ``embedded``, ``scripted`` …
        digest: hash of the weights (hexadecimal), where known.
        version: of the server or runtime.
    """

    name: str
    backend: str
    digest: str | None = None
    version: str | None = None


class ChatBackend:
    """What answers requests: one method; one's own is a few lines.

    Derive from this class for what is optional below, or give any object that has the method.

    What is returned is checked before it is recorded: numbers of numpy's become Python's, and None
    a field's default; a field that a tape could not give back fails the call, by its name.
    """

    max_top_logprobs: int = 0
    """The most alternatives to a token that it gives with their probabilities."""
    streams: bool = False
    """Whether it hands on a reply while it is written.

    Its ``chat`` then takes ``on_text: Callable[[str], object] | None = None`` by name. It is given
    each new piece, thinking that the server separates first, between ``<think>`` and ``</think>``;
    an empty one says that the server works on the request.
    """
    is_model: bool = True
    """Whether a model answers: it is sent sampling options, and may need to be told a form."""
    slots: int | None = None
    """How many requests it answers at once: the search for the number to send begins there."""
    client_limits: Any = None
    """Limits that all its clients share; None where each client finds its own."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Answer one request.

        Raises:
            BackendError: the request failed. ``TimeoutError`` and ``ConnectionError`` are
                understood as well.
        """
        raise NotImplementedError(f"{type(self).__name__} has no async def chat(self, request)")

    async def model_info(self) -> ModelInfo | None:
        """Return which model answers; None for the one that the client's settings name."""
        return None

    async def phase(self, request: ChatRequest) -> str | None:
        """Return what the server does, called every few seconds while nothing of a reply has come.

        Returns:
            ``loading`` (the model), ``reading`` (the prompt), an empty text for a server that lives
            and does not say; None where there is nothing to ask.

        Raises:
            Exception: such as ``ConnectionError`` where the server has gone; it ends the request.
        """
        return None

    async def count_tokens(self, text: str) -> int | None:
        """Return how many tokens a text has for the model; None where the backend cannot tell."""
        return None

    async def aclose(self) -> None:
        """Close connections and end processes."""


# --- calls ----------------------------------------------------------------------------------------

Status = Literal["ok", "repaired", "fallback", "failed"]
"""How a decision came about: at once, after being shown its fault, by a documented default, not."""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One request of a call and what became of it: a reply, a fault, or a reply with a fault.

    Attributes:
        request: what was asked.
        reply: what was answered, if anything was; with the reason ``generation_stopped`` the part
            that had come, with ``context_overflow`` an answer that went past the window.
        seconds: how long it took.
        reason: what was wrong, or None.
        detail: the same in words.
        status_code: the HTTP status of a fault, where there was one.
        retry: whether the call may be tried once more.
        cut: the fields of the reply whose text is as long as the schema allows, and so was cut.
        number: of the request on the tape, where it was recorded.
        first: of a second attempt, the number of the first on the tape.
    """

    request: ChatRequest
    reply: ChatReply | None
    seconds: float = field(repr=False)
    reason: FailureReason | None = None
    detail: str = ""
    status_code: int | None = None
    retry: bool = False
    cut: tuple[str, ...] = ()
    number: int | None = field(default=None, compare=False)
    first: int | None = field(default=None, compare=False)


class Places(NamedTuple):
    """The context in which pydantic writes and reads what a turn holds: each call once.

    Wherever a call is found in it, its place among the turn's calls stands for it; for a call of
    another turn, its status and the numbers of its attempts.

    Attributes:
        calls: the turn's.
        attempts: gives the attempt of a number on the tape; needed for reading.
        others: calls of other turns, by their numbers, where what is written is read back at once.
        are_numbered: whether calls of other turns have numbers: those of a run on a tape.
    """

    calls: Sequence[CallRecord] = ()
    attempts: Callable[[int], Attempt] | None = None
    others: dict[tuple[int, ...], CallRecord] | None = None
    are_numbered: bool = True


@dataclass(slots=True, kw_only=True)
class CallRecord:
    """How a decision came about: one attempt, or two.

    Attributes:
        history: its attempts, one or two.
        status: how the decision came about.
    """

    history: tuple[Attempt, ...]
    status: Status

    @model_validator(mode="wrap")
    @classmethod
    def _read(
        cls,
        value: Any,
        whole: Callable[[Any], Any],
        info: ValidationInfo,
    ) -> Any:
        places = info.context
        if not isinstance(places, Places):
            return whole(value)
        match value:
            case int(place) if type(place) is int and 0 <= place < len(places.calls):
                return places.calls[place]
            case [_, [_, *_] as numbers] if places.others and tuple(numbers) in places.others:
                return places.others[tuple(numbers)]
            case [status, [_, *_] as numbers] if status in get_args(Status) and places.attempts:
                return cls(
                    history=tuple(map(places.attempts, numbers)),
                    status=status,
                )
        raise ValueError(
            f"{brief(value, 80)} does not name a call by its place, or status and numbers"
        )

    @model_serializer(mode="wrap")
    def _write(
        self,
        whole: Callable[[Any], Any],
        info: SerializationInfo,
    ) -> Any:
        if not isinstance(info.context, Places):
            return whole(self)
        # By identity: two calls of a turn may be equal, and comparing them takes long.
        for place, call in enumerate(info.context.calls):
            if call is self:
                return place
        others = info.context.others
        if others is None:
            return [self.status, self.numbers]
        # Below 0, where no attempt on a tape has its number.
        numbers = self.numbers if info.context.are_numbered else [-1 - len(others)]
        others[tuple(numbers)] = self
        return [self.status, numbers]

    @property
    def numbers(self) -> list[int]:
        """The numbers of its attempts on the tape.

        Raises:
            TapeError: one was not recorded.
        """
        numbers = [attempt.number for attempt in self.history if attempt.number is not None]
        if len(numbers) < len(self.history):
            raise TapeError(
                f"a call of {self.request.site} was not recorded: it was made outside the run's "
                "own tasks; await it in the agent, or hand it to a thread with asyncio.to_thread"
            )
        return numbers

    @property
    def attempts(self) -> int:
        """How many requests were made."""
        return len(self.history)

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
        return sum(attempt.seconds for attempt in self.history)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all attempts, as far as reported."""
        replies = [attempt.reply for attempt in self.history if attempt.reply]
        return sum(reply.prompt_tokens or 0 for reply in replies)

    @property
    def reply_tokens(self) -> int:
        """Tokens generated in all attempts, as far as reported."""
        replies = [attempt.reply for attempt in self.history if attempt.reply]
        return sum(reply.reply_tokens or 0 for reply in replies)

    @property
    def tokens(self) -> int:
        """Prompt and reply tokens together."""
        return self.prompt_tokens + self.reply_tokens


# --- values ---------------------------------------------------------------------------------------

_CONFIDENCE_GRID = [round(0.05 * step, 2) for step in range(21)]

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


Number = float | Decimal
"""A number of JSON, or one that is exact."""

Rate = Annotated[float, Field(allow_inf_nan=False)]


Confidence = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        allow_inf_nan=False,
        json_schema_extra={"enum": _CONFIDENCE_GRID},
    ),
]
"""0 to 1. The schema names a grid of 0.05, since servers do not hold numbers to a range."""


class Immutable(BaseModel):
    """Base of all pydantic models here."""

    model_config = ConfigDict(frozen=True)

    def _repr_html_(self) -> str:
        return str(fields_html(self))


class Value(Immutable):
    """Base of the immutable values here: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class OfJson(BaseModel):
    """Base of what users derive from: a field of a type that JSON cannot hold is a clear error."""

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler, /
    ) -> CoreSchema:
        try:
            return handler(source)
        except PydanticSchemaGenerationError as error:
            raise _foreign_type(cls, error) from None  # whose advice does not help here


def _foreign_type(cls: type[BaseModel], error: PydanticSchemaGenerationError) -> ConfigError:
    """Return the error about a field that is annotated with a class that JSON cannot hold.

    Args:
        cls: the class with the field, which pydantic could not make.
        error: pydantic's.
    """
    wrong: list[str] = []
    for name, field_of_class in cls.__pydantic_fields__.items():
        annotation: Any = field_of_class.annotation
        try:
            TypeAdapter(annotation)
        except PydanticSchemaGenerationError:
            type_name = str(annotation)
            if isinstance(annotation, type) and not get_args(annotation):
                type_name = f"{annotation.__module__}.{annotation.__qualname__}"
            wrong.append(f"{cls.__name__}.{name} is annotated as {type_name}")
        except PydanticUserError:  # as of a name that is not known yet; another field is meant
            continue
    return ConfigError(
        f"{'; '.join(wrong) or cls.__name__}: JSON, and so a tape or a reply, cannot hold that "
        f"({error.message.partition('. ')[0]}). Hold what it is made of, and make the object from "
        "it where you use it: of a graph its edges, list[tuple[str, str]]; of an array "
        "list[float]; of a table dict[str, list[float]]; of a time of pandas a datetime; of a "
        "class of your own a State or a @dataclass(frozen=True)"
    )


# --- decisions ------------------------------------------------------------------------------------


class Decision(OfJson, Immutable):
    """Base of what a model is asked for; carries the record of the call that produced it.

    Unknown fields in a reply are dropped, since small models add them; missing or wrong ones are
    errors. Two decisions are equal if the model said the same, whatever the call cost.
    """

    # By name, too: rules and limits know fields by their names, models by their aliases.
    model_config = ConfigDict(
        extra="ignore",
        allow_inf_nan=False,
        populate_by_name=True,
    )

    @property
    def call(self) -> CallRecord | None:
        """The request, reply, tokens, seconds, attempts and status; None if no model was called."""
        return self.__dict__.get("_call")

    def with_call(self, call: CallRecord) -> Self:
        """Attach the record of the call, which is not a field; returns this same decision."""
        # Past pydantic, whose models are frozen here and compare and write only their fields.
        self.__dict__["_call"] = call
        return self

    def __eq__(self, other: object) -> bool:
        # Iterated, since of the model itself ``dict`` would look for keys, slowly and in vain.
        return type(self) is type(other) and dict(iter(self)) == dict(iter(other))

    def __hash__(self) -> int:
        # Needed, since a class that defines ``__eq__`` loses the one it inherits.
        return hash((type(self), *[value for _, value in self]))


_SENTENCE_CHARS = 100
"""Of a short sentence; a longer one is let pass, up to three times as many."""
_STOPS = ".!?\u3002\uff01\uff1f\u0964\u061f\u06d4"
"""What ends a sentence, in Chinese, Japanese, Hindi, Arabic and Urdu, too."""


def one_sentence(longest: int) -> str:
    """Return the regular expression of one sentence, for what holds a model to its schema.

    The points of 1.6 and of U.S. do not end it. It has no quotes, backslashes or line breaks, since
    llama.cpp, and so Ollama, writes what a pattern allows into the JSON as it is; there a pattern
    also takes the place of the longest length, and so has one itself.

    Args:
        longest: what a text may have, characters.
    """
    inside = rf'[^{_STOPS}"\\\n\r\t]|[0-9][.][0-9]|[A-Z][.]'
    return f"^({inside}){{1,{longest - 1}}}[{_STOPS}]$"


OneSentence = Annotated[
    str,
    Field(
        description="why, in one short sentence",
        # In the schema alone: a rule, a person or a server without schemas may say more.
        json_schema_extra={"maxLength": 3 * _SENTENCE_CHARS, "x-one-sentence": True},
    ),
]
"""A reason, as a model is asked for it."""

Rationale = Literal["before", "after", False]
"""Where a player gives its reasoning: before its decision, after it, or not at all."""


class Reply(Decision):
    """The base of what a world's players are asked for: derive from it and annotate fields.

    A model is asked for ``reasoning`` first, then for the fields of the class in their order, then
    for ``confidence``. It must give them all, and all fields of the objects inside, as people must;
    rules may leave out what has a default.

    Attributes:
        reasoning: why, in the player's own words: one sentence of at most 300 characters, where a
            server holds its model to a schema. A class that wants more says so in a field of its
            own: ``reasoning: str = Field("", max_length=2000, description="why, step by step")``.
        confidence: 0 to 1; None where it was not said.

    Example:
        >>> class Gift(Reply):
        ...     amount: int = Field(ge=0, le=20, description="coins for the pot")
        >>> Gift(amount=5).confidence is None
        True
    """

    reasoning: OneSentence = ""
    confidence: Confidence | SkipJsonSchema[None] = None

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        for name in cls.model_fields:
            if name not in Reply.model_fields and hasattr(Reply, name):
                raise ConfigError(
                    f"{cls.__name__}.{name}: every Reply has something else of that name; call the "
                    f"field something else, such as {name}_"
                )


class SchemaMaker(GenerateJsonSchema):
    """Makes the schemas of replies; says of a complex number what pydantic reads as one."""

    def complex_schema(self, _schema: Any) -> dict[str, Any]:
        """Return the schema of a complex number, which pydantic calls any text."""
        return {"type": "string", "pattern": r"^-?\d{1,9}(\.\d{1,9})?[+-]\d{1,9}(\.\d{1,9})?j$"}


def reply_schema(
    model: type[BaseModel],
    *,
    max_text: int | None = None,
    rationale: Rationale = "before",
    maker: type[GenerateJsonSchema] = SchemaMaker,
) -> dict[str, Any]:
    """Return the reply schema that a language model is sent.

    It is the pydantic model's own schema without the titles that pydantic makes and defaults, with
    every field required (or those that an object names as ``x-required``) and no other allowed.

    Args:
        model: what the reply must be.
        max_text: longest text field, characters; None leaves texts unbounded.
        rationale: where a ``Reply`` has its reasoning.
        maker: makes the schemas of the fields' types.

    Raises:
        ConfigError: a field's type is not one that JSON can say, or a reasoning that is required
            is to be left out.
    """
    try:
        schema = model.model_json_schema(schema_generator=maker)
    except PydanticInvalidForJsonSchema as error:
        raise ConfigError(
            f"{model.__name__} cannot be asked for: {error.message}; a model answers in JSON, so "
            "annotate its fields as numbers, texts, truth values, lists, dicts, or classes of them"
        ) from error
    if "$ref" in schema:  # to a model that holds values of its own kind
        # A copy: the reply is changed below in ways in which one inside it is not.
        schema = deepcopy(dict(resolved(schema, schema)))
    schema.pop("description", None)  # the class's docstring is for people
    if issubclass(model, Reply):
        _put_in_order(schema["properties"], model, rationale)

    for part in schemas_in(schema):
        _make_strict(part, max_text)
    for name, of_class in model.model_fields.items():
        if of_class.title and name in schema["properties"]:  # the author's own, not pydantic's
            schema["properties"][name]["title"] = of_class.title
    return schema


def _make_strict(
    part: dict[str, Any],
    max_text: int | None,
) -> None:
    """Change a part of pydantic's schema to what a model is asked for."""
    # A title made of the name says nothing more, and a reply has no defaults.
    for key in ("title", "default"):
        part.pop(key, None)
    if "enum" in part:
        # What it names is narrower, as the grid of a confidence is.
        for key in ("minimum", "maximum"):
            part.pop(key, None)
    elif part.get("type") == "string" and max_text is not None:
        part["maxLength"] = min(max_text, part.get("maxLength", max_text))
    if part.pop("x-one-sentence", False):
        part["pattern"] = one_sentence(part["maxLength"])
    if "properties" in part:
        part["required"] = part.pop("x-required", list(part["properties"]))
        part["additionalProperties"] = False


def _put_in_order(
    fields: dict[str, Any],
    model: type[Reply],
    rationale: Rationale,
) -> None:
    """Put the fields of a reply's schema in the order in which a model writes them.

    Raises:
        ConfigError: a reasoning that is required is to be left out.
    """
    if rationale is False and model.model_fields["reasoning"].is_required():
        raise ConfigError(
            f"{model.__name__}.reasoning has no default, so rationale=False cannot leave it out; "
            "give it one: reasoning: str = ''"
        )
    aliases = aliases_of(model)
    reasoning = aliases.get("reasoning", "reasoning")
    confidence = aliases.get("confidence", "confidence")
    # After those of a derived class, the confidence last.
    moved = [confidence] if rationale == "before" else [reasoning, confidence]
    for name in moved:
        fields[name] = fields.pop(name)
    if rationale is False:
        del fields[reasoning]


@lru_cache(maxsize=1024)
def aliases_of(model: type[BaseModel]) -> Mapping[str, str]:
    """Return what fields are called in the schema, and so by models, if that is another name."""
    aliases: dict[str, str] = {}
    for name, of_class in model.model_fields.items():
        alias = of_class.validation_alias
        if isinstance(alias, AliasChoices):
            alias = alias.choices[0]
        if isinstance(alias, str) and alias != name:
            aliases[name] = alias
    return aliases


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMReasoningChain:
    """Why a component did what it did in a turn; ``str`` gives it as one logfmt line.

    Attributes:
        component: ``agent``, ``validator`` or ``engine``.
        agent: the agent that decided, or whose action was judged or applied.
        turn: the turn being played: the number of the state it leads to.
        reasoning: the model's own explanation.
        confidence: 0 to 1; None where it was not asked for.
        status: how the decision came about.
        call: the model call, or None where a rule decided.
        prompt_text: the prompt of a decision without a call.
    """

    __pydantic_config__ = _STRICT

    component: str
    agent: str
    turn: int
    reasoning: str
    confidence: Confidence | None = 1.0
    status: Status = "ok"
    call: CallRecord | None = None
    prompt_text: str = field(default="", repr=False)

    @property
    def prompt(self) -> str:
        """The prompt as the model got it in its first attempt; empty where a rule decided."""
        return self.call.history[0].request.prompt if self.call else self.prompt_text

    @property
    def by_rule(self) -> bool:
        """True where no model was asked; a choice has a prompt, and calls that measured it."""
        return self.call is None and not self.prompt_text and self.status == "ok"

    def __str__(self) -> str:
        return logfmt(
            component=self.component,
            agent_id=self.agent,
            turn=self.turn,
            status=self.status,
            confidence=self.confidence,
            reasoning=self.reasoning,
        )
