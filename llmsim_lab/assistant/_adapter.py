"""How the decision engine reaches a model: by the shared client, so the tape has every call."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, cast, get_args
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from llmsim_lab._util.text import faults, log_event, whole_text
from llmsim_lab.assistant._schema_tools import (
    RESPOND,
    describe_tools,
    tool_schema,
    tools_as_text,
)
from llmsim_lab.assistant._types import (
    FunctionCall,
    InvalidResponseError,
    LLMError,
    LLMMessage,
    LLMResponse,
    Meaning,
    RateLimitError,
    ToolDeclaration,
)
from llmsim_lab.errors import ConfigError, LLMFailureException, TapeError
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._scope import Recorder, scope
from llmsim_lab.types import CallSite, ChatReply, Message, Role, Text, ToolCall

logger = logging.getLogger(__name__)

ToolCalling = Literal["auto", "native", "schema"]
"""How the model says which tool it wants: by its server's tool calls, or as JSON with a schema."""
_NO_TOOLS = "does not support tools"
_FULL_QUEUE = "maximum pending requests"
"""How an Ollama server says, with status 503, that its queue is full."""
_SITE = CallSite(component="assistant")
_Wire = tuple[Mapping[str, Any], ...]
_NEITHER = "it is neither a tool with its arguments nor an answer with a text"
_NOTHING = "nothing"
_ANSWERING = "Answer the user in words, when no other tool is needed (any more)."
_KIND = "question: you ask the user for something you need; refusal: you decline; else answer"
_DONE = "the tool whose work the text reports, or nothing"
_TEXT = "what the user reads, in the user's language"


class _Answer(BaseModel):
    """The arguments of the tool ``respond``."""

    text: Text
    # Optional here though required on the wire: a text without it is still an answer.
    kind: Meaning | None = None


class OllamaAdapter:
    """Talks to any model that an ``LLMClient`` reaches: by Ollama, embedded, or scripted.

    Besides the tools the model is offered one named ``respond``, with which it answers in words and
    says what they are: an answer, a question or a refusal. A reply without it is plain text, of
    which that is not known.

    Args:
        client: the model.
        tools: declarations of tools that their executor cannot declare itself.
        tool_calling: ``native`` uses the server's own tool calls; ``schema`` explains the tools in
            the system message and gives the reply a schema with one form per tool; ``auto``
            starts with the first and changes to the second if the server says that the model
            cannot, as the embedded backend does.
        site: where the calls stand on a tape.

    Raises:
        ConfigError: a tool is named ``respond``.
    """

    def __init__(
        self,
        client: LLMClient,
        tools: Iterable[ToolDeclaration] = (),
        *,
        tool_calling: ToolCalling = "auto",
        site: CallSite = _SITE,
    ) -> None:
        self.client = client
        self.tools = tuple(tools)
        self.site = site
        self._calling = tool_calling
        self._without_tools = False
        self._without_tools_in: WeakKeyDictionary[Recorder, set[str | None]] = WeakKeyDictionary()
        """The agents that found out, by their run: a replay would not know what an earlier run
        found out, nor which of several agents did first, since that depends on the server."""
        self._wired: tuple[tuple[tuple[ToolDeclaration, ...], bool], _Wire] = (((), False), ())
        self._wire(self.tools, responds=True)  # raises now, not at the first message
        self._schema: tuple[_Wire, Mapping[str, Any]] | None = None

    async def generate(
        self,
        messages: Sequence[LLMMessage],
        tools: Sequence[ToolDeclaration],
        temperature: float = 0.0,
        max_tokens: int = 1024,
    ) -> LLMResponse:
        """Return the model's answer to a conversation.

        Args:
            messages: oldest first.
            tools: those the model may want called.
            temperature: 0 gives the likeliest answer each time.
            max_tokens: longest answer, tokens.

        Raises:
            RateLimitError: the server has too many requests to answer.
            InvalidResponseError: the model answered twice with nothing usable.
            LLMError: no answer, for another reason; ``code`` says which.
            ConfigError: a tool is named ``respond``.
            TapeMiss: a replay has no such call.
        """
        options = {"temperature": temperature, "num_predict": max_tokens}
        try:
            return await self.ask(messages, tools, options=options, responds=True)
        except LLMFailureException as failure:
            raise as_llm_error(failure) from failure

    async def ask(
        self,
        messages: Sequence[LLMMessage],
        tools: Sequence[ToolDeclaration] = (),
        *,
        options: Mapping[str, Any] | None = None,
        site: CallSite | None = None,
        responds: bool = False,
    ) -> LLMResponse:
        """Do what ``generate`` does, with the client's own options and errors.

        Args:
            messages: oldest first.
            tools: those the model may want called.
            options: sampling options instead of the configured ones, by Ollama's names.
            site: where this call stands on a tape; the adapter's if not given.
            responds: whether the model is offered ``respond`` too.

        Raises:
            LLMFailureException: the call failed for good.
        """
        wire, site = self._wire(tools, responds=responds), site or self.site
        ask = partial(self._converse, list(map(_message, messages)), wire, options, site)
        if not wire or self._calling == "native":
            return await ask()
        recorder = scope().recorder
        # Outside of a run there is no replay to agree with, and the adapter itself remembers.
        agents = set() if recorder is None else self._without_tools_in.setdefault(recorder, set())
        is_known = self._without_tools if recorder is None else site.agent in agents
        if self._calling == "auto" and not is_known:
            try:
                return await ask()
            except LLMFailureException as failure:
                if _NO_TOOLS not in failure.detail:
                    raise
            self._without_tools = self._without_tools or recorder is None
            agents.add(site.agent)
            log_event(
                logger,
                logging.INFO,
                "tools_unsupported",
                model=self.client.config.model,
                detail="continuing with a schema",
            )
        return await ask(by_schema=True)

    async def _converse(
        self,
        messages: list[Message],
        wire: _Wire,
        options: Mapping[str, Any] | None,
        site: CallSite,
        *,
        by_schema: bool = False,
    ) -> LLMResponse:
        schema = None
        if by_schema:
            messages = [
                # A model without tool calls may have no place for the role of their results either.
                Message("user" if role == "tool" else cast("Role", role), text)
                for role, text in map(tools_as_text, describe_tools(messages, wire))
            ]
            if self._schema is None or self._schema[0] is not wire:
                self._schema = wire, tool_schema(wire)  # one object, which a tape stores once
            schema = self._schema[1]
        reply, _ = await self.client.converse(
            messages,
            tools=() if by_schema else wire,
            schema=schema,
            options=options,
            check=partial(_complaint, as_json=by_schema),  # what it returns goes back to the model
            site=site,
        )
        return _read(reply, as_json=by_schema)

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Return the declarations of these tools, as far as the adapter was given them."""
        known = {tool.name: tool for tool in self.tools}
        return [known[name] for name in names if name in known]

    def _wire(self, tools: Sequence[ToolDeclaration], *, responds: bool = False) -> _Wire:
        """Return declarations as requests have them; the same objects for the same tools."""
        # By their identity a tape sees that requests share them, and stores them once.
        wanted = tuple(tools or ()), responds
        if self._wired[0] != wanted:
            names = [tool.name for tool in wanted[0]]
            if RESPOND in names:
                raise ConfigError(
                    f"a tool is named {RESPOND!r}, which is how the model answers; rename the tool"
                )
            wire = tuple(map(_declaration, wanted[0]))
            if wire and responds:
                wire = *wire, _declaration(_respond(names))
            self._wired = wanted, wire
        return self._wired[1]

    def __repr__(self) -> str:
        return f"OllamaAdapter({self.client!r})"


def _respond(names: Sequence[str]) -> ToolDeclaration:
    """Return the tool by which a model answers in words, beside tools of these names."""
    # The text stands first, since small models write worse texts after filling in a form. ``done``
    # is not read; the requests of recorded conversations have it.
    parameters = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": _TEXT},
            "kind": {"enum": list(get_args(Meaning)), "description": _KIND},
            "done": {"enum": [_NOTHING, *names], "description": _DONE},
        },
        "required": ["text", "kind", "done"],
    }
    return ToolDeclaration(RESPOND, _ANSWERING, parameters)


def _declaration(tool: ToolDeclaration) -> Mapping[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
        },
    }


def _message(message: LLMMessage) -> Message:
    # A user, a tool or a model may have written half a character, with which no request can be
    # sent: neither this one nor any later one that has it in its history.
    calls = tuple(
        ToolCall(name=whole_text(c.name), arguments=_whole(_object(c)))
        for c in message.function_calls
    )
    name = message.tool_name and whole_text(message.tool_name)
    return Message(message.role, whole_text(message.content), calls, name)


def _object(call: FunctionCall) -> Mapping[str, Any]:
    """Return a call's arguments as an object, as the protocol wants them, whatever they are."""
    if isinstance(call.arguments, Mapping):
        return call.arguments
    try:
        value = json.loads(call.arguments)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": call.arguments}


def _whole(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments without half characters in their texts, at any depth."""
    try:
        text = json.dumps(dict(arguments), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return arguments  # the backend says what is wrong with them
    whole = whole_text(text)
    return arguments if whole == text else cast("dict[str, Any]", json.loads(whole))


def _complaint(reply: ChatReply, *, as_json: bool) -> str | None:
    try:
        _read(reply, as_json=as_json)
    except ValidationError as error:
        return f"{RESPOND}: {faults(error)}"
    except ValueError as error:
        return str(error)
    return None


def _read(reply: ChatReply, *, as_json: bool) -> LLMResponse:
    """Return what a reply says.

    Args:
        reply: the model's.
        as_json: whether it was asked for by a schema.

    Raises:
        ValueError: what is wrong with it, for the model to read.
    """
    is_cut = reply.done_reason == "length"
    text, calls = reply.text, [FunctionCall(call.name, call.arguments) for call in reply.tool_calls]
    if not calls and (as_json or is_cut) and (read := _in_json(text, as_json, is_cut)):
        text, calls = ("", [read]) if isinstance(read, FunctionCall) else (read, [])
    # A model that wants tools called cannot know yet what to answer: its respond waits.
    wanted = tuple(call for call in calls if call.name != RESPOND)
    kind: Meaning | None = None
    if calls and not wanted:
        answer = _Answer.model_validate(calls[-1].arguments)  # of several answers the last
        kind = answer.kind
        text = f"{answer.text} …" if is_cut else answer.text
    if not wanted and not text.strip():
        raise ValueError("the reply is empty")
    counts = {"prompt_tokens": reply.prompt_tokens, "reply_tokens": reply.reply_tokens}
    return LLMResponse(
        content=text or None,
        function_calls=wanted,
        finish_reason=reply.done_reason,
        usage={name: count for name, count in counts.items() if count is not None},
        kind=kind,
    )


def _in_json(text: str, as_json: bool, is_cut: bool) -> FunctionCall | str | None:
    """Return the call or the answer that a JSON text is; None for a text that need not be JSON.

    If the token limit cut it, an answer still counts, and a call of another tool does not.
    """
    whole, value = True, None
    try:
        value = from_json(text)  # which raises ValueError, and no RecursionError, on deep nesting
    except ValueError:
        if is_cut:
            whole = False
            with suppress(ValueError):
                value = from_json(text, allow_partial="trailing-strings")
    # Without a schema, JSON in a text is only ours if it has the keys that we explain to models.
    if isinstance(value, dict) and (as_json or {"name", "answer"} & value.keys()):
        name, arguments, answer = map(value.get, ("name", "arguments", "answer"))
        if isinstance(answer, str) and answer.strip():
            return answer if whole else f"{answer} …"
        # Its text alone: what comes after it may be what was cut.
        if not whole and name == RESPOND and isinstance(arguments, dict):
            return FunctionCall(name, {"text": arguments.get("text")})
        if whole and isinstance(name, str) and isinstance(arguments, dict | str):
            return FunctionCall(name, arguments)
    elif not as_json:
        return None
    raise ValueError(_NEITHER)


def as_llm_error(error: Exception) -> LLMError:
    """Return an error of a model call as an ``LLMError``.

    Raises:
        TapeError: the error is one: a replay that lacks a call must not continue.
        ConfigError: the error is one: the program is set up wrong.
    """
    if isinstance(error, TapeError | ConfigError):
        raise error
    if isinstance(error, LLMError):
        return error
    fault: LLMError
    if isinstance(error, LLMFailureException):
        if error.reason == "rate_limited" or _FULL_QUEUE in error.detail:
            # The client's error does not know the wait, but the backend's, which caused it, does.
            wait = getattr(error.__cause__, "retry_after_s", None)
            fault = RateLimitError(str(error), retry_after=wait)
        elif error.reason == "invalid_response":
            fault = InvalidResponseError(str(error))
        else:
            fault = LLMError(str(error), error.reason.upper())
    elif isinstance(error, TimeoutError):
        fault = LLMError(f"no answer in time: {error}".rstrip(": "), "TIMEOUT")
    else:
        logger.error("assistant_failure", exc_info=error)
        fault = LLMError(f"{type(error).__name__}: {error}", "UNEXPECTED")
    fault.__cause__ = error  # not by ``raise … from``, since callers also keep it without raising
    return fault
