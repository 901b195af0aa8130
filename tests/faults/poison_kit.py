"""Runs of ``poisoned_worlds`` on tapes, with strangers' words and with harmless ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from poisoned_worlds import HARMLESS, POISON, Poisoned

from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.types import ChatRequest

__all__ = ["client", "record", "record_both"]


def client(words: list[str]) -> LLMClient:
    """Return a model that says the words, breaks off, and fails with them."""
    count = 0

    def reply(request: ChatRequest) -> Any:
        nonlocal count
        count += 1
        word = words[count % len(words)]
        if count % 11 == 0 and request.attempt == 1:
            return f"no JSON: {word}"
        if count % 13 == 0 and request.attempt == 1:
            return ConnectionError(word)
        return {"reasoning": word, "word": word, "amount": count % 7, "confidence": 0.5}

    config = LLMConfig(model="m", retry_wait_s=0, max_concurrency=1)
    return LLMClient(config, ScriptedBackend(reply))


def record(words: list[str], folder: Path) -> None:
    run = Poisoned(
        words=tuple(words), name=words[0], llm_client=client(words), tape=folder / "x.tape"
    )
    run.run(2, progress=False)
    run.intervene(2, {"said": words[1]}, note=words[2])
    [prompt] = run.prompts.values()
    fork = run.fork(
        1, prompt=prompt.edit(f"{prompt.user} {words[5]}"), intervene={"said": words[3]}
    )
    fork.run(1, progress=False)
    for one in (run, fork):
        one.close()


def record_both(folder: Path) -> None:
    for name, words in (("poisoned", POISON), ("harmless", HARMLESS)):
        (folder / name).mkdir()
        record(words, folder / name)
