"""What a turn's record and a run's manifest hold, and how strictly they are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from builders import recorded
from counter_kit import Addition, answer, counter_client
from pydantic import BeforeValidator
from tape_text import rewrite
from worlds import PublicGoods

from llmsim_lab import Ask, Run, State
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.run import load
from llmsim_lab.run.records import record_of


class Kept(State):
    value: int = 0
    history: tuple[int, ...] = ()
    pair: Annotated[tuple[int, int], BeforeValidator(lambda value: value)] = (1, 2)


class Keeping(Run[Kept]):
    """Its players' numbers are added; nothing where one gives none."""

    kind = "keeping"

    async def turn(self, state: Kept, ask: Ask) -> Kept:
        said = await ask.each(["Ann", "Bob"], Addition, "Add, {{ name }}.", fallback=0)
        value = state.value + sum(it.add for it in said.values())
        return state.replace(value=value, history=(*state.history, value))


@pytest.fixture
def keeping(tmp_path: Path) -> Keeping:
    """A recorded run in which something stands in for Bob's answers."""
    client = counter_client(lambda asked: "no" if asked.site.agent == "Bob" else answer(asked))
    return recorded(Keeping(llm_client=client, tape=tmp_path / "x.tape"), 2)


def test_what_refers_to_a_call_says_its_place(keeping: Keeping) -> None:
    record = record_of(Keeping, keeping.turns[1])
    assert record["calls"] == [["ok", [1]], ["failed", [2, 3]]]
    assert [answer["calls"] for answer in record["by_code"]] == [[1]]
    assert "messages" not in json.dumps(record)


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(record: Any) -> None:
        for name in path[:-1]:
            record = record[name]
        record[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (put("state", "value", value="8"), "state.value: Input should be a valid integer"),
        (put("state", "value", value=8.0), "state.value: Input should be a valid integer"),
        (put("state", "history", value=None), "state.history: "),
        (put("state", "pair", value=["1", 2]), "state.pair"),
        (put("seconds", value="1"), "seconds: Input should be a valid number"),
        (put("more", value=1), "more: Extra inputs are not permitted"),
        (put("story", value=[1]), "story.0: Input should be a valid string"),
        (put("by_code", 0, "sure", value="1"), "by_code.0.sure: Input should be a valid number"),
        (put("by_code", 0, "calls", 0, value=9), "by_code.0.calls.0: 9 does not name a call"),
        (put("by_code", 0, "calls", 0, value=-1), "by_code.0.calls.0: -1 does not name a call"),
    ],
)
@pytest.mark.usefixtures("keeping")
def test_a_record_is_read_strictly_by_its_types(
    path: Path, change: Callable[[dict[str, Any]], None], fault: str
) -> None:
    def edit(line: dict[str, Any]) -> dict[str, Any]:
        if line.get("is") == "turn" and line["turn"] == 1:
            change(line["record"])
        return line

    rewrite(path, edit)
    with pytest.raises(TapeError, match=rf"turn 1 (of run 1 )?on the tape .*is damaged: .*{fault}"):
        load(path)


def test_a_second_attempt_names_its_first_and_a_text_at_its_limit_is_marked(tmp_path: Path) -> None:
    long = {"reasoning": "so " * 300, "amount": 2, "confidence": 0.5}
    cut_at_its_limit = long | {"reasoning": long["reasoning"][:400]}
    client = LLMClient(
        LLMConfig(model="m", retry_wait_s=0), ScriptedBackend(["I will not say.", cut_at_its_limit])
    )
    path = tmp_path / "pot.tape"
    PublicGoods(llm_client=client, players={"*": "random", "Ann": client}, tape=path).run(1)
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    first, second = [line for line in lines if line.get("is") == "call"]
    assert (first["no"], second["first"], second["cut"]) == (1, 1, ["reasoning"])
    assert "first" not in first
    assert "cut" not in first
    [attempt] = [call.attempt for call in Tape(path).calls(1) if call.attempt.first]
    assert (attempt.number, attempt.cut) == (2, ("reasoning",))


@pytest.mark.parametrize("path", [3, None, "\ud800", "a\0b", "n" * 300])
def test_what_is_no_path_is_an_error_that_names_it(path: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"path=.* (must be a path|is not a file's name|too long)"
    ):
        Tape(path)
