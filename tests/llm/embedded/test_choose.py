"""Probabilities of choices of the real small model, compared with answers that it draws."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest

from llmsim_lab.llm import EmbeddedBackend, LLMClient, LLMConfig
from llmsim_lab.llm.choice import Choice, label_of

pytestmark = [pytest.mark.embedded, pytest.mark.process]

PROMPT = "Prices rose fast this year. Should the bank raise, hold or lower its rate?"


def chosen(count: int, options: list[Any]) -> tuple[Choice[Any], Choice[Any]]:
    """Return a choice as measured, and from so many answers."""

    async def both() -> tuple[Choice[Any], Choice[Any]]:
        config = LLMConfig(model="auto", seed=1, num_ctx=1024, max_tokens=64)
        backend = EmbeddedBackend("smollm2-135m", num_ctx=1024)
        async with LLMClient(config, backend) as client:
            measured = await client.choose(PROMPT, options)
            backend.max_top_logprobs = 0
            return measured, await client.choose(PROMPT, options, samples=count)

    return asyncio.run(both())


def assert_alike(measured: Choice[Any], drawn: Choice[Any]) -> None:
    """Check each share, and what is off the options, by exact binomial tests at 0.1 % together."""
    answers: dict[str, list[str | None]] = {}
    for call in drawn.calls[1:]:  # the first one asked for probabilities
        assert call.reply is not None
        label = label_of(call.reply.text, measured.label_pull)
        answers.setdefault(call.request.prompt, []).append(label)
    for call in measured.calls:
        assert call.reply is not None
        found = answers[call.request.prompt]
        shares = dict.fromkeys([*measured.label_pull, None], 0.0)
        for token, log in call.reply.top_logprobs:
            shares[label_of(token, measured.label_pull)] += math.exp(log)
        shares[None] = 1 - sum(share for label, share in shares.items() if label)
        for label, share in shares.items():
            p = binomtest(found.count(label), len(found), min(share, 1.0)).pvalue
            assert p > 0.001 / len(shares) / len(answers), (label, share, found.count(label))


def test_letters_have_the_shares_that_drawn_answers_have(small_model: Path) -> None:
    measured, drawn = chosen(120, ["raise", "hold", "lower"])
    assert (measured.method, drawn.method, drawn.samples) == ("logprobs", "samples", 120)
    assert 0.05 < measured.mass < 1
    assert_alike(measured, drawn)
