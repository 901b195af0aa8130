"""Tools in a run: results go on its tape, and agents look things up before they decide.

What a tool returns comes from outside, as a model's reply does: so it is recorded, and a replay
runs no tool.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary, proxy

from pydantic import ValidationError

from llmsim_lab._spans import Span
from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.text import clip, faults
from llmsim_lab.agents import NationAgent
from llmsim_lab.agents._agents import NationProfile
from llmsim_lab.assistant._adapter import OllamaAdapter
from llmsim_lab.assistant._toolbox import (
    BadCall,
    KnownTools,
    Toolbox,
    beyond_limit_text,
    by_name,
    deletes_by_name,
    failed_result,
    json_ready,
    make_ready,
    result_text,
    run_tool,
    value_of,
)
from llmsim_lab.assistant._types import (
    DeclaresTools,
    FunctionCall,
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

_STOPPED = {
    "success": False,
    "error": "it was stopped before it answered, so it may have been done or not; look before "
    "you ask for it again",
    "error_code": "STOPPED",
}
_SHARE = 0.8
_FINDINGS = "What you looked up:"
_MAX_RESULT_CHARS = 1500
_MAX_ARGUMENT_CHARS = 300
_MAX_FINDINGS_CHARS = 6_000


class RecordedTools:
    """Runs another executor's tools; within a recorded run, what they answer is on its tape.

    A replay takes it from there and runs nothing, and so does a resumed run for what its broken
    turn had done. A call that deletes is never made twice: stopped halfway, it counts as done.
    Outside a run, calls are only passed on. Which tools there are is asked, and recorded, each time
    that they are made ready.

    Args:
        executor: runs the tools; not asked for anything in a replay. None where there is none any
            more, as in a recorded run.
        timeout_s: longest wait for one tool, seconds; below that of whoever waits for this, since
            a call that is cancelled from outside leaves nothing on the tape.
    """

    def __init__(self, executor: ToolExecutor | None, *, timeout_s: float = 25.0) -> None:
        self.executor = executor
        self.timeout_s = timeout_s
        self._names: list[str] = []
        self._declared: list[ToolDeclaration] = []

    async def ready(self) -> None:
        """Ask the executor which tools there are, after its start if it needs one."""

        async def listed() -> Any:
            executor = self._there()
            await make_ready(executor)
            names = list(await value_of(executor.get_available_tools()))
            known: Mapping[str, ToolDeclaration] = {}
            if isinstance(executor, DeclaresTools):
                known = by_name(await value_of(executor.get_tool_declarations(names)))
            declared = [
                [it.name, it.description, {**it.parameters}, it.destructive]
                for it in known.values()
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

    async def execute(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        """Run a tool, or take its result from the tape.

        Raises:
            TapeMiss: a replay has no such call.
            TapeError: it is to be run, and there is no executor.
        """

        async def run() -> dict[str, Any]:
            result = await run_tool(
                self._there(), tool_name, parameters, user_id, timeout_s=self.timeout_s
            )
            known = recordable(result).model_dump()
            return {name: value for name, value in known.items() if value is not None}

        try:
            asked = json.dumps(json_ready(parameters), ensure_ascii=False)
        except ValueError as error:
            return failed_result(f"the arguments: {error}", "INVALID_PARAMETERS")
        destructive = any(it.destructive for it in self.get_tool_declarations([tool_name]))
        found = await from_outside(
            "tool",
            f"{tool_name}({asked}) for {user_id}",
            run,
            once=destructive or deletes_by_name(tool_name),
            otherwise=_STOPPED,
        )
        try:
            return ToolResult.model_validate(found)
        except ValidationError as error:
            raise TapeError(
                f"what the tape has of {tool_name} is not a tool's result: {faults(error)}"
            ) from error

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


def recorded(executor: ToolExecutor | None, patience_s: float) -> RecordedTools:
    """Return an executor whose tools are recorded where a run is; such a one as it is.

    Args:
        executor: runs the tools.
        patience_s: how long a tool is waited for. It times out before, since the tape would lack
            its result then.

    Raises:
        ConfigError: it runs no tools.
    """
    if isinstance(executor, RecordedTools):
        return executor
    if executor is not None and not hasattr(executor, "get_available_tools"):
        raise ConfigError(
            f"tools={executor!r:.80} runs no tools; functions go into tools=FunctionTools(function)"
        )
    return RecordedTools(executor, timeout_s=_SHARE * patience_s)


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
        max_calls: most tool calls of one answer that are made; the model is told of the rest.
        confirm: by tool, whether a call needs somebody's yes, as in ``AgentEngineConfig``.

    Raises:
        ConfigError: ``max_lookups`` or ``max_calls`` is below 1.
    """

    def __init__(
        self,
        tools: ToolExecutor,
        *,
        max_lookups: int = 2,
        max_calls: int = 10,
        confirm: Mapping[str, bool] | None = None,
    ) -> None:
        whole_number("max_lookups", max_lookups, least=1)
        self.max_calls = whole_number("max_calls", max_calls, least=1)
        self.tools = tools if isinstance(tools, RecordedTools) else RecordedTools(tools)
        self.max_lookups = max_lookups
        self._known = KnownTools(confirm)
        # Kept by client, since an adapter learns whether its model has tool calls.
        self._adapters: WeakKeyDictionary[LLMClient, OllamaAdapter] = WeakKeyDictionary()

    async def look_up(self, prompt: str, client: LLMClient, site: CallSite) -> str:
        """Return the prompt with what the model found at its end, one line for each call.

        Args:
            prompt: a text, or a ``RenderedPrompt``, which it stays.
            client: the model.
            site: who asks, and when; tools act for its ``agent``.

        Raises:
            LLMFailureException: the model could not be asked.
            LLMError: the tools are set up wrong.
            Exception: whatever else the tools' executor raises when it starts.
        """
        adapter = self._adapters.get(client)
        if adapter is None:
            # By a weak reference, or what is kept for the client would keep the client itself.
            adapter = self._adapters[client] = OllamaAdapter(proxy(client))
        with scoped(asker=site.agent):  # agents of one run may have different tools
            toolbox = await self._known.now(self.tools, adapter)
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
            for place, call in enumerate(calls, 1):
                if place > self.max_calls:
                    text = beyond_limit_text(self.max_calls)
                else:
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
        checked = toolbox.check(call)
        if isinstance(checked, BadCall):
            return f"error {checked.code}: {checked.complaint}"
        if toolbox.needs_yes(checked.name):
            return "error REFUSED: nobody is there to confirm it"
        result = await self.tools.execute(checked.name, checked.parameters, user)
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
    if isinstance(call.arguments, str):
        return f"{call.name} {clip(call.arguments, _MAX_ARGUMENT_CHARS)}"
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
