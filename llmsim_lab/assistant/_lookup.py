"""Agents of a run look things up with tools before they decide."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.text import clip
from llmsim_lab.assistant._adapter import OllamaAdapter
from llmsim_lab.assistant._toolbox import Toolbox, failed_result, result_text
from llmsim_lab.assistant.types import LLMMessage, ToolExecutor, ToolResult
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm.client import checked_client
from llmsim_lab.llm.scope import scoped
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.run import Question
from llmsim_lab.spans import Span
from llmsim_lab.types import CallSite

_FINDINGS = "What you looked up:"
_MAX_RESULT_CHARS = 1500
_MAX_ARGUMENT_CHARS = 300
_MAX_CALLS = 20
"""Of one answer of the model; the others are not made."""


class ToolLookup:
    """Lets a model look things up before it decides; what it found is added to its prompt.

    Looking up is a conversation of its own, of at most ``max_lookups`` model calls. The decision is
    then made as without tools, with the findings at the end of the prompt. Every tool's result is
    on the run's tape, and a replay runs no tool. Calls of tools that need a person's yes fail; so
    do those of an MCP server that does not say what its tools do, unless their names only read.
    The calls and tokens of looking up are on the tape; a run's frame counts those of the decisions.

    In any world it makes a player: ``players={"Ann": ToolLookup(tools).player(client)}``. Several
    players may share one.

    Args:
        tools: runs the tools; they act for the agent that asks.
        max_lookups: most model calls for looking up, before each decision.
    """

    def __init__(
        self,
        tools: ToolExecutor,
        *,
        max_lookups: int = 2,
    ) -> None:
        self.tools = tools
        self.max_lookups = whole_number(
            "max_lookups",
            max_lookups,
            least=1,
        )

    async def look_up(
        self,
        prompt: str,
        client: LLMClient,
        site: CallSite,
    ) -> str:
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
        adapter = OllamaAdapter(client, site=site)
        with scoped(asker=site.agent):  # agents of one run may have different tools
            toolbox = await Toolbox.of(self.tools)
        if not toolbox.declarations:
            return prompt
        # The user message alone: the system message stays one, ahead of the conversation.
        situation = getattr(prompt, "user", prompt)
        opening = Prompt.load("tool_lookup").render(situation=situation)
        messages = [LLMMessage("user", opening.user)]
        system = getattr(prompt, "system", "")
        if system:
            messages.insert(0, LLMMessage("system", system))
        findings: list[str] = []
        # The calls of the last answer run too: their results are findings, if nothing more.
        for _ in range(self.max_lookups):
            response = await adapter.ask(messages, toolbox.declarations)
            calls = tuple(response.function_calls or ())
            if not calls:
                break
            calls = calls[:_MAX_CALLS]
            messages.append(LLMMessage("assistant", response.content or "", calls))
            for call in calls:
                result = await toolbox.checked(call)
                if toolbox.needs_yes(call.name):
                    result = failed_result("no user can confirm it", "REFUSED")
                if not isinstance(result, ToolResult):
                    result = await toolbox.run(
                        call.name,
                        result,
                        site.agent or "somebody",
                    )
                text = result_text(result, max_chars=_MAX_RESULT_CHARS)
                arguments = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items())
                # The failed ones too: the decision should know what could not be found out.
                findings.append(f"- {call.name}({clip(arguments, _MAX_ARGUMENT_CHARS)}): {text}")
                messages.append(
                    LLMMessage(
                        "tool",
                        text,
                        tool_name=call.name,
                    )
                )
        if not findings:
            return prompt
        return _with_findings(prompt, findings)

    def player(self, client: LLMClient) -> Callable[[Question], Awaitable[object]]:
        """Return a player that looks things up, then answers with what was found.

        Args:
            client: the model that looks up and answers.

        Raises:
            ConfigError: it is not a client.
        """
        checked_client(
            client,
            "client",
            ("call_with_retry", "converse", "config"),
        )

        async def answer(question: Question) -> object:
            prompt = await self.look_up(question.prompt, client, question.site)
            return await question.put_to(client, prompt)

        return answer


def _with_findings(prompt: str, findings: Sequence[str]) -> str:
    """Return the prompt with the findings at its end."""
    lines = "\n".join(findings)
    user = f"{getattr(prompt, 'user', prompt)}\n\n{_FINDINGS}\n{lines}"
    if not isinstance(prompt, RenderedPrompt):
        return user
    # It stays a prompt that a viewer can take apart.
    span = Span(
        "findings",
        "user",
        len(user) - len(lines),
        len(user),
        "the tools' answers",
    )
    return RenderedPrompt(
        system=prompt.system,
        user=user,
        template=prompt.template,
        spans=(*prompt.spans, span),
    )
