"""Runs of ``poisoned_worlds`` on tapes, with strangers' words and with harmless ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assistant_kit import MemoryTasks, ScriptedAdapter, call
from poisoned_worlds import (
    ATTRIBUTE,
    CONSTRUCTOR,
    CONTROLS,
    DIRECTIONS,
    FORMULA,
    HARMLESS,
    MARKUP,
    POISON,
    SCRIPT,
    TERMINAL,
    Poisoned,
)

from llmsim_lab._util.waiting import run_sync
from llmsim_lab.assistant import Chat, LLMAgentEngine, load_constitution
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.study import Study
from llmsim_lab.types import ChatRequest

__all__ = ["chat_of", "client", "record", "record_both", "study_of"]


def client(words: list[str]) -> LLMClient:
    """Return a model that says the words, breaks off, and fails with them."""
    count = 0

    def reply(request: ChatRequest) -> Any:
        nonlocal count
        count += 1
        word = words[count % len(words)]
        is_first = request.attempt == 1
        if is_first and count % 11 == 0:
            return f"no JSON: {word}"
        if is_first and count % 13 == 0:
            return ConnectionError(word)
        return {"reasoning": word, "word": word, "amount": count % 7, "confidence": 0.5}

    config = LLMConfig(model="m", retry_wait_s=0, max_concurrency=1)
    return LLMClient(config, ScriptedBackend(reply))


def record(words: list[str], folder: Path) -> None:
    run = Poisoned(
        words=tuple(words), name=words[SCRIPT], llm_client=client(words), tape=folder / "x.tape"
    )
    run.run(2, progress=False)
    run.intervene(2, {"said": words[ATTRIBUTE]}, note=words[TERMINAL])
    [prompt] = run.prompts.values()
    fork = run.fork(
        1,
        prompt=prompt.edit(f"{prompt.user} {words[MARKUP]}"),
        intervene={"said": words[DIRECTIONS]},
    )
    fork.run(1, progress=False)
    for one in (run, fork):
        one.close()


def chat_of(words: list[str]) -> Chat:
    """Return a conversation of the words: messages, answers, a tool's arguments and results."""
    script: list[Any] = []
    for word in words:
        script += [[call("add_task", title=word)], word]
    engine = LLMAgentEngine(ScriptedAdapter(*script), MemoryTasks(), load_constitution())
    chat = Chat(user_id=words[SCRIPT], players={"assistant": engine})

    async def talk() -> None:
        for word in words:
            await chat.send(f"Add {word}")

    run_sync(talk())  # also in a notebook, whose loop runs
    return chat


def study_of(words: list[str]) -> Study:
    """Return a study whose name, levels, columns and wordings are strangers' words."""
    study = Study(
        Poisoned,
        {
            "words": {
                words[FORMULA]: tuple(words),
                words[SCRIPT]: (*words, words[CONTROLS]),
                words[TERMINAL]: words[1:],
            }
        },
        outcome=f"coins.{words[CONSTRUCTOR]}@last",
        seeds=2,
        turns=1,
        name=words[ATTRIBUTE],
        llm_client=client(words),
    )
    study.run(progress=False)
    return study


def record_both(folder: Path) -> None:
    for name, words in (("poisoned", POISON), ("harmless", HARMLESS)):
        (folder / name).mkdir()
        record(words, folder / name)
