"""How long 400 calls take with the number at once that is found, and with fixed ones.

``python benchmarks/limits_bench.py`` asks a fake Ollama that works on 1, 2 and 8 requests at once,
25 ms each. Printed are ratios to the best fixed number of the same round, medians of three rounds.
"""

from __future__ import annotations

import asyncio
import statistics
import time

import typer
from fake_ollama import FakeOllama

from llmsim_lab.llm import LLMClient, LLMConfig, OllamaBackend
from llmsim_lab.types import Message

CALLS, SECONDS, FIXED = 400, 0.025, (1, 2, 4, 8, 16)


async def seconds_of(host: str, number: int | None) -> tuple[float, str]:
    """Return how long the calls take with so many at once, and what the client found."""
    config = LLMConfig(model="llama3.2", max_concurrency=number, timeout_s=1, retry_wait_s=0)
    async with LLMClient(config, OllamaBackend(host=host)) as client:
        began = time.perf_counter()
        calls = (client.converse([Message("user", f"Number {n}?")]) for n in range(CALLS))
        records = [record for _, record in await asyncio.gather(*calls)]
        assert all(record.attempts == 1 for record in records)
        return time.perf_counter() - began, repr(client.limits)


def main() -> None:
    """Measure and print."""
    for slots in (1, 2, 8):
        ratios = []
        for _ in range(3):
            with FakeOllama(reply="Yes.", delay_s=SECONDS, at_once=slots) as server:
                fixed = {n: asyncio.run(seconds_of(server.host, n))[0] for n in FIXED}
                found, told = asyncio.run(seconds_of(server.host, None))
            ratios.append(found / min(fixed.values()))
        best = min(fixed, key=lambda n: fixed[n])
        typer.echo(
            f"{slots} at once: {statistics.median(ratios):.2f} of the best fixed number ({best}: "
            f"{fixed[best]:.1f} s); {told}"
        )


if __name__ == "__main__":
    main()
