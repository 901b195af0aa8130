"""Probabilities of choices of the real small model, compared with answers that it draws."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest

from llmsim_lab.llm import EmbeddedBackend, LLMClient, LLMConfig
from llmsim_lab.llm._choose import Choice

pytestmark = [pytest.mark.embedded, pytest.mark.process]

PROMPT = "Prices rose fast this year. Should the bank raise, hold or lower its rate?"


def chosen(count: int, options: list[Any], **more: Any) -> tuple[Choice[Any], Choice[Any]]:
    """Return a choice as measured, and from so many answers."""

    async def both() -> tuple[Choice[Any], Choice[Any]]:
        config = LLMConfig(model="auto", seed=1, num_ctx=1024, max_tokens=64)
        async with LLMClient(config, EmbeddedBackend("smollm2-135m", num_ctx=1024)) as client:
            measured = await client.choose(PROMPT, options, **more)
            drawn = await client.choose(PROMPT, options, samples=count, method="samples")
            return measured, drawn

    return asyncio.run(both())


def assert_alike(measured: Choice[Any], drawn: Choice[Any]) -> None:
    """Check each share, and what is off the options, by exact binomial tests at 0.1 % together."""
    each = drawn.samples // len(drawn.measured)
    shares = [
        (seen, expected)
        for known, counted in zip(measured.measured, drawn.measured, strict=True)
        for seen, expected in [
            *((counted[option], known[option]) for option in known),
            (sum(counted.values()), sum(known.values())),
        ]
    ]
    for seen, expected in shares:
        p = binomtest(round(seen * each), each, min(expected, 1.0)).pvalue
        assert p > 0.001 / len(shares), (seen, expected)


def test_letters_have_the_shares_that_drawn_answers_have(small_model: Path) -> None:
    measured, drawn = chosen(240, ["raise", "hold", "lower"])
    assert (measured.method, drawn.method, drawn.samples) == ("logprobs", "samples", 240)
    assert 0.05 < measured.mass < 1
    assert_alike(measured, drawn)
