"""A person's seat in a world of one's own: its form has the fields of whatever is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import ipywidgets as w
import pytest
from pydantic import Field
from worlds import PublicGoods

from llmsim_lab import Ask, Person, Reply, Run, State
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import HumanSeat

SAID = {"reasoning": "I like them.", "confidence": 0.8}


class Weather(Enum):
    SUN = "sun"
    RAIN = "rain"


class Wide(Reply):
    count: int = Field(ge=1, le=9)
    share: float = Field(gt=0, lt=1)
    rate: float
    sure: bool
    side: Literal["left", "right"]
    weather: Weather
    words: str
    parts: list[int]


class Told(State):
    told: dict[str, str] = Field(default_factory=dict)


class Questions(Run[Told]):
    """Asks two people for everything that can be asked for."""

    async def turn(self, state: Told, ask: Ask) -> Told:
        said = await ask.each(
            ["Ann", "Bob"], Wide, "Well, {{ name }}?", step={"rate": 0.25}, limits={"rate": (1, 2)}
        )
        return state.replace(told={name: reply.model_dump_json() for name, reply in said.items()})


WIDE: dict[str, Any] = SAID | {
    "count": 3,
    "share": 0.5,
    "rate": 1.25,
    "sure": False,
    "side": "left",
    "weather": "rain",
    "words": "Well.",
    "parts": [1, 2],
}


@asynccontextmanager
async def asked_at(run: Any, **more: Any) -> AsyncIterator[HumanSeat]:
    """A seat whose turn was begun with a click and waits; it is stopped afterwards."""
    seat = HumanSeat(run, **more)
    seat.step_button.click()
    await seat.asked()
    yield seat
    seat.stop_button.click()
    await seat.idle()
    seat.close()


def pot(tape: Path | None = None, **players: Any) -> PublicGoods:
    return PublicGoods(players={"*": "random", **players}, tape=tape, turns=2)


async def test_a_turn_is_played_from_the_seat_recorded_and_replayed(tmp_path: Path) -> None:
    run = pot(tmp_path / "t.tape", Bob=Person())
    seat = HumanSeat(run)
    await seat.take_turn(amount=7, **SAID)
    await seat.take_turn(amount=2, **SAID)
    assert [turn.state.given["Bob"] for turn in run.turns[1:]] == [7, 2]
    assert "All 2 turns are played." in seat.status.value
    assert "Score" not in seat.status.value
    assert seat.static_text() == "\n".join(
        [
            "Seat of Bob: turn 2",
            "turn 1: Bob (ok): amount 7",
            "turn 2: Bob (ok): amount 2",
        ]
    )
    assert '<div dir="auto">amount 7</div>' in str(seat.static_html())
    seat.close()
    run.close()
    again = PublicGoods.replay(tmp_path / "t.tape")
    assert again.state == run.state
    recorded = HumanSeat(PublicGoods.load(tmp_path / "t.tape"))
    assert "turn 1: Bob (ok): amount 7" in recorded.static_text()
    recorded.close()


async def test_the_form_has_the_fields_of_the_reply_and_the_person_what_a_model_sees() -> None:
    async with asked_at(pot(Bob=Person())) as seat:
        form = seat.forms["Bob"]
        assert list(form.fields) == ["reasoning", "amount", "confidence"]
        amount = form.fields["amount"].box
        assert isinstance(amount, w.Text)
        slider = form.fields["amount"].slider
        assert (type(slider), slider.min, slider.max) == (w.IntSlider, 0, 20)
        assert form.values["amount"] is None
        labels = [part.value for part in form.children if isinstance(part, w.HTML)]
        assert "coins for the pot; a whole number from 0 to 20" in labels
        assert "You are Bob and have 20" in seat.prompt.value
        assert seat.facts.value == ""
        assert seat.score_button.layout.display == "none"


async def test_where_a_turn_begins_with_the_question_one_click_plays_it() -> None:
    run = pot(Bob=Person())
    seat = HumanSeat(run)
    form = seat.forms["Bob"]
    assert "Your answer plays turn 1." in seat.status.value
    assert "You are Bob and have 20" in seat.prompt.value
    form.fill(amount=7, **SAID)
    form.answer_button.click()
    await seat.idle()
    assert run.state.given["Bob"] == 7
    assert form.values["amount"] is None
    seat.close()


async def test_what_is_wrong_is_said_while_one_writes_and_when_it_is_sent() -> None:
    async with asked_at(pot(Bob=Person())) as seat:
        form = seat.forms["Bob"]
        form.fields["amount"].box.value = "many"
        assert "amount is &#39;many&#39;; it must be a whole number from 0 to 20" in form.hint.value
        form.fields["amount"].box.value = "21"
        assert "amount is 21; it must be a whole number from 0 to 20" in form.hint.value
        form.answer_button.click()
        await seat.sent()
        assert "reasoning is missing" in form.complaint.value
        assert seat.waiting_for == ("Bob",)
        with pytest.raises(ConfigError, match="'amout' is not asked for; the fields of the answer"):
            seat.answer(amout=3, **SAID)


async def test_every_type_of_field_can_be_filled_in_and_sent_by_a_click() -> None:
    run = Questions(players={"Ann": "random", "Bob": Person()}, turns=1)
    seat = HumanSeat(run)
    seat.step_button.click()
    await seat.asked()
    form = seat.forms["Bob"]
    assert {name: type(field.box) for name, field in form.fields.items()} == {
        "reasoning": w.Textarea,
        "count": w.Text,
        "share": w.Text,
        "rate": w.Text,
        "sure": w.Checkbox,
        "side": w.ToggleButtons,
        "weather": w.ToggleButtons,
        "words": w.Textarea,
        "parts": w.Textarea,
        "confidence": w.Text,
    }
    assert {name: type(field.slider) for name, field in form.fields.items() if field.slider} == {
        "count": w.IntSlider,
        "share": w.FloatSlider,
        "rate": w.SelectionSlider,
        "confidence": w.SelectionSlider,
    }
    assert [label for label, _ in form.fields["rate"].slider.options][:2] == ["1", "1.25"]
    assert form.values | {"sure": None} == dict.fromkeys(form.fields) | {
        "reasoning": "",
        "words": "",
    }
    form.fill(**WIDE)
    form.answer_button.click()
    await seat.idle()
    assert form.complaint.value == ""
    said = Wide.model_validate_json(run.state.told["Bob"])
    assert said == Wide.model_validate(WIDE)
    assert form.fields["words"].box.value == ""
    seat.close()


async def test_of_one_person_who_answers_for_several_the_question_of_whom_is_waited_for() -> None:
    person = Person()
    async with asked_at(Questions(players={"Ann": person, "Bob": person})) as seat:
        assert [(await seat.asked(name)).agent for name in ("Ann", "Bob")] == ["Ann", "Bob"]


async def test_one_seat_serves_all_that_a_person_answers_for() -> None:
    run = PublicGoods(players={"*": "person", "Ann": "random"}, turns=1)
    seat = HumanSeat(run)
    seat.step_button.click()
    for name in ("Bob", "Cy", "Di"):
        await seat.asked()
        assert seat.waiting_for == (name,)
        seat.answer(amount=1, **SAID)
        await seat.sent()
    await seat.idle()
    assert run.state.given["Di"] == 1
    assert "turn 1: Di (ok): amount 1" in seat.static_text()
    seat.close()


def test_a_world_without_people_says_how_to_name_one() -> None:
    with pytest.raises(ConfigError, match=r'PublicGoods\(players={"Bob": Person\(\)}\)'):
        HumanSeat(pot())
    with pytest.raises(ConfigError, match="agent='Cy' is not a person in this run"):
        HumanSeat(pot(Bob="person"), agent="Cy")
    with pytest.raises(ConfigError, match="PublicGoods is not an economic simulation and has"):
        HumanSeat(pot(Bob="person")).leaderboard()
