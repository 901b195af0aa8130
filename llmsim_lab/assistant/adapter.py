"""The decision engine's way to a model: the shared client, so that the tape records every call."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast
from weakref import WeakKeyDictionary

from llmsim_lab.assistant.guard import as_llm_error
from llmsim_lab.assistant.protocols import FunctionCall, LLMMessage, LLMResponse, ToolDeclaration
from llmsim_lab.assistant.text_calls import (
    calls_in_text,
    cut_answer,
    embedded_calls,
    is_code,
    read_choice,
    was_shown,
    without_calls,
)
from llmsim_lab.calls import CallSite, ChatReply, Message, Role, ToolCall
from llmsim_lab.errors import LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm.embedded.tools import describe_tools, tool_schema, tools_as_text
from llmsim_lab.llm.scope import Recorder, scope
from llmsim_lab.logs import log_event

__all__ = ["OllamaAdapter", "ToolCalling"]

logger = logging.getLogger(__name__)

ToolCalling = Literal["auto", "native", "schema"]
"""How the model says which tool it wants: as its server has it, or as JSON held to a schema."""

_NO_TOOLS = "does not support tools"
_SITE = CallSite(component="assistant")
_Wire = tuple[Mapping[str, Any], ...]
_STRANGERS = ("user", "tool")
"""Whose words a model may read out without meaning them."""


class OllamaAdapter:
    """Talks to any model an ``LLMClient`` reaches: by Ollama, embedded, or scripted.

    Args:
        client: the model.
        tools: declarations of tools that their executor cannot declare itself.
        tool_calling: ``native`` uses the server's own tool calls; ``schema`` explains the tools in
            the system message and holds the reply to a schema with one form per tool; ``auto``
            begins with the first and goes over to the second if the server says that the model
            cannot. The embedded backend does the second by itself.
        site: where the calls are noted on a tape.
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
        self._has_none = False
        self._has_none_in: WeakKeyDictionary[Recorder, set[str | None]] = WeakKeyDictionary()
        self._wired: tuple[tuple[ToolDeclaration, ...], _Wire] = ((), ())
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
            TapeMiss: a replay has no such call.
        """
        options = {"temperature": temperature, "num_predict": max_tokens}
        try:
            return await self.ask(messages, tools, options=options)
        except LLMFailureException as failure:
            raise as_llm_error(failure) from failure

    async def ask(
        self,
        messages: Sequence[LLMMessage],
        tools: Sequence[ToolDeclaration] = (),
        *,
        options: Mapping[str, Any] | None = None,
        site: CallSite | None = None,
    ) -> LLMResponse:
        """Do what ``generate`` does, with the client's own options and errors.

        Args:
            messages: oldest first.
            tools: those the model may want called.
            options: sampling options instead of the configured ones, by Ollama's names.
            site: where this call is noted on a tape; the adapter's if not given.

        Raises:
            LLMFailureException: the call failed for good.
        """
        wire, site = self._wire(tools), site or self.site
        if not wire or self._calling == "native":
            return await self._native(messages, wire, options, site)
        if self._calling == "auto" and not self._knows_none(site):
            try:
                return await self._native(messages, wire, options, site)
            except LLMFailureException as failure:
                if _NO_TOOLS not in failure.detail:
                    raise
            self._note_it_knows_none(site)
            log_event(
                logger,
                logging.INFO,
                "tools_unsupported",
                model=self.client.config.model,
                detail="going on with a schema",
            )
        return await self._by_schema(messages, wire, options, site)

    def _knows_none(self, site: CallSite) -> bool:
        """Return True if the model was found to have no tool calls: in this run, by this agent.

        What an earlier run found out, a replay of this one would not know; and which of several
        agents finds it out first depends on whose answer comes first.
        """
        recorder = scope().recorder
        if recorder is None:
            return self._has_none
        return site.agent in self._has_none_in.get(recorder, ())

    def _note_it_knows_none(self, site: CallSite) -> None:
        recorder = scope().recorder
        if recorder is None:
            self._has_none = True
        else:
            self._has_none_in.setdefault(recorder, set()).add(site.agent)

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Return the declarations of these tools, as far as the adapter was given them."""
        known = {tool.name: tool for tool in self.tools}
        return [known[name] for name in names if name in known]

    async def _native(
        self,
        messages: Sequence[LLMMessage],
        wire: _Wire,
        options: Mapping[str, Any] | None,
        site: CallSite,
    ) -> LLMResponse:
        texts = _Texts(messages, wire)

        def complaint(reply: ChatReply) -> str | None:
            if reply.tool_calls:
                return None
            return texts.complaint(reply.text) if reply.text.strip() else "the reply is empty"

        reply, _ = await self.client.converse(
            [_message(message) for message in messages],
            tools=wire,
            options=options,
            check=complaint,
            site=site,
        )
        if reply.tool_calls:
            calls = [FunctionCall(call.name, call.arguments) for call in reply.tool_calls]
            return _response(reply, reply.text, calls)
        return texts.response(reply, _answer_in(reply))

    async def _by_schema(
        self,
        messages: Sequence[LLMMessage],
        wire: _Wire,
        options: Mapping[str, Any] | None,
        site: CallSite,
    ) -> LLMResponse:
        told = describe_tools([_message(message) for message in messages], wire)
        if self._schema is None or self._schema[0] is not wire:
            self._schema = wire, tool_schema(wire)
        texts = _Texts(messages, wire)

        def complaint(reply: ChatReply) -> str | None:
            choice = read_choice(reply.text)
            return texts.complaint(choice) if isinstance(choice, str) else _if_no_choice(reply)

        reply, _ = await self.client.converse(
            [Message("user" if role == "tool" else role, text) for role, text in map(_words, told)],
            schema=self._schema[1],
            options=options,
            check=complaint,
            site=site,
        )
        choice = read_choice(reply.text)
        if isinstance(choice, FunctionCall):
            return _response(reply, "", [choice])
        return texts.response(reply, choice or _answer_in(reply))

    def _wire(self, tools: Sequence[ToolDeclaration]) -> _Wire:
        """Return declarations as requests have them; the same objects for the same tools.

        A tape knows by these objects that requests share them.
        """
        wanted = tuple(tools or ())
        if self._wired[0] != wanted:
            self._wired = wanted, tuple(map(_declaration, wanted))
        return self._wired[1]

    def __repr__(self) -> str:
        return f"OllamaAdapter({self.client!r})"


class _Texts:
    """What answers in words stand for, given what the model was shown."""

    def __init__(self, messages: Sequence[LLMMessage], wire: _Wire) -> None:
        self._names = [tool["function"]["name"] for tool in wire]
        self._shown = [message.content for message in messages if message.role in _STRANGERS]

    def _calls(self, text: str) -> list[FunctionCall]:
        if not self._names:
            return []
        if calls := calls_in_text(text):
            return [] if was_shown(text, self._shown) else calls
        return embedded_calls(text, self._names, self._shown)

    def complaint(self, text: str) -> str | None:
        """Return what is wrong with a text that is a call and yet none, or None."""
        if not self._names or self._calls(text):
            return None
        if calls_in_text(text):
            return "it repeats a tool call that it was shown; call the tool, or answer in words"
        if is_code(text, self._names):
            return "it only names a tool; call the tool, or answer in words"
        if not without_calls(text, self._names):
            return "it holds a tool call that cannot be read; call the tool, or answer in words"
        return None

    def response(self, reply: ChatReply, text: str) -> LLMResponse:
        if calls := self._calls(text):
            return _response(reply, "", calls)
        return _response(reply, without_calls(text, self._names) if self._names else text, [])


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
    calls = tuple(ToolCall(name=c.name, arguments=_object(c)) for c in message.function_calls)
    return Message(message.role, message.content, calls, message.tool_name)


def _object(call: FunctionCall) -> Mapping[str, Any]:
    """Return a call's arguments as the protocol wants them, also where they were none."""
    if isinstance(call.arguments, Mapping):
        return call.arguments
    try:
        value = json.loads(call.arguments)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": call.arguments}


def _words(message: Message) -> tuple[Role, str]:
    role, text = tools_as_text(message)
    return cast("Role", role), text


def _answer_in(reply: ChatReply) -> str:
    """Return a reply's text, out of the JSON that the token limit may have cut it in."""
    cut = cut_answer(reply.text) if reply.done_reason == "length" else None
    return cut or reply.text


def _if_no_choice(reply: ChatReply) -> str | None:
    cut = reply.done_reason == "length" and cut_answer(reply.text) is not None
    if read_choice(reply.text) is None and not cut:
        return "it is neither a tool with its arguments nor an answer with a text"
    return None


def _response(reply: ChatReply, text: str, calls: Sequence[FunctionCall]) -> LLMResponse:
    counts = {"prompt_tokens": reply.prompt_tokens, "reply_tokens": reply.reply_tokens}
    return LLMResponse(
        content=text or None,
        function_calls=tuple(calls),
        finish_reason=reply.done_reason,
        usage={name: count for name, count in counts.items() if count is not None},
    )
