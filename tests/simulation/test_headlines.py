"""Headlines are sentences about numbers, and say nothing that the numbers do not show."""

from __future__ import annotations

from llmsim_lab.models import GlobalState
from llmsim_lab.simulation._headlines import headlines


def quarters(name: str, *values: float) -> list[GlobalState]:
    """Quarters in which only one indicator moves."""
    return [GlobalState().model_copy(update={name: value}) for value in values]


def test_the_first_quarter_says_where_the_term_begins() -> None:
    assert headlines(quarters("inflation", 4.03)) == [
        "The term begins: inflation 4.0 %, unemployment 5.0 %, the rate 4.00 %"
    ]


def test_a_level_that_beats_those_before_it_says_for_how_long() -> None:
    past = quarters("inflation", 5.0, 3.9, 3.8, 3.7, 3.6, 3.5, 3.4, 4.1)
    assert headlines(past)[0] == "Inflation climbs to 4.1 %, its highest in six quarters"
    assert headlines(past[1:])[0] == "Inflation climbs to 4.1 %, its highest of the term"
    assert headlines(past[-2:])[0] == "Inflation climbs to 4.1 %"


def test_a_large_change_is_a_jump_and_one_that_does_not_show_is_none() -> None:
    assert headlines(quarters("unemployment", 5, 6.4))[0] == "Unemployment jumps to 6.4 %"
    assert headlines(quarters("unemployment", 6, 4.9))[0] == "Unemployment tumbles to 4.9 %"
    told = headlines(quarters("unemployment", 5.01, 5.04))
    assert not any("climbs" in line or "falls" in line for line in told)


def test_inflation_back_at_its_target_is_news() -> None:
    told = headlines(quarters("inflation", 4.0, 3.1), target=3)
    assert told[0] == "Inflation is back at its target: 3.1 %"


def test_falling_output_is_told_and_a_recession_counted() -> None:
    assert "Output shrinks, at a rate of 1.2 % a year" in headlines(quarters("gdp_growth", 2, -1.2))
    assert headlines(quarters("gdp_growth", 2, -1, -2.5))[0] == (
        "Recession: output shrinks for the second quarter running, by 2.5 % a year"
    )


def test_the_banks_own_move_is_told() -> None:
    assert headlines(quarters("interest_rate", 4, 4.75))[0] == (
        "The bank raises its rate by 0.75 points to 4.75 %"
    )
    assert "The bank cuts its rate by 0.50 points to 3.50 %" in headlines(
        quarters("interest_rate", 4, 3.5)
    )
