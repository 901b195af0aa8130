"""Talk to the assistant: the conversation, the tools it used beside it, yes and no to deletions."""

from __future__ import annotations

from typing import Any

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.html import safe
from llmsim_lab.assistant import Chat, LLMAgentEngine
from llmsim_lab.assistant._types import PendingAction
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._widget import LabWidget, block, button, row, settled

_MOST_TYPED_AT_ONCE = 4


class AssistantChat(LabWidget):
    """A chat with the assistant.

    Enter sends what is written; within a text it begins a new line. The tools it used are folded
    below each answer. What would be deleted is asked first, with a
    button for yes and one for no; writing just that word does the same.

    Args:
        chat: a conversation, or an engine to begin one with.
        user_id: who writes; needed with an engine.

    Attributes:
        chat: the conversation.
        message: what to send.
        send_button: sends it.
        stop_button: stops the message under way; what its tools did stays done.
        clear_button: begins a new conversation.
        confirm_button: says yes to what waits for it.
        cancel_button: says no.
        question: what waits for a yes.
        talk: the conversation so far.

    Raises:
        ConfigError: an engine without a ``user_id``, or a conversation with another one.
    """

    def __init__(self, chat: Chat | LLMAgentEngine, *, user_id: str | None = None) -> None:
        super().__init__()
        self.chat = _chat_of(chat, user_id)
        self.message = w.Textarea(
            description="Message",
            placeholder="Enter sends",
            rows=2,
            style={"description_width": "initial"},
            layout=w.Layout(width="auto", flex="1 1 320px", min_width="0"),
        )
        self.message.observe(self._on_enter, names="value")
        self.send_button = self.starter(
            "Send", "Send the message", self._send_written, button_style="primary"
        )
        self.stop_button = self.stopper("Stop", "Give the message under way up")
        forget = "Forget what was said"
        self.clear_button = self._choices.button("New conversation", forget, self._clear)
        self.confirm_button, self.cancel_button = answers = (
            button("Yes", "Do what is asked about", lambda: self._reply("yes")),
            button("No", "Do not do what is asked about", lambda: self._reply("no")),
        )
        self.question, self.talk = w.HTML(), w.HTML()
        self._ask_row = row(self.question, *answers)
        self._sent = False
        self._asked: PendingAction | None = None
        """What the buttons are about, as it is shown."""
        self.controls = (self.message, self.send_button, self.clear_button, *answers)
        self.children = (
            self.talk,
            self._ask_row,
            *self.messages,
            row(self.message, self.send_button, self.stop_button, self.clear_button),
        )
        self.refresh()

    def refresh(self) -> None:
        """Show the conversation as it is now, with what a cell has added to it."""
        self._show()
        self.say(self._news())

    def _show(self) -> None:
        self.talk.value = str(block(self.chat.html()))
        pending = self._asked = self.chat.pending
        self._ask_row.layout.display = "none" if pending is None else ""
        what = "" if pending is None else pending.description or pending.tool_name
        self.question.value = str(Markup("<strong>Do this?</strong> {}").format(safe(what)))

    def _news(self) -> str:
        if self.chat.pending is not None:
            return "The assistant waits for a yes or a no."
        count = len(self.chat.exchanges)
        return f"{count} message{'' if count == 1 else 's'} so far."

    def _on_enter(self, change: Any) -> None:
        """Send what is written when a line's end was typed after it."""
        before, now = change["old"], change["new"]
        # What comes all at once was pasted; of what is typed fast, a few characters may.
        typed = now.removeprefix(before) if before.strip() and now.startswith(before) else ""
        if typed.endswith("\n") and typed.count("\n") == 1 and len(typed) <= _MOST_TYPED_AT_ONCE:
            self.start(self._send_written)

    async def _send_written(self) -> None:
        await settled(self.message)
        self.message.value = self.message.value.rstrip("\n")
        text = self.message.value
        await self._deliver(text)
        # Unless the next message is being written already.
        if self.message.value == text:
            self.message.value = ""
        self._sent = True

    def _reply(self, text: str) -> None:
        """Answer the question that is shown, if it is still the one that is asked."""
        asked = self._asked

        async def work() -> None:
            # A cell may have sent a message since; a yes must not confirm another deletion.
            if self.chat.pending != asked:
                raise ConfigError(
                    "the conversation has continued elsewhere, so that this is no longer what was "
                    "asked; look again, and answer what is asked now"
                )
            await self._deliver(text)

        self.start(work)

    async def _deliver(self, text: str) -> None:
        self.say("The assistant is at work.")
        await self.chat.send(text)
        self.say(self._news())

    def _clear(self) -> None:
        if not self.worker.busy:
            self.chat.clear()  # a recorded conversation raises that it cannot be
            self.show_error(None)
            self.refresh()

    async def ask(self, text: str) -> None:
        """Send a message and wait for the answer, as a cell does.

        Raises:
            ConfigError: a message is under way, or this one is empty.
        """
        await self.do(lambda: self._deliver(text))

    def ended(self) -> None:
        """Show what was answered; the next message can be written at once."""
        self._show()
        # The page takes the focus from a box that is disabled meanwhile.
        if self._sent:
            self.message.focus()
        self._sent = False

    def static_text(self) -> str:
        """Return the conversation."""
        return repr(self.chat)

    def static_html(self) -> Markup:
        """Return the conversation with the tool calls folded."""
        return self.chat.html()


def _chat_of(chat: Chat | LLMAgentEngine, user_id: str | None) -> Chat:
    if isinstance(chat, Chat):
        if user_id not in (None, chat.user_id):
            raise ConfigError(f"the conversation is {chat.user_id!r}'s, not {user_id!r}'s")
        return chat
    if user_id is None:
        raise ConfigError(
            "say who writes: AssistantChat(engine, user_id='ann'), not AssistantChat(engine)"
        )
    return Chat(user_id=user_id, players={"assistant": chat})
