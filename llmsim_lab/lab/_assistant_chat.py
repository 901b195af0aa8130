"""Talk to the assistant: the conversation, the tools that it used, yes and no to deletions."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from llmsim_lab._util.html import pre
from llmsim_lab.assistant import Chat, LLMAgentEngine
from llmsim_lab.assistant.chat import call_facts
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._lab import Lab
from llmsim_lab.run import Run


class AssistantChat(Lab):
    """A chat with the assistant.

    Enter sends what is written, Shift+Enter begins a new line. The tools that were used are folded
    below each answer. What would be deleted is asked first, with a button for yes and one for no;
    writing just that word does the same.

    Args:
        chat: a conversation, or an engine to begin one with.
        user_id: who writes; needed with an engine.

    Attributes:
        chat: the conversation.

    Raises:
        ConfigError: an engine without a ``user_id``, or a conversation with another one.
    """

    parts = ("chat",)

    def __init__(self, chat: Chat | LLMAgentEngine, *, user_id: str | None = None) -> None:
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
        """Send a message and wait for the answer, as a cell does.

        Raises:
            ConfigError: a message is under way, or this one is empty.
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
        """Answer the question that is shown, if it is still the one that is asked."""
        # A cell may have sent a message since; a yes must not confirm another deletion.
        if self.chat.pending is None or self.chat.pending.call_id != id:
            what = "the conversation has continued elsewhere, so this is no longer what was asked"
            raise ConfigError(f"{what}; look again, and answer what is asked now")
        self._do_send("yes" if yes else "no")

    # --- what is shown ------------------------------------------------------------------------

    def _more(self, under_way: str = "") -> None:
        chat = self.chat
        for exchange in chat.exchanges:
            tools = map(call_facts, exchange.decision.tool_calls or ())
            said = {"message": exchange.message, "answer": exchange.decision.text}
            self.reading.put("chat", exchange.number, {**said, "tools": [*tools]})
        asked: dict[str, Any] | None = None
        if (pending := chat.pending) is not None:
            what = pending.description or pending.tool_name
            asked = {"id": pending.call_id, "what": what, "who": pending.user_id or chat.user_id}
        now = {"user": chat.user_id, "count": len(chat.exchanges), "pending": asked}
        self.put("chat", "now", {**now, "inbox": under_way or chat.state.inbox})

    def static_text(self) -> str:
        """Return the conversation."""
        return repr(self.chat)

    def static_html(self) -> Markup:
        """Return the same as simple HTML."""
        return pre(self.static_text())
