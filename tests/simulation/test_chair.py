"""A person in the economy: which rates are on offer, what an answer becomes, what is shown."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_client, played

from llmsim_lab.economy.macro import set_levels
from llmsim_lab.llm import Person
from llmsim_lab.llm.human import OpenQuestion
from llmsim_lab.models import GlobalState
from llmsim_lab.prompts import Prompt
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation.chair import advice_for, as_reply, in_rates, rates_of
from llmsim_lab.simulation.world import Economy


def bank(rate: float = 4.0, **more: Any) -> Simulation:
    state = Economy().with_economy(set_levels(GlobalState(), interest_rate=rate))
    return Simulation(**{"players": {"Ann": "person"}, "nations": ["Ann"], **more}, state=state)


def moves(*sizes: int) -> list[dict[str, int]]:
    return [{"rate_change_bp": size} for size in sizes]


@pytest.mark.parametrize(
    ("rate", "on_offer", "rates"),
    [
        (4.0, (25, 0, -25), dict(zip([3.75, 4.0, 4.25], moves(-25, 0, 25), strict=True))),
        # Of moves that end at one bound the smallest is offered.
        (0.1, (-50, -25, 0, 25), dict(zip([0, 0.1, 0.35], moves(-25, 0, 25), strict=True))),
        (25.0, (0, 25, 50), dict(zip([25], moves(0), strict=True))),
        (9.673333, (0, 25), dict(zip([9.67, 9.92], moves(0, 25), strict=True))),
    ],
)
def test_rates_are_where_the_moves_on_offer_lead(rate: float, on_offer: Any, rates: Any) -> None:
    found = rates_of(bank(rate, moves_bp=on_offer))
    assert list(found.items()) == list(rates.items())


def test_words_leave_the_rates_of_an_engine_to_a_person_only_where_nobody_judges_them() -> None:
    words = {"moves_bp": None, "engine": {"max_move": 0.5}}
    assert rates_of(bank(**words)) == {
        rate: {"proposed_rate": rate} for rate in (3.5, 3.75, 4.0, 4.25, 4.5)
    }
    assert rates_of(bank(**words, llm_client=make_client())) == {}
    for seat in ("engine", "*"):
        assert rates_of(bank(**words | {"players": {"Ann": "person", seat: "rule"}})) == {}


def questions_to(seat: str, **more: Any) -> tuple[Simulation, list[OpenQuestion]]:
    """Return a run, and what the person in a seat was asked in its first turn."""
    asked: list[OpenQuestion] = []
    replies = {
        "Ann": {"action": "Hold the rate", "rate_change_bp": 0},
        "validator": {"is_valid": True},
    }

    def answer(question: OpenQuestion) -> dict[str, Any]:
        asked.append(question)
        return {**replies[seat], "reasoning": "So.", "confidence": 1.0}

    players = {"*": "rule", seat: Person(answer)}
    return played(bank(players=players, moves_bp=(-25, 0, 25), **more), 1), asked


def test_a_person_is_asked_for_a_rate_first_which_begins_where_it_is_and_may_leave_words_open() -> (
    None
):
    run, [question] = questions_to("Ann")
    here = run.state.interest_rate
    assert here == 4
    shown = in_rates(run, question)
    fields = shown.request.schema["properties"]
    assert next(iter(fields)) == "rate"
    assert "rate_change_bp" not in fields
    assert fields["rate"] == {
        "enum": [3.75, 4.0, 4.25],
        "says": ["Lower the rate to 3.75 %", "Hold the rate at 4 %", "Raise the rate to 4.25 %"],
        "start": 4.0,
    }
    assert fields["action"]["optional"] is True
    # What judges a reply knows no rate.
    assert (shown.judge, question.judge is not None) == (None, True)
    assert question.request.schema["properties"].keys() >= {"rate_change_bp", "action"}


def test_a_person_reads_a_shorter_briefing_unless_the_prompt_is_short_or_its_own() -> None:
    _, [question] = questions_to("Ann", masked=False)
    lines = question.for_people.splitlines()
    assert lines[0].startswith("You are the central bank of Ann and set its policy interest rate.")
    assert lines[0].endswith("Inflation target: 2% over 4 quarters. Temperament: pragmatic.")
    assert lines[2].startswith(
        "Now the policy rate is 4 %. Inflation over four quarters is 2 %, at"
    )
    assert lines[6] == "Before, oldest first, %:"
    assert [line.partition(":")[0] for line in lines[7:]] == [f"-{ago}" for ago in range(7, 0, -1)]
    assert lines[7].endswith(
        "rate 4.00, inflation 2.00 (quarter 2.00), gap 0.00, unemployment 5.00"
    )
    own = {"name": "Ann", "prompt": Prompt.load("agent_briefing").text}
    for more in ({"briefing": "thin"}, {"nations": [own]}):
        _, [question] = questions_to("Ann", **more)
        assert question.for_people == ""


def test_a_validator_is_asked_as_it_is() -> None:
    run, [question] = questions_to("validator", validator="asked")
    assert in_rates(run, question) is question


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        (
            {"rate": 4.2},
            {"action": "Raise the rate to 4.2 %", "left_open": ["action"], "rate_change_bp": 25},
        ),
        ({"rate": 3.8, "action": "Cut."}, {"action": "Cut.", "rate_change_bp": -25}),
        ({"action": "Wait."}, {"action": "Wait."}),
    ],
)
def test_a_rate_becomes_the_move_that_leads_nearest_to_it(answer: Any, reply: Any) -> None:
    assert as_reply(bank(moves_bp=(-25, 0, 25)), answer) == reply


def test_the_rule_advises_each_member_by_its_own_target_and_others_by_the_first_one_s() -> None:
    nations = [{"name": "Ann", "inflation_target": 3}, {"name": "Bo", "inflation_target": 4}]
    run = Simulation(nations=nations, players="rule", moves_bp=(-100, -50, 0))
    # 2 + target + 1.5 (2 - target), from 4 percent.
    for name, move, rate in (("Ann", "3.5", "3.5"), ("Bo", "3", "3"), ("validator", "3.5", "3.5")):
        assert advice_for(run, name) == (
            f"The Taylor rule: Set the interest rate to {move}%. With inflation at 2% and an "
            f"output gap of 0% the rule asks for {rate}%."
        )
