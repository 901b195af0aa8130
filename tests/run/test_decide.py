"""Players who are asked for the probability of each answer, of which one is taken."""

from __future__ import annotations

import math
import re
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from builders import make_client
from pydantic import Field

from llmsim_lab import Ask, Reply, Run, State
from llmsim_lab.assistant import ToolCall
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import TurnStepper
from llmsim_lab.llm import ChatReply, Person
from llmsim_lab.types import ChatRequest

CHANCES = {"0": 0.1, "5": 0.5, "10": 0.2, "up": 0.6, "down": 0.2, "yes": 0.1, "no": 0.7}


def answer(request: ChatRequest) -> ChatReply:
    letters = re.findall(r"^([A-Z]): (.+)$", request.messages[-1].content, re.MULTILINE)
    top = tuple((letter, math.log(CHANCES[text])) for letter, text in letters)
    return ChatReply(text="A", top_logprobs=top)


class Way(Enum):
    UP = "up"
    DOWN = "down"


class Move(Reply):
    way: Way


class Gift(Reply):
    amount: int = Field(ge=0, le=20)


class Two(Reply):
    first: int
    second: int


class Vote(Reply):
    yes: bool


class Side(Reply):
    side: Literal["up", "down"]


class Rate(Reply):
    rate: float


class Said(State):
    answers: dict[str, Any] = dict.fromkeys([])


def asking(
    reply: type[Reply],
    tape: Path | None = None,
    *,
    turns: int = 1,
    players: Any = (),
    **question: Any,
) -> Any:
    class Once(Run[Said]):
        async def turn(self, state: Said, ask: Ask) -> Said:
            replies = await ask.each(["Ann", "Bob"], reply, "You are {{ name }}.", **question)
            return Said(answers={name: it.model_dump(mode="json") for name, it in replies.items()})

    run = Once(llm_client=make_client(answer), tape=tape, turns=turns, players=dict(players))
    run.run(turns)
    return run


@pytest.mark.parametrize(
    ("reply", "decide", "more", "taken"),
    [
        (Move, "mode", {}, {"way": "up"}),
        (Side, "mode", {}, {"side": "up"}),
        (Vote, "mode", {}, {"yes": False}),
        (Gift, "mode", {"limits": {"amount": [0, 5, 10]}}, {"amount": 5}),
        (Gift, "expected", {"limits": {"amount": [0, 10]}}, {"amount": 10}),
        (Gift, "mode", {"limits": {"amount": (7, 7)}}, {"amount": 7}),
        (Rate, "expected", {"limits": {"rate": [0, 5, 10]}}, {"rate": 5.0}),
    ],
)
def test_what_is_taken_follows_from_the_probabilities(
    reply: type[Reply], decide: str, more: dict[str, Any], taken: dict[str, Any]
) -> None:
    said = asking(reply, decide=decide, **more).state.answers["Ann"]
    assert {name: said[name] for name in taken} == taken


def test_draws_are_each_players_own_and_the_same_in_a_replay(path: Path) -> None:
    run = asking(Move, path, turns=15, decide="sample")
    played = [turn.state.answers for turn in run.turns[1:]]
    ways = {name: [said[name]["way"] for said in played] for name in ("Ann", "Bob")}
    assert ways["Ann"] != ways["Bob"]
    share = (ways["Ann"] + ways["Bob"]).count("up") / 30
    assert share == pytest.approx(0.75, abs=0.2)
    assert type(run).replay(path).state == run.state


def test_decisions_show_what_was_taken_and_why_and_not_the_calls_that_measured() -> None:
    run = asking(Move, decide="mode")
    decisions = run.decisions()
    assert list(decisions["player"]) == ["Ann", "Bob"]
    assert list(decisions["way"]) == ["up", "up"]
    assert decisions["reasoning"][0] == "mode: way up has 75.0%; 80.0% of all answers are options"
    shown = TurnStepper(run).static_text()
    assert shown.endswith("  Ann: way up\n  Bob: way up")
    assert len(run.calls) == 4


@pytest.mark.parametrize(
    ("reply", "more", "fault"),
    [
        (Two, {}, "one thing to choose, and Two of Ann has first, second"),
        (Rate, {}, "needs the values, at most 101, of Rate.rate for Ann"),
        (Move, {"decide": "best"}, "decide='best' of Ann must be one of sample, mode, expected"),
        (Move, {"decide": "expected"}, "decide='expected' needs numbers, of Move.way for Ann"),
    ],
)
def test_what_cannot_be_decided_so_is_an_error(
    reply: type[Reply], more: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ConfigError, match=fault):
        asking(reply, **{"decide": "mode", **more})


def test_a_person_gives_one_answer_where_others_are_asked_for_probabilities() -> None:
    person = Person(ask=lambda _: {"reasoning": "", "way": "down", "confidence": 1})
    said = asking(Move, decide="mode", players={"Ann": person}).state.answers
    assert (said["Ann"]["way"], said["Bob"]["way"]) == ("down", "up")


async def test_what_a_cell_shows_of_a_turn_and_of_its_calls_has_no_measured_seconds() -> None:
    turn = await asking(Side, decide="mode").step()
    tool = ToolCall(tool_name="clock", duration_ms=7.25)
    shown = [repr(turn), repr(turn.answers), repr(turn.calls), repr(tool), tool._repr_html_()]
    assert turn.seconds > 0
    assert not any("seconds" in text or "7.25" in text for text in shown)
