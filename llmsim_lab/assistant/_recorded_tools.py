"""Tools in a run: results go on its tape, and agents look things up before they decide.

What a tool returns comes from outside, as a model's reply does: so it is recorded, and a replay
runs no tool.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from llmsim_lab._spans import Span
from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.text import clip, log_event
from llmsim_lab.agents import NationAgent
from llmsim_lab.agents._agents import NationProfile
from llmsim_lab.assistant._adapter import OllamaAdapter
from llmsim_lab.assistant._toolbox import (
    Toolbox,
    deletes_by_name,
    failed_result,
    json_ready,
    json_text,
    result_text,
    value_of,
)
from llmsim_lab.assistant._types import (
    DeclaresTools,
    FunctionCall,
    LLMAdapter,
    LLMMessage,
    ToolDeclaration,
    ToolExecutor,
    ToolResult,
)
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._scope import scope, scoped
from llmsim_lab.models import PolicyDecision
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import RenderedPrompt
from llmsim_lab.run import Question
from llmsim_lab.run._ask import from_outside
from llmsim_lab.types import CallSite

logger = logging.getLogger(__name__)

_STOPPED = {
    "success": False,
    "error": "it was stopped before it answered, so it may have been done or not; look before "
    "you ask for it again",
    "error_code": "STOPPED",
}
_TIMEOUT_S = 25.0
_FINDINGS = "What you looked up:"
_MAX_RESULT_CHARS = 1500
_MAX_ARGUMENT_CHARS = 300
_MAX_FINDINGS_CHARS = 6_000


class RecordedTools:
    """Runs another executor's tools; within a recorded run, what they answer is on its tape.

    A replay takes it from there and runs nothing, and so does a resumed run for what its broken
    turn had done. A call that deletes is never made twice: stopped halfway, it counts as done.
    Outside a run, calls are only passed on. Which tools there are is asked, and recorded, each time
    that they are made ready. A tool's faults are results.

    Args:
        executor: runs the tools; not asked for anything in a replay. None where there is none any
            more, as in a recorded run.
        timeout_s: longest wait for one tool, seconds.
    """

    def __init__(self, executor: ToolExecutor | None, *, timeout_s: float = _TIMEOUT_S) -> None:
        self.executor = executor
        self.timeout_s = timeout_s
        self._names: list[str] = []
        self._declared: list[ToolDeclaration] = []

    async def ready(self) -> None:
        """Ask the executor which tools there are, after its start if it needs one."""

        async def listed() -> Any:
            executor = self._there()
            if callable(ready := getattr(executor, "ready", None)):
                await value_of(ready())
            # Once each: some model servers refuse a request that declares a name twice.
            names = list(dict.fromkeys(await value_of(executor.get_available_tools())))
            known = {}
            if isinstance(executor, DeclaresTools):
                known = await declared_by(executor, names)
            declared = [
                [tool.name, tool.description, {**tool.parameters}, tool.destructive]
                for tool in known.values()
            ]
            return {"names": names, "declared": declared}

        # Agents of one run may have different tools.
        found = await from_outside("tools", scope().asker or "", listed)
        self._names = found["names"]
        self._declared = [ToolDeclaration(*fields) for fields in found["declared"]]

    def get_available_tools(self) -> list[str]:
        """Return the names of the tools that there were when it was made ready."""
        return list(self._names)

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Return the declarations of these tools, as far as the executor knows them."""
        return [tool for tool in self._declared if tool.name in names]

    async def toolbox(self, adapter: LLMAdapter, confirm: Mapping[str, bool] | None) -> Toolbox:
        """Return the tools that exist now, as the adapter words them, else as the executor does.

        A tool that neither declares is declared by its name alone, with any arguments: an executor
        that lists a tool wants it used.
        """
        await self.ready()
        own = {tool.name: tool for tool in self._declared}
        worded = await declared_by(adapter, self._names)
        declared = []
        for name in self._names:
            tool = worded.get(name) or own.get(name) or ToolDeclaration(name)
            # Whatever a tool is called in words: the executor knows what it destroys.
            destroys = name in own and own[name].destructive
            declared.append(replace(tool, destructive=True) if destroys else tool)
        return Toolbox(declared, confirm)

    async def execute(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        """Run a tool, or take its result from the tape.

        Raises:
            TapeMiss: a replay has no such call.
            TapeError: it is to be run, and there is no executor.
        """

        async def run() -> dict[str, Any]:
            result = await self._run(tool_name, parameters, user_id)
            known = recordable(result).model_dump()
            return {name: value for name, value in known.items() if value is not None}

        destructive = any(it.destructive for it in self.get_tool_declarations([tool_name]))
        found = await from_outside(
            "tool",
            f"{tool_name}({json_text(parameters)}) for {user_id}",
            run,
            once=destructive or deletes_by_name(tool_name),
            otherwise=_STOPPED,
        )
        return ToolResult.model_validate(found)

    async def _run(self, name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        executor = self._there()
        try:
            async with asyncio.timeout(self.timeout_s):
                result = await value_of(executor.execute(name, parameters, user_id))
        except TapeError:
            raise
        except TimeoutError:
            what, code = f"it gave no answer within {self.timeout_s:g} s", "TIMEOUT"
        except Exception as error:
            # The traceback is for the program's log; the model reads the type alone, since the
            # text may hold internals.
            logger.warning("tool_failure", exc_info=error)
            what, code = f"it failed: {type(error).__name__}", "TOOL_ERROR"
        else:
            if isinstance(result, ToolResult):
                return result
            what, code = f"it returned {type(result).__name__}", "INVALID_RESULT"
        log_event(logger, logging.WARNING, "tool_failure", tool=name, code=code, detail=what)
        return failed_result(what, code)

    def _there(self) -> ToolExecutor:
        if self.executor is None:
            raise TapeError(
                "what comes after the tape is live, and no tape can hold tools: give them, "
                "fork(tape, ..., tools=...) or resume(tape, ..., tools=...); tools=FunctionTools() "
                "has none"
            )
        return self.executor

    def __repr__(self) -> str:
        return f"RecordedTools({self.executor!r})"


async def declared_by(
    source: LLMAdapter | DeclaresTools, names: Sequence[str]
) -> dict[str, ToolDeclaration]:
    """Return the declarations that an adapter or executor has, by their tools' names."""
    tools = await value_of(source.get_tool_declarations(list(names)))
    return {tool.name: tool for tool in tools or ()}


def recorded(executor: ToolExecutor | None, timeout_s: float) -> RecordedTools:
    """Return an executor whose tools are recorded where a run is; such a one as it is.

    Raises:
        ConfigError: it runs no tools.
    """
    if isinstance(executor, RecordedTools):
        return executor
    if executor is not None and not hasattr(executor, "get_available_tools"):
        raise ConfigError(
            f"tools={executor!r:.80} runs no tools; functions go into tools=FunctionTools(function)"
        )
    return RecordedTools(executor, timeout_s=timeout_s)


def recordable(result: ToolResult) -> ToolResult:
    """Return a result as a tape gives it back; a failure where no JSON can hold it."""
    try:
        return ToolResult.model_validate(json_ready(result.model_dump()))
    except ValueError as error:
        # The tool has run, so its call must still get onto the tape: a replay would lack it.
        return failed_result(f"its result is not ready for JSON: {error}", "INVALID_RESULT")


# --- looking things up before a decision ----------------------------------------------------------


class ToolLookup:
    """Lets a model look things up before it decides; what it found is added to its prompt.

    Looking up is a conversation of its own, of at most ``max_lookups`` model calls. The decision is
    then made as without tools, with the findings at the end of the prompt. Every tool's result is
    on the run's tape, and a replay runs no tool. Calls of tools that need somebody's yes fail; so
    do those of an MCP server that does not say what its tools do, unless ``confirm`` says
    otherwise. The calls and tokens of looking up are on the tape; a run's frame counts those of
    the decisions.

    In any world it makes a player: ``players={"Ann": ToolLookup(tools).player(client)}``. There is
    also ``Reasoner(..., lookup=ToolLookup(tools))``, and the economic ``ToolUsingNationAgent``.
    Several players may share one.

    Args:
        tools: runs the tools; they act for the agent that asks.
        max_lookups: most model calls for looking up, before each decision.
        confirm: by tool, whether a call needs somebody's yes, as in ``AgentEngineConfig``.

    Raises:
        ConfigError: ``max_lookups`` is below 1.
    """

    def __init__(
        self,
        tools: ToolExecutor,
        *,
        max_lookups: int = 2,
        confirm: Mapping[str, bool] | None = None,
    ) -> None:
        self.max_lookups = whole_number("max_lookups", max_lookups, least=1)
        self.tools = recorded(tools, _TIMEOUT_S)
        self._confirm = confirm

    async def look_up(self, prompt: str, client: LLMClient, site: CallSite) -> str:
        """Return the prompt with what the model found at its end, one line for each call.

        Args:
            prompt: a text, or a ``RenderedPrompt``, which it stays.
            client: the model.
            site: who asks, and when; tools act for its ``agent``.

        Raises:
            LLMFailureException: the model could not be asked.
            ConfigError: the tools are set up wrong.
            Exception: whatever else the tools' executor raises when it starts.
        """
        adapter = OllamaAdapter(client)
        with scoped(asker=site.agent):  # agents of one run may have different tools
            toolbox = await self.tools.toolbox(adapter, self._confirm)
        if not toolbox.declarations:
            return prompt
        messages = _opening(prompt)
        findings: list[str] = []
        for _ in range(self.max_lookups):
            response = await adapter.ask(messages, toolbox.declarations, site=site)
            calls = tuple(response.function_calls or ())
            if not calls:
                break
            messages.append(LLMMessage("assistant", response.content or "", calls))
            for call in calls:
                text = await self._run(call, toolbox, site.agent or "somebody")
                findings.append(f"- {_call_text(call)}: {text}")
                messages.append(LLMMessage("tool", text, tool_name=call.name))
        return _with_findings(prompt, findings) if findings else prompt

    def player(self, client: LLMClient) -> Callable[[Question], Awaitable[Any]]:
        """Return a player that looks things up, then answers with what was found.

        Args:
            client: the model that looks up and answers.
        """

        async def answer(question: Question) -> Any:
            prompt = await self.look_up(question.prompt, client, question.site)
            return await question.put_to(client, prompt)

        return answer

    async def _run(self, call: FunctionCall, toolbox: Toolbox, user: str) -> str:
        result = toolbox.check(call)
        if not isinstance(result, ToolResult):
            if toolbox.needs_yes(call.name):
                result = failed_result("no user can confirm it", "REFUSED")
            else:
                result = await self.tools.execute(call.name, result, user)
        return result_text(result, max_chars=_MAX_RESULT_CHARS)

    def __repr__(self) -> str:
        return f"ToolLookup({self.tools.executor!r}, max_lookups={self.max_lookups})"


def _opening(prompt: str) -> list[LLMMessage]:
    ask = Prompt.load("tool_lookup")
    if isinstance(prompt, RenderedPrompt) and prompt.system:
        user = ask.render(situation=prompt.user).user
        return [LLMMessage("system", prompt.system), LLMMessage("user", user)]
    return [LLMMessage("user", ask.render(situation=str(prompt)).user)]


def _call_text(call: FunctionCall) -> str:
    arguments = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items())
    return f"{call.name}({clip(arguments, _MAX_ARGUMENT_CHARS)})"


def _with_findings(prompt: str, findings: Sequence[str]) -> str:
    """Return the prompt with as many findings at its end as there is room for."""
    kept, room = [], _MAX_FINDINGS_CHARS
    for line in findings:
        if len(line) <= room:
            kept.append(line)
            room -= len(line)
    if left_out := len(findings) - len(kept):
        kept.append(f"- ({left_out} more results did not fit in here)")
    found = "\n".join(kept)
    if not isinstance(prompt, RenderedPrompt):
        return f"{prompt}\n\n{_FINDINGS}\n{found}"
    # It stays a prompt that a viewer can take apart: its template gets a slot for the findings.
    user = f"{prompt.user}\n\n{_FINDINGS}\n{found}"
    own = Span("findings", "user", len(user) - len(found), len(user), "the tools' answers")
    return RenderedPrompt(
        system=prompt.system,
        user=user,
        template=_extended(prompt.template),
        spans=None if prompt.layouts is None else (*prompt.spans, own),
    )


@lru_cache(maxsize=64)  # a template is parsed once, not for each look-up
def _extended(template: Prompt) -> Prompt:
    return template.edit(f"{template.text.rstrip()}\n\n{_FINDINGS}\n{{{{ findings }}}}\n")


class ToolUsingNationAgent(NationAgent):
    """A nation's advisor with tools: first it looks things up, then it decides with what it found.

    ``ToolLookup`` says how; agents of the other simulations take one.

    Args:
        name: the nation's name, unique in a run; tools act for this user.
        llm_client: the model.
        tools: runs the tools.
        max_lookups: most model calls for looking up, each turn.
        profile: the nation's particulars.
        prompt: a prompt with the slots of the shipped ``agent_policy``; that one if not given.

    Attributes:
        lookup: looks things up.

    Raises:
        ConfigError: ``max_lookups`` is not a whole number from 1 on.

    Example:
        >>> agent = ToolUsingNationAgent("Aland", client, tools=FunctionTools(latest_inflation))
    """

    def __init__(
        self,
        name: str,
        llm_client: LLMClient,
        *,
        tools: ToolExecutor,
        max_lookups: int = 2,
        profile: NationProfile | None = None,
        prompt: Prompt | None = None,
    ) -> None:
        super().__init__(name, llm_client, profile=profile, prompt=prompt)
        self.lookup = ToolLookup(tools, max_lookups=max_lookups)

    async def _ask(self, prompt: str, site: CallSite) -> PolicyDecision:
        extended = await self.lookup.look_up(prompt, self.llm_client, site)
        return await super()._ask(extended, site)
