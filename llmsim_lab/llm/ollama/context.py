"""Whether a prompt fits the context window, told without a tokenizer.

Servers that do not know ``truncate`` cut an overlong prompt silently, and then report fewer tokens
than the prompt can possibly have. That least number comes from its characters: no tokenizer packs
ordinary text tighter than a few characters a token, and what one model has shown so far, with a
margin, narrows that down.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from llmsim_lab.calls import Message

__all__ = ["PromptGauge", "countable", "texts_read"]

_START, _FLOOR, _MARGIN = 8.0, 6.0, 1.3
"""Characters per token: at first, and at the least once some were seen (a model that has been shown
Chinese or JSON will be shown English), and the factor of safety on top."""
_LEAST_TOKENS = 64
"""Shorter prompts say little: they are mostly the chat template."""
_TEMPLATE_TOKENS, _TEMPLATE_TOKENS_PER_MESSAGE = 128, 16
"""Generous: what chat templates and their default system messages add."""

_SPACES = re.compile(r"\s+")
_RUNS = re.compile(r"(\S)\1{3,}")
_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)


def countable(text: str) -> int:
    """Count a text's characters, runs of white space and of one character as a single one."""
    return len(_RUNS.sub(r"\1", _SPACES.sub(" ", text)))


def texts_read(messages: Iterable[Message]) -> list[str]:
    """Return what every chat template shows the model: not tool results, nor earlier thoughts."""
    return [
        _THOUGHTS.sub("", message.content) if message.role == "assistant" else message.content
        for message in messages
        if message.role != "tool"
    ]


class PromptGauge:
    """Knows how tightly one model's tokenizer has packed text so far."""

    def __init__(self) -> None:
        self._highest: float | None = None

    @property
    def chars_per_token(self) -> float:
        """The most characters per token that ordinary text is taken to have."""
        ratio = _START if self._highest is None else min(_START, max(_FLOOR, self._highest))
        return _MARGIN * ratio

    def least_tokens(self, texts: list[str], *, limit: int) -> int:
        """Return how many tokens the texts have at least; rough where below ``limit``."""
        per_token = self.chars_per_token
        rough = int(sum(map(len, texts)) / per_token)
        if rough <= limit:
            return rough
        return int(sum(map(countable, texts)) / per_token)

    @staticmethod
    def surely_fits(texts: list[str], *, num_ctx: int) -> bool:
        """Whether not even a token a byte, with room for the chat template, fills the window."""
        size = sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
        return size + _TEMPLATE_TOKENS + _TEMPLATE_TOKENS_PER_MESSAGE * len(texts) < num_ctx

    def learn(self, texts: list[str], tokens: int) -> None:
        """Take note of a prompt that was read whole."""
        highest = self._highest or 0.0
        if tokens < _LEAST_TOKENS or sum(map(len, texts)) <= highest * tokens:
            return
        self._highest = max(highest, sum(map(countable, texts)) / tokens)
