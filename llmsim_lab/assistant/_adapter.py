"""How the decision engine reaches a model: by the shared client, so the tape has every call."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import get_args
from weakref import WeakKeyDictionary

from pydantic import BaseModel, TypeAdapter, ValidationError

from llmsim_lab._util.jsontext import Schema
from llmsim_lab._util.text import faults, log_event, whole, whole_text
from llmsim_lab.assistant.types import (
    FunctionCall,
    LLMError,
    LLMMessage,
    LLMResponse,
    Meaning,
    RateLimitError,
    ToolDeclaration,
)
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm.calls.faults import FULL_QUEUE
from llmsim_lab.llm.client import checked_client
from llmsim_lab.llm.extract import with_instruction
from llmsim_lab.llm.scope import scope
from llmsim_lab.types import CallSite, ChatReply, Message, Text

logger = logging.getLogger(__name__)

RESPOND = "respond"
"""The tool by which a model answers in words, where a request offers it."""
_EXPLAINED = """\
You may use these tools:
{tools}
Reply with one JSON object: {{"name": "TOOL", "arguments": {{...}}}} to use a tool, or \
{{"name": "respond", "arguments": {{...}}}} to answer yourself once you need no tool."""
_NO_TOOLS = re.compile(r"does not support tools|support tool use|tool.choice|tools param")
_SITE = CallSite(component="assistant")
_CALL: TypeAdapter[FunctionCall] = TypeAdapter(FunctionCall)
_without_tools: WeakKeyDictionary[object, set[str | None]] = WeakKeyDictionary()
"""The agents that found out that their model has no tools, by their run: a replay would not know
what an earlier run found out, nor which of several agents did first, since that depends on the
server. Outside of a run, by the client."""
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
    which that is not known. The server's own tool calls are used; where it says that the model
    cannot, the tools are explained in the system message, and a schema has one form per tool.

    Args:
        client: the model.
        site: where in a run its calls are made.
    """

    def __init__(
        self,
        client: LLMClient,
        *,
        site: CallSite = _SITE,
    ) -> None:
        self.client: LLMClient = checked_client(
            client,
            "client",
            ("converse", "config"),
        )
        self.site = site

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
            LLMError: no answer, for another reason; ``code`` says which.
            ConfigError: a tool is named ``respond``.
            TapeMiss: a replay has no such call.
        """
        # By Ollama's names: the other backends translate them.
        options = {"temperature": temperature, "num_predict": max_tokens}
        try:
            return await self.ask(
                messages,
                tools,
                options=options,
                responds=True,
            )
        except LLMFailureException as failure:
            if failure.reason == "rate_limited" or FULL_QUEUE in failure.detail:
                # The client's error does not know the wait, but the backend's, which caused it.
                wait_s = getattr(failure.__cause__, "retry_after_s", None)
                raise RateLimitError(str(failure), retry_after=wait_s) from failure
            raise LLMError(str(failure), failure.reason.upper()) from failure

    async def ask(
        self,
        messages: Sequence[LLMMessage],
        tools: Sequence[ToolDeclaration] = (),
        *,
        options: Mapping[str, object] | None = None,
        responds: bool = False,
    ) -> LLMResponse:
        """Do what ``generate`` does, with the client's own options and errors.

        Args:
            messages: oldest first.
            tools: those the model may want called.
            options: sampling options instead of the configured ones, by Ollama's names.
            responds: whether the model is offered ``respond`` too.

        Raises:
            LLMFailureException: the call failed for good.
        """
        # A user or a model may have written half a character, with which no request can be sent.
        talk = [_whole(message) for message in messages]
        recorder = scope().recorder
        # A run on a tape finds out by itself, so that its replay does too.
        asker = self.client if recorder.tape is None else recorder
        agents = _without_tools.setdefault(asker, set())
        if not tools or self.site.agent not in agents:
            try:
                reply, _ = await self.client.converse(
                    talk,
                    tools=_wired(tools, responds=responds),
                    options=options,
                    site=self.site,
                    check=partial(_complaint, _read),  # what it returns goes back to the model
                )
            except LLMFailureException as failure:
                # Any other failure is one: to ask again in words would hide it.
                if not tools or not _NO_TOOLS.search(failure.detail):
                    raise
            else:
                return _read(reply)
            agents.add(self.site.agent)
            log_event(
                logger,
                logging.INFO,
                "tools_unsupported",
                model=self.client.config.model,
            )
        functions = [tool["function"] for tool in _wired(tools, responds=True)]
        explained = _EXPLAINED.format(tools="\n".join(map(json.dumps, functions)))
        # Nor may its template have a place for the role of tools' results.
        in_words = [_as_text(message) for message in with_instruction(talk, explained)]
        reply, _ = await self.client.converse(
            in_words,
            schema={"anyOf": [_form(function) for function in functions]},
            options=options,
            site=self.site,
            check=partial(_complaint, _read_form),
        )
        return _read_form(reply)


def _wired(
    tools: Sequence[ToolDeclaration],
    *,
    responds: bool,
) -> tuple[Schema, ...]:
    """Return declarations as requests have them, with ``respond`` if they are to have it."""
    names = [tool.name for tool in tools]
    if RESPOND in names:
        raise ConfigError(f"a tool is named {RESPOND!r}, as the model's answer is; rename it")
    # The text stands first, since small models write worse texts after filling in a form. ``done``
    # is not read; the requests of recorded conversations have it.
    parameters = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": _TEXT},
            "kind": {"enum": list(get_args(Meaning)), "description": _KIND},
            "done": {"enum": ["nothing", *names], "description": _DONE},
        },
        "required": ["text", "kind", "done"],
    }
    offered = list(tools)
    if tools and responds:
        offered.append(ToolDeclaration(RESPOND, _ANSWERING, parameters))
    wired = []
    for tool in offered:
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        wired.append({"type": "function", "function": function})
    return tuple(wired)


def _whole(message: LLMMessage) -> LLMMessage:
    """Return a message whose texts have no half characters."""
    calls = [replace(call, arguments=whole(call.arguments)) for call in message.tool_calls]
    return replace(
        message,
        content=whole_text(message.content),
        tool_calls=tuple(calls),
    )


def _complaint(
    read: Callable[[ChatReply], LLMResponse],
    reply: ChatReply,
) -> str | None:
    """Return what is wrong with a reply, for the model to read; None if nothing is."""
    try:
        read(reply)
    except ValidationError as error:
        return faults(error)
    except ValueError as error:
        return str(error)
    return None


def _read(reply: ChatReply) -> LLMResponse:
    """Return what a reply says.

    Raises:
        ValueError: what is wrong with it, for the model to read.
    """
    _check_whole(reply)
    text = reply.text
    kind = None
    # A model that wants tools called cannot know yet what to answer: its respond waits.
    wanted = tuple(call for call in reply.tool_calls if call.name != RESPOND)
    if reply.tool_calls and not wanted:
        last = reply.tool_calls[-1]  # of several answers
        answer = _Answer.model_validate(last.arguments)
        text = answer.text
        kind = answer.kind
    if not wanted and not text.strip():
        raise ValueError("the reply is empty")
    return LLMResponse(
        text or None,
        wanted,
        reply.done_reason,
        kind=kind,
    )


def _check_whole(reply: ChatReply) -> None:
    """Raise ValueError for a call that was cut, which a server hands on as text."""
    is_cut = reply.done_reason == "length" and reply.text.lstrip().startswith("{")
    if is_cut and not reply.tool_calls:
        raise ValueError("the call was cut off")


# --- models that cannot call tools: a schema with one form for each tool --------------------------


def _read_form(reply: ChatReply) -> LLMResponse:
    """Return what a reply says that is a call, written as the schema has it.

    Raises:
        ValueError: what is wrong with it, for the model to read.
    """
    _check_whole(reply)
    if not reply.tool_calls:
        reply = replace(
            reply,
            text="",
            tool_calls=(_CALL.validate_json(reply.text),),
        )
    return _read(reply)


def _form(function: Schema) -> Schema:
    """Return the schema of a reply that calls a tool."""
    return {
        "type": "object",
        "properties": {"name": {"const": function["name"]}, "arguments": function["parameters"]},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _as_text(message: Message) -> Message:
    """Return a message in words that every chat template knows."""
    if message.role == "tool":
        return Message("user", f"Result of {message.tool_name or 'the tool'}:\n{message.content}")
    # In the form in which the model is to call tools, so that its own turns show it how.
    lines = [message.content] if message.content else []
    lines += [
        json.dumps({"name": call.name, "arguments": call.arguments}) for call in message.tool_calls
    ]
    return Message(message.role, "\n".join(lines))
