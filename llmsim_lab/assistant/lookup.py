"""Looking things up with tools before a decision, for any component that asks a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from weakref import WeakKeyDictionary

from llmsim_lab.assistant.adapter import OllamaAdapter
from llmsim_lab.assistant.guard import result_text, told_of_too_many
from llmsim_lab.assistant.protocols import FunctionCall, LLMMessage, ToolExecutor
from llmsim_lab.assistant.recorded_tools import RecordedTools, asked_by
from llmsim_lab.assistant.toolbox import BadCall, KnownTools, Toolbox
from llmsim_lab.calls import CallSite
from llmsim_lab.checks import whole_number
from llmsim_lab.llm import LLMClient
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.spans import Span
from llmsim_lab.text import clip

__all__ = ["ToolLookup"]

_FINDINGS = "What you looked up:"
_MAX_RESULT_CHARS = 1500
_MAX_ARGUMENT_CHARS = 300
_MAX_FINDINGS_CHARS = 6_000
_NOBODY = "somebody"


class ToolLookup:
    """Lets a model look things up before it decides; what it found is added to its prompt.

    Looking up is a conversation of its own, at most so many calls of the model. The decision is
    then made as without tools, with the findings at the end of the prompt. Every tool's result is
    on the run's tape, and a replay runs none. Tools that need somebody's yes are refused; those
    of an MCP server that does not say what its tools do are among them, unless ``confirm`` says
    otherwise. Calls and tokens of looking up stand on the tape; a run's frame counts those of the
    decisions.

    Agents of any simulation take one: ``LLMCrisisAgent(..., lookup=ToolLookup(tools))``,
    ``Reasoner(..., lookup=ToolLookup(tools))``; of the economic one there is
    ``ToolUsingNationAgent``. Several agents may share one.

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
            Exception: whatever else the tools' executor raises that cannot be started.
        """
        adapter = self._adapters.get(client)
        if adapter is None:
            adapter = self._adapters[client] = OllamaAdapter(client)
        with asked_by(site.agent):
            toolbox = await self._known.now(self.tools, adapter)
        if not toolbox.declarations:
            return prompt
        messages = _opening(prompt)
        findings = _Findings()
        for _ in range(self.max_lookups):
            response = await adapter.ask(messages, toolbox.declarations, site=site)
            calls = tuple(response.function_calls or ())
            if not calls:
                break
            messages.append(LLMMessage("assistant", response.content or "", calls))
            for place, call in enumerate(calls, 1):
                if place > self.max_calls:
                    told = told_of_too_many(self.max_calls)
                else:
                    told = await self._run(call, toolbox, site.agent or _NOBODY)
                    findings.add(f"- {_shown(call)}: {told}")
                messages.append(LLMMessage("tool", told, tool_name=call.name))
        return _with_findings(prompt, findings.lines())

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


class _Findings:
    """What was found, one line for each call, as far as there is room in a prompt."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._room = _MAX_FINDINGS_CHARS
        self._left_out = 0

    def add(self, line: str) -> None:
        """Keep a line; where it does not fit any more, count it."""
        if len(line) > self._room:
            self._left_out += 1
        else:
            self._room -= len(line)
            self._kept.append(line)

    def lines(self) -> list[str]:
        """Return what was kept, and how much was not."""
        more = f"- ({self._left_out} more results did not fit in here)"
        return [*self._kept, more] if self._left_out else self._kept


def _opening(prompt: str) -> list[LLMMessage]:
    ask = Prompt.load("tool_lookup")
    if isinstance(prompt, RenderedPrompt) and prompt.system:
        user = ask.render(situation=prompt.user).user
        return [LLMMessage("system", prompt.system), LLMMessage("user", user)]
    return [LLMMessage("user", ask.render(situation=str(prompt)).user)]


def _shown(call: FunctionCall) -> str:
    if isinstance(call.arguments, str):
        return f"{call.name} {clip(call.arguments, _MAX_ARGUMENT_CHARS)}"
    arguments = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items())
    return f"{call.name}({clip(arguments, _MAX_ARGUMENT_CHARS)})"


def _with_findings(prompt: str, findings: list[str]) -> str:
    """Return the prompt with what was found at its end; as it is if nothing was."""
    if not findings:
        return prompt
    found = "\n".join(findings)
    told = f"{_FINDINGS}\n{found}"
    if not isinstance(prompt, RenderedPrompt):
        return f"{prompt}\n\n{told}"
    user, known = f"{prompt.user}\n\n{told}", prompt.provenance
    own = Span("findings", "user", len(user) - len(found), len(user), "the tools' answers")
    spans = (*known.spans, own)
    return RenderedPrompt(
        system=prompt.system,
        user=user,
        template=_extended(prompt.template),
        provenance=replace(known, spans=spans) if known.how == "rendered" else known,
    )


@lru_cache(maxsize=64)
def _extended(template: Prompt) -> Prompt:
    return template.edit(f"{template.text.rstrip()}\n\n{_FINDINGS}\n{{{{ findings }}}}\n")
