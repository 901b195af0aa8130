"""Where a reply ends that is read while it is written: at its closing brace, in a loop, too long.

A backend that streams hands each new piece of text to an ``Endings``, which says when to stop. What
it stops is an ordinary reply if it is a whole JSON value, one that was cut at the token limit if it
is too long, and the fault ``generation_stopped`` if the model repeats itself. A reply that came
as a whole is read in the same way afterwards: what a run gets must not depend on who watches it.

The numbers leave room for what people ask for: rules of eighty dashes, the heads of wide tables, a
list of a hundred zeros, nine equal rows. A model in a loop passes them within seconds.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

from llmsim_lab._util.text import clip
from llmsim_lab.errors import BackendError
from llmsim_lab.llm._extract import repeated_end
from llmsim_lab.types import ChatReply, ChatRequest, OnText

_LEAST_LOOP_CHARS, _LEAST_REPEATS = 320, 10
_LEAST_LOOP_CHARS_IN_TEXT = 1_001
"""In a text within JSON: schemas bound most of them, and one that comes to its end is valid."""
_LEAST_EQUAL_ITEMS = 120
"""How often a piece of JSON itself must be repeated: in lists, equal items are quite usual."""
_MAX_UNIT_CHARS = 200
_LOOK_EACH_CHARS = 64
_MAX_SPACE_AFTER = 16
_MAX_CHARS_PER_TOKEN, _MARGIN_CHARS = 8, 256
"""Above the average of any long text; ordinary prose has four or five."""

_MARKS = re.compile(r'["\\{}\[\]]')
_THOUGHTS = re.compile(r"\s*<think(?:ing)?>")
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>")
_FENCE = re.compile(r"\s*(?:```[^\n]*\n\s*)?")
_BEFORE_JSON = ("<think>", "<thinking>", "```")
_MAX_EXCERPT, _MAX_UNIT = 120, 40


class Endings:
    """Reads a reply as it is written and says when to stop; one for each request.

    With a schema a reply ends with its outermost JSON value: at the first text after the closing
    brace, not at the brace itself, since a server that stops there by itself still has to say how
    many tokens it read and wrote. That holds where the reply begins with JSON, also in a code fence
    or after its thinking; a model that begins in prose may give drafts first.

    Args:
        schema: whether JSON was asked for.
        max_tokens: the longest reply, tokens; None without a limit.

    Attributes:
        reason: why the reply was stopped; None if it was not.
    """

    def __init__(self, *, schema: bool, max_tokens: int | None = None) -> None:
        self.reason: Literal["closed", "loop", "length"] | None = None
        self._max_tokens = max_tokens
        self._text = ""
        self._state: Literal["before", "json", "closed", "free"] = "before" if schema else "free"
        self._read = 0
        """Up to here the text was searched for JSON; of a stopped reply, up to here it counts."""
        self._depth, self._string_from, self._escaped_at = 0, -1, -1

    @classmethod
    def of(cls, request: ChatRequest) -> Endings:
        """Return what ends the reply to a request."""
        limit = request.options.get("num_predict")
        return cls(
            # With tools, the JSON may be a call of one and another may follow.
            schema=request.schema is not None and not request.tools,
            max_tokens=limit if isinstance(limit, int) and limit > 0 else None,
        )

    def __call__(self, piece: str) -> bool:
        """Read a piece; returns True if the reply is to be stopped."""
        # In parts that end at fixed places: in which pieces a text comes must not matter.
        while piece and self.reason is None:
            room = _LOOK_EACH_CHARS - len(self._text) % _LOOK_EACH_CHARS
            self._read_on(piece[:room])
            piece = piece[room:]
        self._text += piece
        return self.reason is not None

    def _read_on(self, part: str) -> None:
        """Read a part that ends at the next place where loops are looked for, or before it."""
        self._text += part
        if self._state == "before":
            self._find_json()
        if self._state == "json":
            self._follow_json()
        if self._state == "closed":
            after = self._text[self._read :]
            if after.strip() or len(after) > _MAX_SPACE_AFTER:
                self.reason = "closed"
        elif len(self._text) % _LOOK_EACH_CHARS == 0:
            if self._loops():
                self.reason = "loop"
            elif self._too_long():
                self.reason, self._read = "length", len(self._text)

    def ended(self, reply: ChatReply) -> ChatReply:
        """Return the reply that came, as what it is.

        Raises:
            BackendError: it was stopped because the model repeated itself.
        """
        if self.reason == "closed" or self.reason == "length":
            read = max(0, len(reply.text) - (len(self._text) - self._read))
            why = "stop" if self.reason == "closed" else "length"
            return replace(reply, text=reply.text[:read], done_reason=why)
        if self.reason == "loop":
            raise stopped(replace(reply, done_reason="aborted"), who="the client")
        return reply

    def whole(self, reply: ChatReply) -> ChatReply:
        """Return a reply that came as a whole as what it were if it had been streamed.

        Raises:
            BackendError: the model repeats itself in it.
        """
        # In pieces, so that it ends where a stream of it would have been stopped.
        tell, each = Telling(self), _LOOK_EACH_CHARS
        for at in range(0, len(reply.thinking), each):
            if tell("", reply.thinking[at : at + each]):
                return self.ended(replace(reply, text="", thinking=reply.thinking[: at + each]))
        for at in range(0, len(reply.text), each):
            if tell(reply.text[at : at + each]):
                return self.ended(replace(reply, text=reply.text[: at + each]))
        return reply

    def _find_json(self) -> None:
        """Find where JSON begins, after thinking and the opening of a code fence."""
        text, start = self._text, 0
        if _THOUGHTS.match(text):
            # Searched for, since ``.*?`` in one pattern takes twenty times as long, at each part.
            end = _THOUGHT_ENDS.search(text)
            if end is None:
                return
            start = end.end()
        if fence := _FENCE.match(text, start):
            start = fence.end()
        rest = text[start:]
        if rest[:1] in ("{", "["):
            self._state, self._read = "json", start
        elif rest and not any(it.startswith(rest) or rest.startswith(it) for it in _BEFORE_JSON):
            self._state = "free"

    def _follow_json(self) -> None:
        """Follow braces and texts to the end of what has come."""
        for mark in _MARKS.finditer(self._text, self._read):
            at, sign = mark.start(), mark.group()
            if at == self._escaped_at:
                continue
            if self._string_from >= 0:
                if sign == "\\":
                    # What it escapes may come with the next piece.
                    self._escaped_at = at + 1
                elif sign == '"':
                    self._string_from = -1
            elif sign == '"':
                self._string_from = at + 1
            elif sign in "{[":
                self._depth += 1
            elif sign in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self._state, self._read = "closed", at + 1
                    return
        self._read = len(self._text)

    def _loops(self) -> bool:
        """Return True if the text repeats at its end what no reply needs so often."""
        text, least, least_chars = self._text, _LEAST_REPEATS, _LEAST_LOOP_CHARS
        if self._state == "json" and self._string_from >= 0:
            text, least_chars = text[self._string_from :], _LEAST_LOOP_CHARS_IN_TEXT
        elif self._state == "json":
            least = _LEAST_EQUAL_ITEMS
        if len(text) < least_chars:
            return False
        if not text[-least_chars:].strip():
            return True
        # Where the end of the text was last: so far back begins what is repeated, if anything is.
        end = text[-_MAX_UNIT_CHARS:]
        before = text.rfind(end, max(0, len(text) - 2 * _MAX_UNIT_CHARS), len(text) - 1)
        if before < 0:
            return False
        period = len(text) - _MAX_UNIT_CHARS - before
        size = max(least_chars, least * period)
        return len(text) >= size and text[-size:-period] == text[period - size :]

    def _too_long(self) -> bool:
        """Return True if the reply has more tokens than the server was to write, for certain."""
        limit = self._max_tokens
        return limit is not None and len(self._text) > _MAX_CHARS_PER_TOKEN * limit + _MARGIN_CHARS


class Telling:
    """Passes on what a server streams; thinking that it separates goes between ``<think>`` tags.

    Args:
        on_text: is given each piece; None if nobody wants them.

    Attributes:
        pieces: how many there were so far, each a token or little more.
        stopped: whether the reply was to be stopped at the last one.
    """

    def __init__(self, on_text: OnText | None) -> None:
        self.pieces = 0
        self.stopped = False
        self._on_text = on_text
        self._thinking = False

    def __call__(self, text: str, thinking: str = "") -> bool:
        """Pass on a piece; returns True if the reply is to be stopped."""
        if self._on_text is None or not (text or thinking):
            return False
        self.pieces += 1
        piece = ""
        if thinking:
            piece = thinking if self._thinking else f"<think>{thinking}"
            self._thinking = True
        if text and self._thinking:
            piece += "</think>"
            self._thinking = False
        self.stopped = self._on_text(piece + text)
        return self.stopped


def stopped(reply: ChatReply, *, who: str) -> BackendError:
    """Return the failure of a model that was stopped before it was done.

    Args:
        reply: what had arrived of it.
        who: what stopped it.
    """
    found = repeated_end(reply.text) or repeated_end(reply.thinking)
    if found is None:
        what = (
            f"ended the reply before the model was done, after {clip(reply.text, _MAX_EXCERPT)!r}"
        )
    else:
        unit = repr(clip(found.unit, _MAX_UNIT)) if found.unit else "white space"
        what = (
            f"stopped the model because it repeated {unit} {found.times} times, at the end of "
            f"{clip(found.before, _MAX_EXCERPT)!r}"
        )
    return BackendError(
        f"{who} {what}; change the prompt, raise the temperature, or use another model",
        reason="generation_stopped",
        status_code=200,
        retry=True,
        reply=reply,
    )
