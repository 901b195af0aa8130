"""Tools in a run: results go on its tape, and agents look things up before they decide.

What a tool returns is an input from outside, as a model's reply is: so it is recorded like one, and
a replay runs no tool.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary, proxy

from llmsim_lab._spans import Span
from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.text import clip
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
    make_ready,
    result_text,
    run_tool,
)
from llmsim_lab.assistant._types import (
    DeclaresTools,
    FunctionCall,
    LLMMessage,
    ToolDeclaration,
    ToolExecutor,
    ToolResult,
)
from llmsim_lab.errors import TapeError
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._scope import Recorder, scope, scoped
from llmsim_lab.models import PolicyDecision, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import RenderedPrompt
from llmsim_lab.run import Question
from llmsim_lab.types import Attempt, CallSite, ChatReply, ChatRequest, Message

_COMPONENT = "tool"
_LIST = "(which tools are there)"
_STOPPED = {
    "success": False,
    "error": "it was stopped before it answered, so it may have been done or not; look before "
    "you ask for it again",
    "error_code": "STOPPED",
}
_FINDINGS = "What you looked up:"
_MAX_RESULT_CHARS = 1500
_MAX_ARGUMENT_CHARS = 300
_MAX_FINDINGS_CHARS = 6_000


@dataclass(frozen=True, slots=True)
class _Listing:
    """Which tools exist, and since which turn."""

    turn: int | None
    tools: dict[str, Any]


class RecordedTools:
    """Runs another executor's tools; within a recorded run, their results are on the tape.

    A live run records a tool's result as a call of the component ``tool``. A replay answers from
    there and runs nothing, and so does a resumed run for what its broken turn had done. Outside a
    run, calls are only passed on. The list of tools is recorded once for each agent that asks, and
    again if a run was resumed.

    Args:
        executor: runs the tools; not asked for anything in a replay.
        timeout_s: longest wait for one tool, seconds; below that of whoever waits for this, since
            a call that is cancelled from outside leaves nothing on the tape.
    """

    def __init__(self, executor: ToolExecutor, *, timeout_s: float = 25.0) -> None:
        self.executor = executor
        self.timeout_s = timeout_s
        # Weak, since these tools may outlive many runs.
        self._listed: WeakKeyDictionary[Recorder, dict[str | None, _Listing]] = WeakKeyDictionary()

    async def ready(self) -> None:
        """Start the executor if its tools are not known yet; never in a replay."""
        recorder = scope().recorder
        known = hasattr(recorder, "knows") or (  # which a replay's has
            recorder is not None and scope().asker in self._listed.get(recorder, ())
        )
        if not known:
            await make_ready(self.executor)

    def get_available_tools(self) -> list[str]:
        """Return the tools' names; within a run, those it started with."""
        return list(self._listing()["names"])

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Return the declarations of these tools, as far as the executor knows them."""
        # Four, whatever a later version may write besides.
        declared = [ToolDeclaration(*fields[:4]) for fields in self._listing()["declared"]]
        return [tool for tool in declared if tool.name in names]

    async def execute(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        """Run a tool, or take its result from the tape.

        Raises:
            TapeMiss: a replay has no such call.
        """

        async def run() -> ToolResult:
            return await run_tool(
                self.executor, tool_name, parameters, user_id, timeout_s=self.timeout_s
            )

        async def run_as_json() -> str:
            result = await run()
            # The tool has run, so an unreadable result must still get onto the tape, as a failure:
            # a replay would otherwise lack the call.
            try:
                return _dumps(result.model_dump())
            except ValueError as error:
                what = f"its result is not ready for JSON: {error}"
                return _dumps(failed_result(what, "INVALID_RESULT").model_dump())

        recorder = scope().recorder
        if recorder is None:
            return await run()
        try:
            asked = f"{tool_name}({_dumps(parameters)})"
        except ValueError as error:
            return failed_result(f"the arguments: {error}", "INVALID_PARAMETERS")

        # A function, since it is only needed if the call is cancelled. Then the executor may have
        # been closed, or its server be silent: it is asked only if the run has no list of it.
        def deletes() -> bool:
            known = [listing.tools for listing in self._listed.get(recorder, {}).values()]
            return deletes_by_name(tool_name) or any(
                tool[0] == tool_name and tool[3]
                for tools in known or [self._ask_executor()]
                for tool in tools["declared"]
            )

        return ToolResult.model_validate(
            await _through(recorder, asked, user_id, run_as_json, once=deletes)
        )

    def _listing(self) -> dict[str, Any]:
        recorder = scope().recorder
        if recorder is None:
            return self._ask_executor()
        asker = scope().asker
        listings = self._listed.setdefault(recorder, {})
        request = recorder.place(_request(_LIST, asker))
        latest = listings.get(asker)
        # A run that was resumed lists its tools again, and so does its replay, in that turn.
        if latest is None or (
            latest.turn != _turn_of(request)
            and (knows := getattr(recorder, "knows", None)) is not None
            and knows(request)
        ):
            known = recorder.find(request)
            if known is None:
                reply = ChatReply(text=_dumps(self._ask_executor()))
                known = recorder.keep(Attempt(request=request, reply=reply, seconds=0.0))
            latest = listings[asker] = _Listing(_turn_of(request), _reply_of(known))
        return latest.tools

    def _ask_executor(self) -> dict[str, Any]:
        names = list(self.executor.get_available_tools())
        known: dict[str, ToolDeclaration] = {}
        if isinstance(self.executor, DeclaresTools):
            known = by_name(self.executor.get_tool_declarations(names))
        declared = [
            [tool.name, tool.description, dict(tool.parameters), tool.destructive]
            for tool in known.values()
        ]
        return {"names": names, "declared": declared}

    def __repr__(self) -> str:
        return f"RecordedTools({self.executor!r})"


def _turn_of(request: ChatRequest) -> int | None:
    return request.site.turn if request.site is not None else None


async def _through(
    recorder: Recorder,
    asked: str,
    user_id: str,
    run: Callable[[], Awaitable[str]],
    *,
    once: Callable[[], bool],
) -> dict[str, Any]:
    """Answer from the tape, or run and record the result.

    Args:
        recorder: the run's.
        asked: the call, as the tape has it.
        user_id: who the tool acts for.
        run: runs the tool and returns its result as JSON.
        once: returns True if the call must not be made twice. If such a call is cancelled halfway,
            nobody knows how far it came: that is recorded, and a resumed run does not repeat it.
    """
    request = recorder.place(_request(asked, user_id))
    known, watch = recorder.find(request), scope().watch
    if known is not None:
        if watch is not None:
            watch.ended(request, known, taped=True)
        return _reply_of(known)
    if watch is not None:
        watch.began(request)
    attempt, began = None, time.perf_counter()

    def attempt_of(text: str) -> Attempt:
        seconds = time.perf_counter() - began
        return Attempt(request=request, reply=ChatReply(text=text), seconds=seconds)

    try:
        attempt = attempt_of(await run())
    except asyncio.CancelledError:
        if once():
            recorder.keep(attempt_of(_dumps(_STOPPED)))
        raise
    finally:
        if watch is not None:
            watch.ended(request, attempt, taped=False)
    # Read back even if it was just made, so that a live run sees what its replay will see.
    return _reply_of(recorder.keep(attempt))


def _request(asked: str, user_id: str | None) -> ChatRequest:
    return ChatRequest(
        model=_COMPONENT,
        messages=(Message("user", asked),),
        site=CallSite(component=_COMPONENT, agent=user_id),
    )


def _reply_of(attempt: Attempt) -> dict[str, Any]:
    try:
        value = json.loads(attempt.reply.text if attempt.reply else "")
        if not isinstance(value, dict):
            raise TypeError("it is not an object")
    except (ValueError, TypeError, RecursionError) as error:
        raise TapeError(
            f"call {attempt.number} on the tape is not a tool's result: {error}"
        ) from error
    return value


def _dumps(value: Any) -> str:
    """Return a value as JSON.

    Raises:
        ValueError: it has odd keys, contains itself, or is nested too deeply.
    """
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"no JSON can be made of it: {error}") from error


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

    async def _ask(self, prompt: str, state: SimulationState, site: CallSite) -> PolicyDecision:
        extended = await self.lookup.look_up(prompt, self.llm_client, site)
        return await super()._ask(extended, state, site)
