"""The one way to ask a model: bounded, retried once, validated, recorded.

``call_with_retry`` returns a reply that fits the response model, or raises ``LLMFailureException``,
which says why not. A failed request is made once more, after a jittered wait, if that may help:
after a timeout, a lost connection, status 429 or 5xx, and after an invalid reply, which the model
then sees together with the complaint. A server may ask for a longer wait (``Retry-After``), up to
``timeout_s``. A server that refuses the connection is waited for, so that a run survives a restart.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NoReturn, SupportsIndex, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json

from llmsim_lab._util.checks import text_argument, whole_number
from llmsim_lab._util.copies import Shared
from llmsim_lab._util.frozen import SetOnce, frozen
from llmsim_lab._util.jsontext import SCALARS, dumps, plain
from llmsim_lab._util.text import brief, clip, log_as_asked
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm._backend import as_backend
from llmsim_lab.llm._config import LLMConfig
from llmsim_lab.llm._limits import Limits
from llmsim_lab.llm._returned import returned_info
from llmsim_lab.llm.bounds import json_number, narrowed
from llmsim_lab.llm.calls.context import Answered, CallContext, TextLimit
from llmsim_lab.llm.calls.faults import fault_of, text_limits_of
from llmsim_lab.llm.calls.pipeline import pipeline
from llmsim_lab.llm.choice import Choice, OptionT, choice_by, options_of
from llmsim_lab.llm.extract import InvalidReply, parse_reply, with_instruction
from llmsim_lab.llm.form import told_form
from llmsim_lab.llm.scope import scope, scoped
from llmsim_lab.prompts import RenderedPrompt
from llmsim_lab.spans import Origin
from llmsim_lab.types import (
    HUMAN,
    CallRecord,
    CallSite,
    ChatBackend,
    ChatReply,
    ChatRequest,
    Decision,
    Message,
    ModelInfo,
    Number,
    Rationale,
    Reply,
    aliases_of,
    reply_schema,
)

ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")

JSONMapping = Mapping[str, Any]
"""A schema, a tool's declaration, or options: values of JSON by name."""


class LLMClient(Shared, SetOnce):
    """A model and its settings; share one client among all agents of a run.

    It can be used from any number of event loops and threads; each loop has its own limit of
    requests in flight. A copy of it, or of what holds it, is the same client.

    Args:
        config: the settings; the defaults suit a small local model.
        backend: the backend that answers; an ``OllamaBackend`` if not given.
        chosen: a sentence that says why this backend, if ``connect`` chose it.
    """

    set_once = ("backend",)

    def __init__(
        self,
        config: LLMConfig | None = None,
        backend: ChatBackend | None = None,
        *,
        chosen: str = "",
    ) -> None:
        # Not ``config or ...``, which would take an empty dict for no settings.
        config = LLMConfig() if config is None else config
        if not isinstance(config, LLMConfig):
            raise ConfigError(
                f"config={brief(config, 80)} is not an LLMConfig; connect('ollama:NAME') makes a "
                "client from a model's name"
            )
        if backend is None:
            # Imported here: its HTTP client takes long, and other backends do not need it.
            from llmsim_lab.llm.ollama import OllamaBackend

            backend = OllamaBackend(None if config.model == "auto" else config.model)
        self.backend = backend
        self.chosen = text_argument("chosen", chosen)
        # ``backend`` stays the user's own object, which the user may look at.
        self._adapted = as_backend(backend)
        # Not at import, which has no effects. Everybody who asks a model makes a client.
        log_as_asked()
        # People see the fields anyway.
        advised = set[str]() if self._adapted.is_model else None
        limits = self._adapted.client_limits or Limits(
            config.most_at_once, slots=self._adapted.slots
        )
        self._share(limits, advised)
        self._set(config)

    def __reduce_ex__(self, _protocol: SupportsIndex, /) -> NoReturn:
        # Called to pickle a client, and whatever holds it; copies are shared.
        raise ConfigError(
            "an LLMClient cannot be pickled: its key and its limit of requests stay in this "
            "process. Where it is needed, make one: connect('ollama:NAME')"
        )

    def _share(
        self,
        limits: Limits,
        advised: set[str] | None,
    ) -> None:
        """Make the layers that calls pass through; clients of one server share some of them.

        Args:
            limits: how many requests are under way at once.
            advised: the models for which a log line advised ``tell_form``; None to advise nothing.
        """
        self.limits = limits
        self._advised = advised
        self._calls = pipeline(
            self._adapted,
            type(self.backend).__name__,
            limits,
            advised,
        )

    def _set(self, config: LLMConfig) -> None:
        """Use these settings for all requests from now on."""
        self._config = config
        # One object for all requests: a tape recognises it, and writes it once.
        self._options: JSONMapping = frozen({})
        if self._adapted.is_model:
            self._options = frozen(config.sampling)

    @property
    def config(self) -> LLMConfig:
        """The settings; ``with_config`` returns a client with other settings."""
        return self._config

    def with_config(self, config: LLMConfig) -> LLMClient:
        """Return a client of the same server with other settings.

        Both clients share one limit of requests in flight, unless the new settings change the
        limit.
        """
        # Of this class and not of a derived one, whose arguments are not known here.
        other = LLMClient(
            config,
            self.backend,
            chosen=self.chosen,
        )
        limits = other.limits
        # With a limit each, two clients would send one server twice as many requests.
        if config.most_at_once == self.config.most_at_once:
            limits = self.limits
        # Each run of a study has a client of its own, but one log line about a model is enough.
        other._share(limits, self._advised)
        return other

    async def call_with_retry(
        self,
        *,
        prompt: str,
        response_model: type[ModelT],
        choices: Mapping[str, tuple[object, ...]] | None = None,
        limits: Mapping[str, tuple[Number, Number]] | None = None,
        check: Callable[[ModelT], str | None] | None = None,
        site: CallSite | None = None,
        total_timeout_s: float | None = None,
        rationale: Rationale = "before",
    ) -> ModelT:
        """Ask for a structured decision; a ``Decision`` has the record of the call as ``.call``.

        Args:
            prompt: a text; or a ``RenderedPrompt``, which is sent as system and user message.
            response_model: the class of the reply.
            choices: the allowed values of some fields; they become part of the reply schema, and
                are not checked again.
            limits: the lowest and highest value of some fields, in the same way.
            check: returns what is wrong with the content of a well-formed reply, or None; such a
                complaint makes the reply invalid.
            site: the call's place in the run.
            total_timeout_s: the longest time for a reply, if the settings have none.
            rationale: where a ``Reply`` has its reasoning: ``before`` its other fields, ``after``
                them, or False for no reasoning.

        Raises:
            LLMFailureException: the call failed for good.
        """
        # A method of its own, so that a prompt can be looked at without asking anyone.
        request = self.request_of(
            prompt,
            response_model,
            choices,
            limits,
            site,
            rationale=rationale,
        )
        text_limits = _text_limits_of(response_model, self._config.max_text_chars, rationale)

        read = self.reader_of(
            response_model,
            choices,
            limits,
            check,
            rationale=rationale,
        )
        # One record for all attempts: it also shows why a first reply was invalid. A person's
        # answer is checked before it is sent, so that the form can show what is wrong.
        with scoped(judge=read) if self._asks_a_person else nullcontext():
            decision, call = await self._sent(
                request,
                read,
                total_timeout_s,
                text_limits,
            )
        # Other classes have no place for the record; ``converse`` returns it beside the reply.
        if isinstance(decision, Decision):
            decision.with_call(call)
        return decision

    async def converse(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[JSONMapping] = (),
        schema: JSONMapping | None = None,
        options: JSONMapping | None = None,
        check: Callable[[ChatReply], str | None] | None = None,
        site: CallSite | None = None,
    ) -> tuple[ChatReply, CallRecord]:
        """Continue a conversation, in which the model may ask for tools to be called.

        Args:
            messages: the messages, oldest first.
            tools: function declarations, in the form of ``ChatRequest.tools``.
            schema: the reply schema, if any.
            options: sampling options that replace the configured ones, by Ollama's names.
            check: returns what is wrong with a reply, or None; a complaint makes the reply invalid.
            site: the call's place in the run.

        Returns:
            The reply, and the record of the call.

        Raises:
            LLMFailureException: the call failed for good.
        """
        # Copies: the recording is written when the reply is here, and until then the caller may
        # change the messages.
        kept_messages = tuple(_as_it_is(message) for message in messages)
        if schema is not None:
            schema = _fixed("schema", schema)
        request = self._new_request(
            self._with_form(kept_messages, schema),
            site=site,
            options=self._options_with(options),
            schema=schema,
            tools=tuple(_fixed("tools", list(tools))),
        )

        def read(reply: ChatReply) -> ChatReply:
            # A complaint makes the reply invalid: it is sent back once, and recorded.
            complaint = check(reply) if check is not None else None
            if complaint:
                raise InvalidReply(complaint)
            return reply

        return await self._sent(request, read)

    async def choose(
        self,
        prompt: str,
        options: Sequence[OptionT] | Mapping[OptionT, str],
        *,
        samples: int = 100,
        seed: int | None = None,
        site: CallSite | None = None,
    ) -> Choice[OptionT]:
        """Return what the model would choose, with the probability of each option.

        The probabilities are the model's own at temperature 1, whatever temperature is configured.

        Args:
            prompt: the question without the options, which are added together with how to answer.
            options: texts, numbers or enums; or a mapping of them to the texts the model sees.
            samples: at least how many answers to draw if the backend gives no probabilities; each
                order of the options gets the same number.
            seed: the seed of drawn answers, instead of the configured one.
            site: the call's place in the run.

        Raises:
            ConfigError: there are fewer than two options, two are alike, or there are too many.
            LLMFailureException: a call failed for good, or no answer was one of the options.

        Example:
            >>> choice = await client.choose("Inflation is 6 %. What now?", ["raise", "hold"])
            >>> choice.mode, choice.mass
        """
        named = options_of(options)
        samples = whole_number("samples", samples, least=1)
        if seed is not None:
            seed = whole_number("seed", seed)
        before, origin = self._messages_of(prompt, site)

        async def ask(
            messages: Sequence[Message],
            settings: JSONMapping,
            top: int | None,
        ) -> tuple[ChatReply, CallRecord]:
            request = self._new_request(
                tuple(messages),
                site=site,
                options=self._options_with(settings),
                # A thought would come first, and the first token has to be the letter.
                think=False,
                top_logprobs=top,
                origin=origin,
            )
            return await self._sent(request, _whole)

        # All orders of the options in one round, since they share the text before the options.
        with scoped(round=self.limits.lane().next_round):
            return await choice_by(
                ask,
                before,
                named,
                samples=samples,
                seed=self.config.seed if seed is None else seed,
            )

    def _options_with(self, options: JSONMapping | None) -> JSONMapping:
        """Return sampling options; given ones replace the configured ones."""
        # Without given options, the configured object itself: a tape writes it once.
        if not options:
            return self._options
        with_others: JSONMapping = _fixed("options", {**self._options, **options})
        return with_others

    def _new_request(
        self,
        messages: tuple[Message, ...],
        *,
        site: CallSite | None,
        options: JSONMapping,
        schema: JSONMapping | None = None,
        tools: tuple[JSONMapping, ...] = (),
        think: bool | str | None = None,
        top_logprobs: int | None = None,
        origin: Origin | None = None,
    ) -> ChatRequest:
        """Return a request with the client's settings; ``think=None`` for the configured one."""
        config = self._config
        if think is None:
            think = config.think
        return ChatRequest(
            model=config.model,
            messages=messages,
            schema=schema,
            tools=tools,
            options=options,
            think=think,
            keep_alive=config.keep_alive,
            timeout_s=config.timeout_s,
            site=site,
            top_logprobs=top_logprobs,
            origin=origin,
        )

    def _sent(
        self,
        request: ChatRequest,
        read: Callable[[ChatReply], T],
        total_s: float | None = None,
        text_limits: Sequence[TextLimit] = (),
    ) -> Awaitable[Answered[T]]:
        """Make a call; return what was read from its reply, and its record.

        Args:
            request: the request.
            read: parses a reply.
            total_s: the longest time for one reply, seconds, if the settings have none.
            text_limits: the longest texts of the reply.
        """
        config = self._config
        return self._calls.send(
            CallContext(
                request=request,
                read=read,
                config=config,
                scope=scope(),
                total_s=config.total_timeout_s or total_s or math.inf,
                text_limits=text_limits,
            )
        )

    async def model_info(self) -> ModelInfo:
        """Return which model answers.

        Raises:
            LLMFailureException: the backend cannot be reached, or lacks the model.
        """
        backend_name = type(self.backend).__name__
        longest_s: float | None = self.config.timeout_s
        # The embedded model has to be loaded first.
        if self._adapted.client_limits is not None:
            longest_s = None  # such a backend may have to read gigabytes first
        try:
            async with asyncio.timeout(longest_s):
                info: object = self._adapted.model_info()
                if inspect.isawaitable(info):  # a user's own backend may have a plain method
                    info = await info
            # A backend need not tell; the tape then has the name that was asked for.
            if info is None:
                return ModelInfo(name=self.config.model, backend=backend_name)
            return returned_info(info, backend_name)
        except Exception as error:
            fault = fault_of(error, self.config.timeout_s)
            # An error in the backend's code is not a fault of the model, and is raised unchanged.
            if fault is None:
                raise
            raise LLMFailureException(
                fault.reason,
                1,
                fault.status_code,
                detail=str(fault),
            ) from error

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        """Return how many tokens each text has for the model; None if its backend cannot tell.

        Of this package's backends, only the embedded model can. Ollama has no such request (its
        issue 12031), and servers with OpenAI's protocol have none in common.
        issue 12031), and servers with OpenAI's protocol have none in common.

        Raises:
            BackendError: the request failed; its ``reason`` says how.
        """
        if scope().stand_in is not None:  # a plan asks nothing
            return None
        counts = []
        for text in texts:
            count = await self._adapted.count_tokens(text)
            if count is None:
                return None
            counts.append(count)
        return counts

    async def aclose(self) -> None:
        """Release the backend's connections and processes."""
        await self._adapted.aclose()

    async def __aenter__(self) -> LLMClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        backend = type(self.backend).__name__
        if self.chosen:
            backend += f": {self.chosen}"
        return f"<LLMClient {self.config.model!r} on {backend}>"

    def request_of(
        self,
        prompt: str,
        response_model: type[BaseModel],
        choices: Mapping[str, tuple[object, ...]] | None = None,
        limits: Mapping[str, tuple[Number, Number]] | None = None,
        site: CallSite | None = None,
        *,
        rationale: Rationale = "before",
    ) -> ChatRequest:
        """Return what ``call_with_retry``, whose arguments these are, asks first; nothing is asked.

        Raises:
            ConfigError: the prompt is empty, or a field is named that the response model lacks.
        """
        messages, origin = self._messages_of(prompt, site)
        named = b"{}"
        if choices or limits:
            allowed: dict[str, dict[str, Any]] = {}
            for field, values in (choices or {}).items():
                enum = list(values)
                # Rules of a bank offer dozens each turn, and a Decimal is seldom among them.
                if not SCALARS.issuperset(map(type, values)):
                    enum = [json_number(value) for value in values]
                allowed[field] = {"enum": enum}
            for field, (lowest, highest) in (limits or {}).items():
                bounds = {"minimum": json_number(lowest), "maximum": json_number(highest)}
                allowed.setdefault(field, {}).update(bounds)
            try:
                # As text, which a cache can find, and in which 20 and 20.0, 1 and True differ.
                named = to_json(allowed)
            except ValueError as error:
                raise ConfigError(f"choices and limits {brief(allowed, 120)}: {error}") from error
        schema = _schema_of(
            response_model,
            self._config.max_text_chars,
            rationale,
            named,
        )
        return self._new_request(
            self._with_form(messages, schema),
            site=site,
            options=self._options,
            schema=schema,
            origin=origin,
        )

    @property
    def _asks_a_person(self) -> bool:
        """Whether a person answers; in a replay the tape does, and only the name says it."""
        return self._config.model == HUMAN

    def reader_of(
        self,
        response_model: type[ModelT],
        choices: Mapping[str, tuple[object, ...]] | None = None,
        limits: Mapping[str, tuple[Number, Number]] | None = None,
        check: Callable[[ModelT], str | None] | None = None,
        *,
        rationale: Rationale = "before",
    ) -> Callable[[ChatReply], ModelT]:
        """Return what reads replies to ``call_with_retry``, whose arguments these are.

        It raises ``InvalidReply`` for one that is not what was asked for.
        """
        may_lack = _NO_FIELDS
        if self._asks_a_person:  # who may leave out both
            may_lack = frozenset(Reply.model_fields)
        elif rationale is False:
            may_lack = frozenset(("reasoning",))

        # Not a function in here: each of the names in it would be one more object in each call.
        return partial(
            _read_reply,
            response_model,
            check,
            choices,
            limits,
            may_lack,
        )

    def _messages_of(
        self,
        prompt: str,
        site: CallSite | None,
    ) -> tuple[tuple[Message, ...], Origin | None]:
        """Return a prompt's messages, and where its values came from."""
        if not prompt or prompt.isspace():
            raise ConfigError("the prompt is empty; give the model something to answer")
        if not isinstance(prompt, RenderedPrompt):
            # Of a subclass of str the text alone, which is what a tape gives back.
            return (Message("user", str(prompt)),), None
        user = Message("user", prompt.user)
        origin = prompt.origin(site)
        if not prompt.system:
            return (user,), origin
        return (_system_message(prompt.system), user), origin

    def _with_form(
        self,
        messages: Sequence[Message],
        schema: JSONMapping | None,
    ) -> tuple[Message, ...]:
        """Return the messages, with the form of the reply where the first attempt tells it."""
        # Most servers enforce the schema; to tell it costs tokens in each request.
        if schema is None or not self._config.tell_form:
            return tuple(messages)
        return with_instruction(messages, told_form(schema))


def checked_client(
    client: Any,
    argument: str,
    needs: Sequence[str] = ("call_with_retry", "config"),
) -> Any:
    """Return a client, which may be an object around one, that has what will be used of it.

    Args:
        client: what was given.
        argument: as what it was given, for the message.
        needs: what will be used.

    Raises:
        ConfigError: it is a class or lacks some of it; else its first call would fail.
    """
    # By what it can do, not by its class: a client around another is a client.
    lacking = [name for name in needs if not hasattr(client, name)]
    if isinstance(client, type) or needs[0] in lacking:
        right = "auto"
        if isinstance(client, str):  # a model's name, as ``connect`` takes it
            right = clip(client, 80)
        raise ConfigError(
            f"{argument}={brief(client, 80)} is not a client; make one: "
            f"{argument}=connect({right!r}), or LLMClient(LLMConfig(model='script'), backend)"
        )
    if lacking:
        raise ConfigError(
            f"{argument}={brief(client, 80)} is a client without {', '.join(lacking)}; derive its "
            "class from LLMClient, or have it hand on what it lacks: def __getattr__(self, name): "
            "return getattr(self.inner, name)"
        )
    return client


def run_client(client: Any, argument: str = "llm_client") -> LLMClient | None:
    """Return a client that has all that a run may use of it, or None.

    Raises:
        ConfigError: it is something else; a text would be taken for a player.
    """
    if client is None:
        return None
    methods = ("call_with_retry", "converse", "choose", "model_info", "with_config")
    checked: LLMClient = checked_client(
        client,
        argument,
        (*methods, "config", "backend"),
    )
    return checked


def _fixed(name: str, value: object) -> Any:
    """Return a copy of a value of JSON that cannot be changed, one for all that are equal.

    Raises:
        ConfigError: JSON cannot hold it.
    """
    try:
        # By way of its text equal values become one object, which a tape writes once.
        return _from_text(dumps(plain(value)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}={brief(value, 120)} must be values of JSON: {error}") from error


@lru_cache(maxsize=1024)
def _from_text(text: str) -> Any:
    return frozen(json.loads(text))


_NO_FIELDS: frozenset[str] = frozenset()


def _read_reply(
    response_model: type[ModelT],
    check: Callable[[ModelT], str | None] | None,
    choices: Mapping[str, tuple[object, ...]] | None,
    limits: Mapping[str, tuple[Number, Number]] | None,
    may_lack: frozenset[str],
    reply: ChatReply,
) -> ModelT:
    """Return a reply as ``reader_of`` says; the reply comes last, as ``partial`` needs it."""
    return parse_reply(
        reply.text,
        response_model,
        check,
        choices,
        limits,
        thinking=reply.thinking,
        may_lack=may_lack,
    )


def _whole(reply: ChatReply) -> ChatReply:
    """Return a reply as it is."""
    return reply


def _as_it_is(message: Message) -> Message:
    """Return a message whose calls' arguments cannot be changed."""
    if not message.tool_calls:
        return message
    calls = []
    for call in message.tool_calls:
        arguments = frozen(dict(call.arguments))
        calls.append(replace(call, arguments=arguments))
    return replace(message, tool_calls=tuple(calls))


_system_message = lru_cache(maxsize=1024)(partial(Message, "system"))
"""One message for all requests of a run that share it."""


@lru_cache(maxsize=1024)
def _schema_of(
    response_model: type[BaseModel],
    max_text: int | None,
    rationale: Rationale,
    allowed: bytes,
) -> JSONMapping:
    """Return the reply schema of a class; shared by all its requests, not to be changed.

    Args:
        response_model: what its reply must be.
        max_text: the longest text, characters.
        rationale: where a ``Reply`` has its reasoning.
        allowed: what is narrowed of single fields, as JSON: ``enum``, ``minimum``, ``maximum``.

    Raises:
        ConfigError: a field is narrowed that the response model lacks.
    """
    schema = reply_schema(
        response_model,
        max_text=max_text,
        rationale=rationale,
    )
    fields: dict[str, Any] = schema.get("properties", {})
    aliases = aliases_of(response_model)
    for field, limits in json.loads(allowed).items():
        # Limits name a field as its class does, a schema as models do.
        alias = aliases.get(field, field)
        if alias not in fields:
            raise ConfigError(
                f"choices or limits name {field!r}, which {response_model.__name__} lacks; its "
                f"fields are {', '.join(fields)}"
            )
        fields[alias] = narrowed(fields[alias], schema, limits)
    shared: JSONMapping = frozen(schema)
    return shared


@lru_cache(maxsize=1024)
def _text_limits_of(
    response_model: type[BaseModel],
    max_text: int | None,
    rationale: Rationale,
) -> tuple[TextLimit, ...]:
    """Return how long the texts of a reply may be, whatever else is allowed in it."""
    return text_limits_of(
        response_model,
        _schema_of(
            response_model,
            max_text,
            rationale,
            b"{}",
        ),
    )
