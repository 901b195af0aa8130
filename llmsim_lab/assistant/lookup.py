"""Looking things up with tools before a decision, for any component that asks a model."""

from __future__ import annotations

from functools import lru_cache
from weakref import WeakKeyDictionary

from llmsim_lab.assistant.adapter import OllamaAdapter
from llmsim_lab.assistant.guard import result_text
from llmsim_lab.assistant.protocols import FunctionCall, LLMMessage, ToolExecutor
from llmsim_lab.assistant.recorded_tools import RecordedTools
from llmsim_lab.assistant.toolbox import BadCall, KnownTools, Toolbox
from llmsim_lab.calls import CallSite
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.text import clip

__all__ = ["ToolLookup"]

_FINDINGS = "What you looked up:"
_MAX_RESULT_CHARS = 1500
_MAX_ARGUMENT_CHARS = 300
_NOBODY = "somebody"


class ToolLookup:
    """Lets a model look things up before it decides; what it found is added to its prompt.

    Looking up is a conversation of its own, at most so many calls of the model. The decision is
    then made as without tools, with the findings at the end of the prompt. Every tool's result is
    on the run's tape, and a replay runs none. Tools that need somebody's yes are refused. Calls and
    tokens of looking up stand on the tape; a run's frame counts those of the decisions.

    Agents of any simulation take one: ``LLMCrisisAgent(..., lookup=ToolLookup(tools))``,
    ``Reasoner(..., lookup=ToolLookup(tools))``; of the economic one there is
    ``ToolUsingNationAgent``. Several agents may share one.

    Args:
        tools: runs the tools; they act for the agent that asks.
        max_lookups: most model calls for looking up, before each decision.

    Raises:
        ConfigError: ``max_lookups`` is below 1.
    """

    def __init__(self, tools: ToolExecutor, *, max_lookups: int = 2) -> None:
        if max_lookups < 1:
            raise ConfigError(f"max_lookups={max_lookups} must be at least 1; else use no tools")
        self.tools = tools if isinstance(tools, RecordedTools) else RecordedTools(tools)
        self.max_lookups = max_lookups
        self._known = KnownTools()
        self._adapters: WeakKeyDictionary[LLMClient, OllamaAdapter] = WeakKeyDictionary()

    async def look_up(self, prompt: str, client: LLMClient, site: CallSite) -> str:
        """Return the prompt with what the model found at its end, one line for each call.

        Args:
            prompt: a text, or a ``RenderedPrompt``, which it stays.
            client: the model.
            site: who asks, and when; tools act for its ``agent``.

        Raises:
            LLMFailureException: the model could not be asked.
        """
        adapter = self._adapters.get(client)
        if adapter is None:
            adapter = self._adapters[client] = OllamaAdapter(client)
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
            for call in calls:
                told = await self._run(call, toolbox, site.agent or _NOBODY)
                messages.append(LLMMessage("tool", told, tool_name=call.name))
                findings.append(f"- {_shown(call)}: {told}")
        return _with_findings(prompt, findings)

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


def _shown(call: FunctionCall) -> str:
    if isinstance(call.arguments, str):
        return f"{call.name} {clip(call.arguments, _MAX_ARGUMENT_CHARS)}"
    arguments = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items())
    return f"{call.name}({clip(arguments, _MAX_ARGUMENT_CHARS)})"


def _with_findings(prompt: str, findings: list[str]) -> str:
    """Return the prompt with what was found at its end; as it is if nothing was."""
    if not findings:
        return prompt
    told = f"{_FINDINGS}\n" + "\n".join(findings)
    if not isinstance(prompt, RenderedPrompt):
        return f"{prompt}\n\n{told}"
    return RenderedPrompt(
        system=prompt.system,
        user=f"{prompt.user}\n\n{told}",
        template=_extended(prompt.template),
    )


@lru_cache(maxsize=64)
def _extended(template: Prompt) -> Prompt:
    return template.edit(f"{template.text.rstrip()}\n\n{_FINDINGS}\n{{{{ findings }}}}\n")
