"""A backend that answers from a script: for tests, lessons and rule-based players."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

from pydantic import BaseModel

from llmsim_lab._util.jsontext import text_of_model
from llmsim_lab._util.text import brief, clip
from llmsim_lab.errors import ConfigError
from llmsim_lab.types import ChatBackend, ChatReply, ChatRequest, ModelInfo


def reply_of(answer: object) -> ChatReply:
    """Return a reply whose text is a text, or the JSON of a mapping or pydantic model.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(answer, ChatReply):
        return answer
    if isinstance(answer, BaseModel):
        return ChatReply(text=text_of_model(answer))
    if isinstance(answer, Mapping):
        # As a model writes it, letters as they are: lengths in characters hold for the text.
        return ChatReply(text=json.dumps(dict(answer), ensure_ascii=False))
    if isinstance(answer, str):
        return ChatReply(text=answer)
    raise ConfigError(
        "a reply must be a text, a mapping, a pydantic model or a ChatReply, not "
        f"{clip(repr(answer), 60)}"
    )


class ScriptedBackend(ChatBackend):
    """Answers each request with the next reply of a script.

    Args:
        replies: a list of replies, used once each in the order of the requests, which for those
            that are asked at once is that of their texts; or one reply or one function, for every
            request. A reply is a text, a dict or pydantic model (sent as
            JSON), a ``ChatReply``, an exception to raise, or a function of the request that
            returns one of these (it may be ``async``).
        delay_s: how long each answer takes, seconds.
        name: the model's name in recordings.

    Attributes:
        requests: every request seen, oldest first.

    Example:
        >>> backend = ScriptedBackend([TimeoutError(), {"action": "Hold", "reasoning": "Calm."}])
    """

    max_top_logprobs = 100
    """A ``ChatReply`` of the script may carry ``top_logprobs``."""

    def __init__(
        self,
        replies: Any,
        *,
        delay_s: float = 0.0,
        name: str = "scripted",
    ) -> None:
        self.requests: list[ChatRequest] = []
        self._delay_s = delay_s
        self._name = name
        is_one_reply = isinstance(replies, str | Mapping | BaseModel | ChatReply | BaseException)
        # A text is a sequence too, and would be spelt out letter by letter.
        self._script: Iterator[Any]
        if is_one_reply or callable(replies):
            self._script = repeat(replies)
        elif isinstance(replies, Iterable):
            self._script = iter(replies)
        else:
            raise ConfigError(
                f"replies={brief(replies)} is not a script; give a reply, a list of them, or a "
                "function of the request"
            )

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Answer with the next reply of the script.

        Raises:
            ConfigError: no reply is left, or it is not one.
        """
        # Before it is answered: a test may look while the answer is awaited.
        self.requests.append(request)
        try:
            reply = next(self._script)
        except StopIteration:
            raise ConfigError(
                f"the script has come to its end: request {len(self.requests)} came from "
                f"{request.site or 'an unnamed place'}; give it more replies, or one function"
            ) from None
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        # What it returns may have to be awaited, or raised.
        if callable(reply):
            reply = reply(request)
        if inspect.isawaitable(reply):
            reply = await reply
        if isinstance(reply, BaseException):
            raise reply
        return reply_of(reply)

    async def model_info(self) -> ModelInfo:
        """Return that a script answers."""
        return ModelInfo(name=self._name, backend="scripted")
