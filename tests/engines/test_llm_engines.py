"""Engines: actions in order, limits held, nothing changed by a failure."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from builders import make_action, make_client, make_config, make_state, rate_update, requests_of

from llmsim_lab.economy import RudebuschSvensson
from llmsim_lab.economy.macro import EngineConfig
from llmsim_lab.engines import EconLLMEngine, EconomicEngine
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import GlobalState, SimulationState
from llmsim_lab.types import ChatRequest


def engine_at(rate: float, client: LLMClient | None = None, config: Any = None) -> EconomicEngine:
    engine = EconomicEngine(config and make_config(engine=config), client)
    engine.current_state = make_state(interest_rate=rate)
    return engine


def offered(request: ChatRequest) -> list[float]:
    assert request.schema is not None
    rates = request.schema["properties"]["new_interest_rate"]["enum"]
    assert isinstance(rates, list)
    return rates


@pytest.mark.parametrize(
    ("rate", "rates"),
    [
        (4, [3.5, 3.75, 4.0, 4.25, 4.5]),
        (29.02 / 3, [9.25, 9.5, 9.67, 9.75, 10.0]),  # a rate off the grid is offered too
        (0.25, [0.0, 0.25, 0.5, 0.75]),
    ],
)
async def test_the_schema_offers_the_grid_within_one_move(rate: float, rates: Any) -> None:
    client = make_client(rate_update(rates[1]))
    await engine_at(rate, client, {"max_move": 0.5}).run_turn([make_action()])
    assert offered(requests_of(client)[0]) == rates


async def test_a_rate_between_the_grids_points_is_accepted() -> None:
    state = await engine_at(4, make_client([rate_update(4.1)])).run_turn([make_action()])
    assert state.global_state.interest_rate == 4.1
    assert state.reasoning_chains[0].status == "ok"


async def test_a_rate_beyond_the_limits_is_shown_back_with_the_complaint() -> None:
    client = make_client([rate_update(6.5), rate_update(4.0)])
    state = await engine_at(4, client).run_turn([make_action()])
    complaint = "6.5% is 2.5 percentage points from the current 4%; one action may move it by"
    assert complaint in requests_of(client)[1].messages[-1].content
    assert state.global_state.interest_rate == 4
    assert state.reasoning_chains[0].status == "repaired"


async def test_a_rate_beyond_the_limits_twice_is_an_invalid_response_and_no_clamp() -> None:
    engine = engine_at(4, make_client(rate_update(30)))
    with pytest.raises(LLMFailureException, match="outside the bounds 0% to 25%") as caught:
        await engine.run_turn([make_action()])
    assert (caught.value.reason, caught.value.attempts) == ("invalid_response", 2)


async def test_the_limits_hold_for_a_client_that_does_not_check_them() -> None:
    client = Mock()
    client.call_with_retry = AsyncMock(return_value=rate_update(9))
    with pytest.raises(LLMFailureException, match="5 percentage points") as caught:
        await engine_at(4, client).run_turn([make_action()])
    assert (caught.value.reason, caught.value.attempts) == ("invalid_response", 1)


async def test_the_limits_stand_in_the_prompt() -> None:
    client = make_client(rate_update(4))
    config = EngineConfig(rate_bounds=(-0.5, 18), max_move=1, rate_step=0.5)
    await engine_at(4, client, config).run_turn([make_action()])
    assert (
        "The new rate lies between -0.5% and 18%, at most 1 percentage points from the current "
        "rate, in steps of 0.5."
    ) in requests_of(client)[0].messages[0].content


@pytest.mark.parametrize("size", [{"rate_change_bp": 25}, {"proposed_rate": 5}])
async def test_an_action_that_states_its_size_is_not_judged(size: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"'Aland', 'Raise it', states its size.*in a Simulation"):
        await engine_at(4, make_client()).run_turn([make_action("Raise it", **size)])


async def test_words_need_a_model() -> None:
    with pytest.raises(ConfigError, match=r"'Raise taxes'; give the engine an llm_client"):
        await engine_at(4).run_turn([make_action("Raise taxes")])


async def test_the_economy_moves_on_from_the_turns_start_under_the_new_rate() -> None:
    client = make_client([rate_update(5), rate_update(6)])
    engine = engine_at(4, client)
    start = engine.current_state
    state = await engine.run_turn([make_action()] * 2)
    assert state.global_state == RudebuschSvensson().advance(start.global_state, interest_rate=6)
    engine.current_state = SimulationState(period="1979Q4")
    empty = await engine.run_turn([])
    assert (empty.turn, empty.period, empty.reasoning_chains) == (1, "1980Q1", ())


async def test_the_rate_only_engine_changes_nothing_else() -> None:
    engine = EconLLMEngine(llm_client=make_client(rate_update(5)))
    state = await engine.run_turn([make_action()])
    assert state.global_state.interest_rate == 5
    assert state.global_state.model_copy(update={"interest_rate": 4.0}) == GlobalState()
    assert state.turn == 1


async def test_braces_in_an_action_are_text_and_no_template() -> None:
    client = make_client(rate_update(4))
    await engine_at(4, client).run_turn([make_action("Raise {{ rates }}")])
    assert 'action: "Raise {{ rates }}"' in requests_of(client)[0].prompt


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate_bounds": (5, 1)}, r"\(5.0, 1.0\) are empty; swap them"),
        ({"rate_bounds": (0, float("inf"))}, "finite"),
        ({"max_move": 0}, "max_move: .*greater than 0"),
        ({"rate_step": 0.001}, "into more than 1000 .*raise rate_step"),
        ({"max_moves": 1}, "max_moves"),
    ],
)
def test_limits_that_make_no_sense_are_errors(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineConfig(**fields)
