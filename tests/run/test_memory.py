"""Memory in a state: what is recent, what matters, what fits; and on a tape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from llmsim_lab import Ask, LLMClient, LLMConfig, Reply, Run, ScriptedBackend, State, replay
from llmsim_lab.errors import ConfigError
from llmsim_lab.run import Memory


def remembered() -> Memory:
    memory = Memory()
    for turn, text, weight in ((1, "war", 8.0), (2, "tea", 1.0), (12, "rain", 1.0), (13, "sun", 1)):
        memory = memory.add(turn, text, weight=weight)
    return memory


def texts(entries: list[Any]) -> list[str]:
    return [str(entry) for entry in entries]


def test_recent_entries_are_the_newest_and_salient_ones_weigh_more_than_their_age() -> None:
    memory = remembered()
    assert texts(memory.recent(2)) == ["rain", "sun"]
    assert texts(memory.recent(9)) == ["war", "tea", "rain", "sun"]
    assert texts(memory.salient(2)) == ["war", "sun"]
    assert texts(memory.salient(2, half_life=1)) == ["rain", "sun"]
    assert texts(memory.add(3, "late news").recent(3)) == ["late news", "rain", "sun"]


def test_what_fits_is_counted_in_tokens_from_the_newest_on_without_gaps() -> None:
    memory = remembered().add(14, "a long story of forty characters or more")
    assert texts(memory.within(10)) == ["a long story of forty characters or more"]
    assert texts(memory.within(11)) == ["sun", "a long story of forty characters or more"]
    assert texts(memory.within(9)) == []
    assert texts(memory.within(2, count=lambda text: 1)) == ["sun", memory.entries[-1].text]
    assert texts(remembered().within(2, half_life=10)) == ["war", "sun"]


@pytest.mark.parametrize("wrong", ["recent", "salient", "within"])
def test_nothing_wanted_is_an_error(wrong: str) -> None:
    with pytest.raises(ConfigError, match=rf"memory.{wrong}\(0\) returns nothing"):
        getattr(remembered(), wrong)(0)
    with pytest.raises(ConfigError, match="half_life=0 must be above 0"):
        remembered().salient(1, half_life=0)


class Days(State):
    memory: dict[str, Memory] = Field(default_factory=lambda: {"Ann": Memory(), "Bob": Memory()})


class Note(Reply):
    words: str


class Diary(Run[Days]):
    """Each day is remembered; every second day is summed up, by a question."""

    async def turn(self, state: Days, ask: Ask) -> Days:
        notes = await ask.each(
            state.memory,
            Note,
            "{% for entry in memory %}Day {{ entry.turn }}: {{ entry.text }}\n{% endfor %}"
            "You are {{ name }}. What happened today?",
            memory=lambda name: state.memory[name].within(20),
        )
        memory = {
            name: known.add(ask.turn, notes[name].words) for name, known in state.memory.items()
        }
        if ask.turn % 2 == 0:
            whole = {name: " ".join(texts(known.recent(9))) for name, known in memory.items()}
            short = await ask.each(
                memory, Note, "Sum up: {{ whole }}", tag="summary", whole=whole.__getitem__
            )
            memory = {
                name: Memory().add(ask.turn, reply.words, weight=2) for name, reply in short.items()
            }
        return Days(memory=memory)


def answer(request: Any) -> dict[str, object]:
    words = f"all of {request.site.turn} days" if "Sum up" in request.prompt else "rain"
    return {"reasoning": "", "words": words, "confidence": 1}


def test_a_summary_is_a_question_and_memory_is_on_the_tape(tmp_path: Path) -> None:
    path = tmp_path / "diary.tape"
    client = LLMClient(LLMConfig(model="script"), ScriptedBackend(answer))
    run = Diary(llm_client=client, tape=path)
    run.run(3)
    run.close()
    assert texts(run.state.memory["Ann"].recent(9)) == ["all of 2 days", "rain"]
    prompts = [call.request.prompt for call in run.turns[3].calls]
    assert prompts[0] == "Day 2: all of 2 days\nYou are Ann. What happened today?"
    assert Diary.replay(path).state == run.state
    fork = run.fork(1, llm_client=client)
    fork.run(1)
    assert texts(fork.state.memory["Bob"].recent(9)) == ["all of 2 days"]


class CountingWords(ScriptedBackend):
    """Counts a text's words as its tokens, and which texts it was asked about."""

    counted: list[str]

    async def count_tokens(self, text: str) -> int:
        self.counted.append(text)
        return len(text.split())


class Chronicle(Run[Days]):
    async def turn(self, state: Days, ask: Ask) -> Days:
        memory = {}
        for name, known in state.memory.items():
            text = f"{name} saw a b c d"
            memory[name] = await known.add(ask.turn, text).counted(ask)
        return Days(memory=memory)


def test_tokens_are_counted_once_by_the_models_tokenizer_and_replayed(tmp_path: Path) -> None:
    backend = CountingWords([])
    backend.counted = []
    client = LLMClient(LLMConfig(model="script"), backend)
    run = Chronicle(llm_client=client, tape=tmp_path / "days.tape")
    run.run(2)
    run.close()
    assert len(backend.counted) == 4
    memory = run.state.memory["Ann"]
    assert [entry.tokens for entry in memory.entries] == [6, 6]
    # The estimate, four bytes a token, would be 4.
    assert (len(memory.within(11)), len(memory.within(12))) == (1, 2)
    assert replay(tmp_path / "days.tape").state == run.state
    assert len(backend.counted) == 4


def test_without_a_tokenizer_tokens_are_estimated() -> None:
    client = LLMClient(LLMConfig(model="script"), ScriptedBackend([]))
    run = Chronicle(llm_client=client)
    run.run(1)
    [entry] = run.state.memory["Ann"].entries
    assert entry.tokens is None
    assert len(run.state.memory["Ann"].within(4)) == 1
    assert run.state.memory["Ann"].within(3) == []


def test_what_is_no_number_of_entries_and_no_weight_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"memory.recent=1.5 must be a whole number"):
        remembered().recent(1.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="half_life=nan must be a finite number"):
        remembered().salient(1, half_life=float("nan"))
    with pytest.raises(ConfigError, match="weight=nan must be a finite number"):
        Memory().add(1, "rain", weight=float("nan"))
    with pytest.raises(ConfigError, match="what is remembered is a text"):
        Memory().add(1, 5)  # type: ignore[arg-type]
