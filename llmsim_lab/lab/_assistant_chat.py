"""A chat with the assistant: messages, the tools that it used, and consent to deletions."""

from __future__ import annotations

from markupsafe import Markup

from llmsim_lab._util.html import pre
from llmsim_lab.assistant import Chat, LLMAgentEngine
from llmsim_lab.assistant.chat import call_facts
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._lab import Lab
from llmsim_lab.run import Run


class AssistantChat(Lab):
    """A chat with the assistant.

    Enter sends the message, Shift+Enter starts a new line. The tools that were used are folded
    below each answer. Before anything is deleted, the assistant asks, with a button for yes and one
    for no; typing just that word does the same.

    Args:
        chat: a conversation, or an engine to begin one with.
        user_id: who writes; needed with an engine.

    Attributes:
        chat: the conversation.

    Raises:
        ConfigError: an engine has no ``user_id``, or a conversation has another one.
    """

    parts = ("chat",)

    def __init__(
        self,
        chat: Chat | LLMAgentEngine,
        *,
        user_id: str | None = None,
    ) -> None:
        if not isinstance(chat, Chat):
            if user_id is None:
                raise ConfigError("say who writes: AssistantChat(engine, user_id='ann')")
            chat = Chat(user_id=user_id, players={"assistant": chat})
        if user_id not in (None, chat.user_id):
            raise ConfigError(f"the conversation is {chat.user_id!r}'s, not {user_id!r}'s")
        self.chat = chat
        self._message = ""
        super().__init__(self.chat)
        self._more()

    async def ask(self, text: str) -> None:
        """Send a message from a cell, and wait for the answer.

        Raises:
            ConfigError: another message is under way, or this one is empty.
        """
        self._message = text
        await self.play()

    async def _step(self, simulation: Run) -> None:
        self._more(self._message)
        await self.chat.send(self._message)

    # --- what the browser asks for --------------------------------------------------------------

    def _do_send(self, text: str) -> None:
        self._message = text
        self._do_play(self.shown[0])

    def _do_confirm(self, id: str, yes: bool) -> None:  # noqa: A002 - the message's name
        """Answer a question that the page shows, if it is still open."""
        # A cell may have sent a message since. A yes must not confirm another deletion.
        pending = self.chat.pending
        if pending is None or pending.call_id != id:
            raise ConfigError(
                "the conversation has continued elsewhere, so this is no longer what was asked; "
                "look again, and answer what is asked now"
            )
        self._do_send("yes" if yes else "no")

    # --- what is shown ------------------------------------------------------------------------

    def _more(self, under_way: str = "") -> None:
        chat = self.chat
        for exchange in chat.exchanges:
            decision = exchange.decision  # sent each turn: the log keeps only what is new
            shown = {
                "message": exchange.message,
                "answer": decision.text,
                "tools": [call_facts(call) for call in decision.tool_calls or ()],
            }
            self.reading.put("chat", exchange.number, shown)
        now = {
            "user": chat.user_id,
            "count": len(chat.exchanges),
            "pending": self._pending(),
            "inbox": under_way or chat.state.inbox,
        }
        self.put("chat", "now", now)

    def _pending(self) -> dict[str, str] | None:
        """Return the deletion that waits for a yes or a no, and whose data it is."""
        pending = self.chat.pending
        if pending is None:
            return None
        return {
            "id": pending.call_id,
            "what": pending.description or pending.tool_name,
            "who": pending.user_id or self.chat.user_id,
        }

    def static_text(self) -> str:
        """Return the conversation."""
        return repr(self.chat)

    def static_html(self) -> Markup:
        """Return the conversation as simple HTML."""
        return pre(self.static_text())
