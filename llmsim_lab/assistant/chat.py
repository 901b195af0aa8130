"""A conversation with the assistant: what was said, what was decided, what waits for a yes."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

from markupsafe import Markup

from llmsim_lab.assistant.chat_html import chat_html, exchange_text
from llmsim_lab.assistant.types import AgentDecision, DecisionContext, Message, PendingAction
from llmsim_lab.errors import ConfigError
from llmsim_lab.values import Value

__all__ = ["Chat", "Exchange"]

Decide = Callable[[DecisionContext], Awaitable[AgentDecision]]


class Exchange(Value):
    """A message and what the assistant made of it.

    Attributes:
        number: its place in the conversation, from 1.
        message: what the user wrote.
        decision: what was decided.
    """

    number: int
    message: str
    decision: AgentDecision


class Chat:
    """Keeps a conversation, which the engine itself does not.

    Args:
        decide: makes the decisions: an engine, or its ``process_message``.
        user_id: who writes, as authenticated.
        conversation_id: the conversation's name.

    Example:
        >>> chat = Chat(engine, user_id="ann")
        >>> decision = await chat.send("Add milk to my list")
    """

    def __init__(self, decide: Any, *, user_id: str, conversation_id: str = "chat") -> None:
        if not user_id:
            raise ConfigError("user_id is empty; say who writes, such as user_id='ann'")
        self._decide: Decide = getattr(decide, "process_message", decide)
        self.user_id = user_id
        self.conversation_id = conversation_id
        self.exchanges: tuple[Exchange, ...] = ()
        self._lock = threading.Lock()

    @property
    def pending(self) -> PendingAction | None:
        """What waits for a yes."""
        return self.exchanges[-1].decision.pending_action if self.exchanges else None

    @property
    def history(self) -> list[Message]:
        """What was said so far, oldest first."""
        return [
            Message(role=role, content=content)
            for exchange in self.exchanges
            for role, content in (
                ("user", exchange.message),
                ("assistant", exchange.decision.text),
            )
        ]

    async def send(self, message: str) -> AgentDecision:
        """Send a message and wait for what is decided.

        Raises:
            ConfigError: the message is empty, or another one is under way.
        """
        if not message.strip():
            raise ConfigError("the message is empty")
        if not self._lock.acquire(blocking=False):
            raise ConfigError("another message is under way; wait for its answer, or stop it")
        try:
            decision = await self._decide(
                DecisionContext(
                    user_id=self.user_id,
                    message=message,
                    conversation_id=self.conversation_id,
                    message_history=self.history,
                    pending_confirmation=self.pending,
                )
            )
            number = len(self.exchanges) + 1
            exchange = Exchange(number=number, message=message, decision=decision)
            self.exchanges = (*self.exchanges, exchange)
        finally:
            self._lock.release()
        return decision

    def clear(self) -> None:
        """Begin anew; what was said before is forgotten, and nothing waits for a yes.

        Raises:
            ConfigError: a message is under way.
        """
        if self._lock.locked():
            raise ConfigError("a message is under way; wait for its answer, or stop it, first")
        self.exchanges = ()

    def __repr__(self) -> str:
        lines = [f"A conversation of {self.user_id}, {len(self.exchanges)} messages"]
        lines += [exchange_text(x.message, x.decision) for x in self.exchanges]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return str(self.html())

    def html(self) -> Markup:
        """Return the conversation, with the tool calls folded beside it."""
        return chat_html([(x.message, x.decision) for x in self.exchanges])
