"""A nation's agent that may look things up before it decides."""

from __future__ import annotations

from functools import lru_cache

from llmsim_lab.agents import NationAgent, NationProfile
from llmsim_lab.assistant.adapter import OllamaAdapter
from llmsim_lab.assistant.guard import result_text
from llmsim_lab.assistant.protocols import FunctionCall, LLMMessage, ToolExecutor
from llmsim_lab.assistant.recorded_tools import RecordedTools
from llmsim_lab.assistant.toolbox import BadCall, Toolbox, declared_tools
from llmsim_lab.calls import CallSite
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import PolicyDecision, SimulationState
from llmsim_lab.prompts import Prompt, RenderedPrompt

__all__ = ["ToolUsingNationAgent"]

_FINDINGS = "What you looked up:"
_MAX_RESULT_CHARS = 1500


class ToolUsingNationAgent(NationAgent):
    """A nation's advisor with tools: first it looks things up, then it decides with what it found.

    Looking up is a conversation of its own, at most so many calls of the model; what was found is
    added to the agent's prompt, from which the decision is made as without tools. Every tool's
    result is on the run's tape, and a replay runs none. Tools that need somebody's yes are refused.

    Args:
        name: the nation's name, unique in a run; tools act for this user.
        llm_client: the model.
        tools: runs the tools.
        max_lookups: most model calls for looking up, each turn.
        profile: the nation's particulars.
        prompt: a prompt with the slots of the shipped ``agent_policy``; that one if not given.

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
        if max_lookups < 1:
            raise ConfigError(f"max_lookups={max_lookups} must be at least 1; else use NationAgent")
        self.tools = tools if isinstance(tools, RecordedTools) else RecordedTools(tools)
        self.max_lookups = max_lookups
        self._adapter = OllamaAdapter(llm_client)

    async def _ask(self, prompt: str, state: SimulationState, site: CallSite) -> PolicyDecision:
        findings = await self._look_up(prompt, site)
        return await super()._ask(_with_findings(prompt, findings), state, site)

    async def _look_up(self, prompt: str, site: CallSite) -> list[str]:
        """Return what the model found out with the tools it wanted, one line each."""
        if self._adapter.client is not self.llm_client:  # a fork may have given it another model
            self._adapter = OllamaAdapter(self.llm_client)
        await self.tools.ready()
        names = self.tools.get_available_tools()
        toolbox = Toolbox(names, declared_tools(names, self._adapter, self.tools))
        if not toolbox.declarations:
            return []
        messages = _opening(prompt)
        findings: list[str] = []
        for _ in range(self.max_lookups):
            response = await self._adapter.ask(messages, toolbox.declarations, site=site)
            calls = tuple(response.function_calls or ())
            if not calls:
                break
            messages.append(LLMMessage("assistant", response.content or "", calls))
            for call in calls:
                told = await self._run(call, toolbox)
                messages.append(LLMMessage("tool", told, tool_name=call.name))
                findings.append(f"- {_shown(call)}: {told}")
        return findings

    async def _run(self, call: FunctionCall, toolbox: Toolbox) -> str:
        checked = toolbox.check(call)
        if isinstance(checked, BadCall):
            return f"error {checked.code}: {checked.complaint}"
        if toolbox.needs_yes(checked.name):
            return "error REFUSED: nobody is there to confirm it"
        result = await self.tools.execute(checked.name, checked.parameters, self.name)
        return result_text(result, max_chars=_MAX_RESULT_CHARS)


def _opening(prompt: str) -> list[LLMMessage]:
    ask = Prompt.load("tool_lookup")
    if isinstance(prompt, RenderedPrompt) and prompt.system:
        user = ask.render(situation=prompt.user).user
        return [LLMMessage("system", prompt.system), LLMMessage("user", user)]
    return [LLMMessage("user", ask.render(situation=str(prompt)).user)]


def _shown(call: FunctionCall) -> str:
    if isinstance(call.arguments, str):
        return f"{call.name} {call.arguments}"
    arguments = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items())
    return f"{call.name}({arguments})"


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
