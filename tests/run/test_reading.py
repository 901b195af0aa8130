"""A run as a log of records: whole, growing at its end only, and small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, played
from page_kit import Log
from worlds import PublicGoods

from llmsim_lab.run import Ask, Run, State, Turn
from llmsim_lab.run.reading import Reading, plain
from llmsim_lab.run.recorded import RunOrigin, about
from llmsim_lab.tape import Tape
from llmsim_lab.types import ChatReply

GIFT = {"amount": 3, "reasoning": "So.", "confidence": 0.5}


def read(run: PublicGoods) -> Reading:
    reading = Reading("a game")
    reading.add(about(run, 1), run)
    return reading


def test_records_hold_what_a_turn_was_in_json() -> None:
    run = PublicGoods(llm_client=make_client([GIFT] * 4, seed=5), state=None, name="gifts")
    run.run(1)
    reading = read(run)
    assert json.loads(json.dumps(reading.records)) == reading.records
    known = Log(reading.records)
    turn = known.turns[1, 1]
    columns = reading.runs[1]["columns"]
    assert dict(zip(columns, turn["row"], strict=True))["given.Ann"] == 3
    ann = turn["decisions"][0]
    assert (ann["player"], ann["status"], ann["confidence"]) == ("Ann", "ok", 0.5)
    assert ann["answer"] == {"amount": 3}
    assert known.text(ann["reasoning"]) == "So."
    [tried] = reading.calls[ann["calls"][0]]["tries"]
    assert json.loads(known.text(tried["reply"])) == GIFT
    settings = json.loads(known.text(tried["settings"]))
    assert settings["model"] == "auto"
    assert "amount" in settings["schema"]["properties"]
    assert tried["seed"] == 5


class Weather(State):
    rain: str = ""


class Walk(Run[Weather]):
    async def turn(self, state: Weather, ask: Ask) -> Weather:
        async def found() -> dict[str, bool]:
            return {"rain": True}

        ask.note(text="They looked out.")
        rain = await ask.outside("weather", {"in": "Rome"}, found, once=True)
        return state.replace(rain=str(rain))


def test_what_came_from_outside_ends_a_turns_story(path: Path) -> None:
    walk = played(Walk(tape=path), 1)
    reading = Reading("a walk")
    reading.add(about(walk, 1), walk)
    known = Log(reading.records)
    assert [known.text(words) for words in known.turns[1, 1]["words"]] == [
        "They looked out.",
        'weather {"in":"Rome"}: {"rain":true}',
    ]


def test_a_repaired_call_has_both_attempts_with_what_was_wrong() -> None:
    run = played(PublicGoods(llm_client=make_client([{"amount": 99}, *[GIFT] * 4])), 1)
    reading = read(run)
    [repaired] = [call for call in reading.calls.values() if call["status"] == "repaired"]
    first, second = repaired["tries"]
    assert first["fault"] == "invalid_response"
    assert "amount" in Log(reading.records).text(first["detail"])
    assert "fault" not in second
    assert len(second["messages"]) > len(first["messages"])


def test_the_log_only_grows_and_what_changed_comes_again() -> None:
    run = PublicGoods(players="random")
    reading = read(run)
    run.run(2)
    reading.add(about(run, 1), run)
    before = list(reading.records)
    reading.add(about(run, 1), run)
    assert reading.records == before
    run.intervene(2, {"coins.Ann": 5})
    reading.add(about(run, 1), run)
    [again] = reading.since(len(before))
    assert again["turn"]["n"] == 2
    assert again["turn"]["done"] == ["turn 2: coins.Ann = 5"]
    assert reading.records[: len(before)] == before


def test_a_turn_costs_what_is_new_however_long_the_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    run = played(PublicGoods(players="random"), 30)
    reading = read(run)
    run.run(1)
    own = Turn.columns
    monkeypatch.setattr(Turn, "columns", lambda turn: asked.append(turn) or own(turn))
    reading.add(about(run, 1), run)
    assert {turn.number for turn in asked} == {31}


def test_texts_that_would_take_too_much_memory_are_left_out_and_a_sentence_says_so() -> None:
    reading = Reading("a game")
    short, long = map(reading.keep_text, ("so", "x" * 2**27))
    assert reading.keep_text("y" * 2**27) == long != short
    reading.put("a view", "", "")
    log = Log(reading.records)
    assert log.text(short) == "so"
    assert log.text(long).startswith("(Left out here: the texts of a page or window take no more")


def test_numbers_that_come_later_can_be_charted() -> None:
    run = PublicGoods(players="random")
    reading = read(run)
    assert [it["column"] for it in reading.runs[1]["series"]] == [
        f"coins.{it}" for it in run.state.coins
    ]
    run.run(1)
    reading.add(about(run, 1), run)
    assert "given.Di" in [it["column"] for it in reading.runs[1]["series"]]
    assert reading.records[-2]["run"]["series"] == reading.runs[1]["series"]


def test_calls_on_a_tape_have_its_numbers_and_others_come_after(path: Path) -> None:
    taped = played(PublicGoods(llm_client=make_client([GIFT] * 4, seed=5), tape=path), 1)
    loose = played(PublicGoods(llm_client=make_client([GIFT] * 4, seed=5)), 1)
    reading = read(taped)
    reading.add(about(loose, 2), loose)
    assert sorted(reading.calls) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert Log(reading.records).turns[1, 1]["calls"] == [1, 2, 3, 4]


def test_a_number_that_json_does_not_know_is_a_word() -> None:
    assert plain({"a": [float("nan"), 0.1 + 0.2], "b": {1: (True, None)}}) == {
        "a": ["NaN", 0.3],
        "b": {"1": [True, None]},
    }


def test_a_fork_has_its_own_turns_with_what_it_changed_and_its_parents_before() -> None:
    run = played(PublicGoods(players="random"), 2)
    reading = read(run)
    same, poorer = run.fork(1), run.fork(1, intervene={"coins.Ann": 3})
    same.run(1)
    for number, fork in ((2, same), (3, poorer)):
        reading.add(
            about(fork, number, RunOrigin(parent=1, fork_turn=1)), fork, changes=["a change"]
        )
    turns = Log(reading.records).turns
    assert [*turns] == [(1, 0), (1, 1), (1, 2), (2, 2), (3, 1)]
    assert reading.runs[2]["changes"] == ["a change"]
    of_poorer = turns[3, 1]
    at = reading.runs[3]["columns"].index("coins.Ann")
    assert (of_poorer["row"][at], of_poorer["done"]) == (3, ["turn 1: coins.Ann = 3"])
    assert of_poorer["calls"] == turns[1, 1]["calls"]


class Tally(State):
    level: float = 1
    talks: int = 0


class Talk(Run[Tally]):
    async def turn(self, state: Tally, ask: Ask) -> Tally:
        return state.replace(level=state.level + 1, talks=2)


def test_a_number_set_from_outside_that_each_turn_makes_anew_is_told_beside_the_fork() -> None:
    run = played(Talk(), 3)
    reading = Reading("talks")
    reading.add(about(run, 1), run)
    for number, name in ((2, "talks"), (3, "level")):
        fork = run.fork(1, intervene={name: 9})
        origin = RunOrigin(parent=1, fork_turn=1)
        reading.add(about(fork, number, origin), fork)
        assert reading.runs[number]["notes"] == []  # nothing was played yet
        fork.run(2)
        reading.add(about(fork, number, origin), fork)
    [note] = reading.runs[2]["notes"]
    assert note.startswith("Setting talks made no difference: the turns after it end as")
    assert reading.runs[3]["notes"] == []


@pytest.mark.parametrize(
    ("cached", "words"),
    [
        (80, "40 % of the prompts' tokens were read anew; no less would do"),
        (None, "(computed from the texts: the server does not tell)"),
    ],
)
def test_what_was_read_anew_stands_in_log_manifest_and_table_of_calls(
    path: Path, cached: int | None, words: str
) -> None:
    def reply(n: int) -> ChatReply:
        known = 0 if n == 0 and cached else cached
        text = json.dumps({**GIFT, "reasoning": "a" * 40})
        return ChatReply(text=text, prompt_tokens=100, cached_tokens=known)

    client = make_client(map(reply, range(4)), max_text_chars=40)
    run = played(PublicGoods(llm_client=client, tape=path), 1)
    reading = read(run)
    said = run.manifest()["prompts_read"]
    assert words in said
    assert reading.runs[1]["read"] == Log(reading.records).runs[1]["read"] == said
    first, *_, tried = [call["tries"][0] for call in reading.calls.values()]
    assert first["anew"] == 100
    assert (tried["anew"] == 20, tried.get("counted", False)) == (bool(cached), bool(cached))
    assert tried["cut_fields"] == ["reasoning"]
    last = Tape(path).calls_frame().iloc[-1]
    assert (last["tokens_anew"], last["cut"]) == (tried["anew"], "reasoning")
    assert last["anew_by"] == ("server" if cached else "texts")
    assert "prompts_read" not in played(PublicGoods(players="random"), 1).manifest()
