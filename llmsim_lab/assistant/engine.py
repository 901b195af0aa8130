"""The decision engine: one message in, one decision out, tools run in between.

It keeps nothing of a message. Where the work for one is done: ``conversation.py``.
"""

from __future__ import annotations

import asyncio
import logging

from llmsim_lab.assistant import answers
from llmsim_lab.assistant.book import Book, Outcome
from llmsim_lab.assistant.conversation import Conversation, answered
from llmsim_lab.assistant.guard import as_llm_error
from llmsim_lab.assistant.protocols import (
    DecisionLogger,
    LLMAdapter,
    ToolExecutor,
)
from llmsim_lab.assistant.toolbox import KnownTools
from llmsim_lab.assistant.types import (
    AgentDecision,
    AgentEngineConfig,
    DecisionContext,
    ToolCall,
)
from llmsim_lab.errors import ConfigError
from llmsim_lab.logs import log_event

__all__ = ["LLMAgentEngine"]

logger = logging.getLogger(__name__)

_DEFAULT_ITERATIONS = 5


class LLMAgentEngine:
    """Decides what to do about a message: answer, run tools, ask, or have the user confirm.

    Args:
        llm_adapter: talks to the model.
        tool_executor: runs the tools.
        constitution: the model's system prompt; ``load_constitution()`` has the shipped one.
        max_iterations: most model calls for one message.
        config: all settings, ``max_iterations`` among them.
        decision_log: keeps what was decided and done.

    Raises:
        ConfigError: the constitution is empty, or ``max_iterations`` is neither 5, which counts as
            not given, nor what ``config`` says.

    Example:
        >>> engine = LLMAgentEngine(OllamaAdapter(client), tools, load_constitution())
        >>> decision = await engine.process_message(
        ...     DecisionContext(user_id="ann", message="Add milk", conversation_id="1")
        ... )
    """

    def __init__(
        self,
        llm_adapter: LLMAdapter,
        tool_executor: ToolExecutor,
        constitution: str,
        max_iterations: int = _DEFAULT_ITERATIONS,
        *,
        config: AgentEngineConfig | None = None,
        decision_log: DecisionLogger | None = None,
    ) -> None:
        if not constitution.strip():
            raise ConfigError("the constitution is empty; load_constitution() has the shipped one")
        if config is None:
            config = AgentEngineConfig(max_iterations=max_iterations)
        elif max_iterations not in (_DEFAULT_ITERATIONS, config.max_iterations):
            raise ConfigError(
                f"max_iterations={max_iterations} and config.max_iterations="
                f"{config.max_iterations} differ; give it in one place"
            )
        self.llm_adapter = llm_adapter
        self.tool_executor = tool_executor
        self.constitution = constitution
        self.config = config
        self.decision_log = decision_log
        self._tools = KnownTools(self.config.confirm)

    async def process_message(self, context: DecisionContext) -> AgentDecision:
        """Decide about a message.

        A failure of the model or of a tool is an answer to the user, not an exception. Tools that
        ran before a failure are in the decision all the same.

        Args:
            context: the message, who wrote it, what was said before, what waits for a yes.

        Raises:
            TapeError: the message is part of a replay, and its calls are not on the tape.
            ConfigError: the model's client is not set up right.
            DataError: the decision log cannot be written to, before anything was done.
        """
        book = Book(self.decision_log, context)
        await book.begin()
        try:
            outcome = await self._decide(context, book)
        except (Exception, asyncio.CancelledError) as error:
            await book.broken(error)
            raise
        await book.end(outcome)
        return outcome.decision

    async def _decide(self, context: DecisionContext, book: Book) -> Outcome:
        executed: list[ToolCall] = []
        pending = context.pending_confirmation
        if pending is not None and (outcome := answered(pending, context.message)):
            return outcome
        try:
            return await Conversation(
                context,
                adapter=self.llm_adapter,
                executor=self.tool_executor,
                toolbox=await self._tools.now(self.tool_executor, self.llm_adapter),
                constitution=self.constitution,
                config=self.config,
                book=book,
                executed=executed,
            ).outcome()
        except Exception as error:  # noqa: BLE001 - any adapter may be plugged in
            fault = as_llm_error(error)
            log_event(
                logger,
                logging.WARNING,
                "assistant_failure",
                decision_id=book.decision_id,
                code=fault.code,
                retry_after=fault.retry_after,
                detail=fault.message,
            )
            return answers.failed(fault, executed, None if executed else pending)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.llm_adapter!r}, tools by {self.tool_executor!r}>"
