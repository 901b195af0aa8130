"""A scripted model, tools in memory and a log in a list, for tests of the decision engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from llmsim_lab.assistant import (
    AgentDecision,
    AgentEngineConfig,
    Chat,
    DecisionContext,
    FunctionCall,
    LLMAgentEngine,
    LLMMessage,
    LLMResponse,
    Said,
    ToolDeclaration,
    ToolResult,
)

CONSTITUTION = "You are a task assistant."


def _form(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


_ID = {"type": "integer", "minimum": 1}
_TITLE = {"type": "string", "minLength": 1, "maxLength": 100}
TASK_TOOLS = [
    ToolDeclaration("add_task", "Create a task.", _form(user_id={"type": "string"}, title=_TITLE)),
    ToolDeclaration("list_tasks", "Show all tasks."),
    ToolDeclaration("complete_task", "Mark a task as done.", _form(task_id=_ID)),
    ToolDeclaration("delete_task", "Remove a task.", _form(task_id=_ID)),
]


def says(text: str, kind: Any = "answer") -> LLMResponse:
    """Return an answer in the tool ``respond``, which says what its text is."""
    return LLMResponse(text, kind=kind)


class ScriptedAdapter:
    """Answers with the script's responses, one after the other; the last one is repeated.

    A response is a text, a tool call or a list of them, an ``LLMResponse``, or an exception.
    """

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.seen: list[tuple[LLMMessage, ...]] = []
        self.offered: list[list[ToolDeclaration]] = []
        self.settings: list[tuple[float, int]] = []

    async def generate(
        self,
        messages: Sequence[LLMMessage],
        tools: Sequence[ToolDeclaration],
        temperature: float = 0.0,
        max_tokens: int = 1024,
    ) -> LLMResponse:
        self.seen.append(tuple(messages))
        self.offered.append(list(tools))
        self.settings.append((temperature, max_tokens))
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(said, BaseException):
            raise said
        if isinstance(said, FunctionCall):
            said = [said]
        if isinstance(said, list):
            return LLMResponse(function_calls=said, finish_reason="tool_calls")
        return said if isinstance(said, LLMResponse) else LLMResponse(said)


class MemoryTasks:
    """Tasks of several users, in memory."""

    def __init__(self, **tasks: list[str]) -> None:
        self.tasks = {user: dict(enumerate(titles, 1)) for user, titles in tasks.items()}
        self.ran: list[tuple[str, dict[str, Any], str]] = []
        self.instead: Callable[[str], Any] | None = None
        """What happens in place of the tool, for the faults."""
        self.declared = list(TASK_TOOLS)

    def get_available_tools(self) -> list[str]:
        return [tool.name for tool in self.declared]

    def get_tool_declarations(self, _: Sequence[str]) -> list[ToolDeclaration]:
        return self.declared

    async def execute(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        self.ran.append((tool_name, parameters, user_id))
        await asyncio.sleep(0)
        if self.instead is not None:
            made = self.instead(tool_name)
            return await made if asyncio.iscoroutine(made) else made
        own = self.tasks.setdefault(user_id, {})
        if tool_name == "list_tasks":
            listed = [{"id": number, "title": title} for number, title in own.items()]
            return ToolResult(success=True, data={"tasks": listed})
        if tool_name == "add_task":
            number = max(own, default=0) + 1
            own[number] = parameters["title"]
            return ToolResult(success=True, data={"id": number, "title": parameters["title"]})
        number = parameters["task_id"]
        if number not in own:
            return ToolResult(success=False, error="task not found", error_code="NOT_FOUND")
        if tool_name == "delete_task":
            del own[number]
        return ToolResult(success=True, data={"id": number})


class NoTools:
    """An executor that a replay must not ask for anything."""

    def get_available_tools(self) -> list[str]:
        raise AssertionError("asked for its tools")

    async def execute(self, *_: Any) -> ToolResult:
        raise AssertionError("a tool was run")


class ListLog:
    """Keeps rows of the decision log in lists."""

    def __init__(self) -> None:
        self.decisions: list[dict[str, Any]] = []
        self.invocations: list[dict[str, Any]] = []

    async def write_decision_log(self, **row: Any) -> None:
        self.decisions.append(row)

    async def write_tool_invocation_log(self, **row: Any) -> None:
        self.invocations.append(row)


def call(name: str, **arguments: Any) -> FunctionCall:
    """Return a tool call, as a model asks for it."""
    return FunctionCall(name, arguments)


def context(message: str = "Hello", *, user_id: str = "ann", **fields: Any) -> DecisionContext:
    """Return a message from Ann."""
    fields.setdefault("conversation_id", "c1")
    return DecisionContext(user_id=user_id, message=message, **fields)


def engine(*script: Any, tools: Any = None, log: Any = None, **settings: Any) -> LLMAgentEngine:
    """Return an engine on a scripted model, with tasks in memory."""
    tools = MemoryTasks(ann=["Buy milk", "Call mum"]) if tools is None else tools
    config = AgentEngineConfig(**settings)
    made = LLMAgentEngine(ScriptedAdapter(*script), tools, CONSTITUTION, config=config)
    made.decision_log = log
    return made


def conversation(who: Any, **options: Any) -> Chat:
    """Return a conversation of Ann's with an engine, or with a function of its context."""

    async def answer(question: Any) -> Said:
        run, state = question.run, question.state
        asked = DecisionContext(
            user_id=run.user_id,
            message=state.inbox,
            conversation_id=run.name,
            message_history=list(state.said),
            pending_confirmation=state.pending,
        )
        return Said.by(await who(asked))

    sits = who if isinstance(who, LLMAgentEngine) else answer
    return Chat(**{"user_id": "ann", **options}, players={"assistant": sits})


async def decide(message: str, *script: Any, **options: Any) -> AgentDecision:
    """Return a new engine's decision on one message."""
    return await engine(*script, **options).process_message(context(message))
